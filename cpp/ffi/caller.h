#pragma once

#include "ffi/sirtaki.h"

// What the libraries that call the table have in common.
namespace sirtaki {

/// How long the thread that begins an operation of so many bytes stays. Operations of few bytes are
/// waited for there, for it moves them itself meanwhile: waking others takes longer. The thread
/// goes on before others come late or in another order.
inline int64_t patience_ns(size_t bytes) { return bytes <= 256 << 10 ? 100'000 : 0; }

/// What is wrong with the engine's interface; "" if nothing is.
inline const char* problem_of(const sirtaki_table& table) {
  const bool known =
      table.version == SIRTAKI_FFI_VERSION && table.struct_size >= sizeof(sirtaki_table);
  return known ? "" : "the engine's interface has another version";
}

}  // namespace sirtaki
