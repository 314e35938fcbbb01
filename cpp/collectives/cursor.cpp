#include "collectives/cursor.h"

namespace sirtaki {

void copy_stream(const Segments& from, const Segments& to) {
  Cursor source(from);
  Cursor target(to);
  target.walk({0, to.bytes()}, [&](std::byte* out, size_t bytes, size_t at) {
    source.walk({at, at + bytes}, [&](const std::byte* in, size_t piece, size_t position) {
      std::byte* to_piece = out + (position - at);
      if (to_piece != in) std::memcpy(to_piece, in, piece);
    });
  });
}

}  // namespace sirtaki
