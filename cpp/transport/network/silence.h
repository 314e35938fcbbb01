#pragma once

#include <cstdint>

namespace sirtaki {

/// Whether the host at the other end of a TCP socket is there; asked now and then.
///
/// One whose process does not read still acknowledges. The kernel goes on to try for much longer
/// than a lost host should hold up the others.
class Silence {
 public:
  /// For so long it has acknowledged nothing although it had to; 0: it never has to.
  bool lasts(int socket, int64_t limit_ns);

 private:
  int64_t asked_ns_ = 0;  ///< since when there is something to be acknowledged; 0: there is not
};

}  // namespace sirtaki
