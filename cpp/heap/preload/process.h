#pragma once

#include "heap/arena.h"

namespace sirtaki::heap {

/// Blocks of fewer bytes come from where they always came from.
inline constexpr size_t kLarge = 1 << 20;
/// So do those of a smaller alignment: they may be tables of an interpreter or a library.
inline constexpr size_t kDataAlignment = 64;

/// That of this process.
Arena& process_arena();

/// Whether frameworks get the arena's blocks; until the constructor has run they do not.
bool is_served();

}  // namespace sirtaki::heap
