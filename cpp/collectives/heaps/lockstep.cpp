#include "collectives/heaps/lockstep.h"

namespace sirtaki {

Ranges Ranges::part(Range wanted) const {
  Ranges part;
  size_t before = 0;
  for (const Range& range : list_) {
    const size_t begin = std::max(wanted.begin, before);
    const size_t end = std::min(wanted.end, before + range.bytes());
    if (begin < end) part.add({range.begin + (begin - before), range.begin + (end - before)});
    before += range.bytes();
  }
  return part;
}

Segments Ranges::of(const Segments& stream) const {
  Segments segments;
  Cursor cursor(stream);
  for (const Range& range : list_) {
    cursor.walk(range, [&](std::byte* data, size_t bytes, size_t) { segments.add(data, bytes); });
  }
  return segments;
}

Split::Split(std::vector<const Segments*> streams) {
  if (streams.empty()) return;
  const size_t bytes = streams.front()->bytes();
  Lockstep(std::move(streams))
      .walk({0, bytes}, [&](const std::vector<std::byte*>& at, size_t piece, size_t position) {
        const bool here = std::find(at.begin(), at.end(), nullptr) == at.end();
        (here ? shared : rest).add({position, position + piece});
      });
}

}  // namespace sirtaki
