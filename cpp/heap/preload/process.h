#pragma once

#include "heap/arena.h"

namespace sirtaki::heap {

/// Blocks of fewer bytes come from where they always came from.
inline constexpr size_t kLarge = 1 << 20;

/// That of this process.
Arena& process_arena();

/// Whether malloc's family is ours; until the constructor has run it is not.
bool serves_malloc();

/// See sirtaki_heap.
const char* reason();

}  // namespace sirtaki::heap
