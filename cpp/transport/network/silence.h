#pragma once

#include <cstdint>

namespace sirtaki {

/// As long as hosts may be silent by default.
inline constexpr double kSilentSeconds = 4;

/// The host at the other end of a TCP socket has acknowledged nothing for so long although it was
/// asked to; a limit of 0: it may be silent for ever. One whose process does not read still
/// acknowledges. The kernel goes on to try for much longer than a lost host should hold up the
/// others.
bool is_silent(int socket, int64_t limit_ns);

}  // namespace sirtaki
