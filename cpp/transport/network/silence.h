#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/clock.h"

namespace sirtaki {

/// Whether the host at the other end of a TCP socket is there; asked now and then.
///
/// One whose process does not read still acknowledges. The kernel goes on to try for much longer
/// than a lost host should hold up the others.
class Silence {
 public:
  /// For so long it has acknowledged nothing although it had to; 0: it never has to.
  bool lasts(int socket, int64_t limit_ns) {
    constexpr int64_t kNsPerMs = 1'000'000;
    constexpr uint8_t kProbes = 2;  // of a closed window; a single one may be on its way
    tcp_info info{};
    socklen_t size = sizeof info;
    if (limit_ns <= 0) return false;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    const bool asked = info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes;
    const int64_t now = now_ns();
    if (!asked) {
      asked_ns_ = 0;
    } else if (asked_ns_ == 0) {
      asked_ns_ = now;
    }
    // After a pause the last acknowledgement is old as soon as something is sent.
    return asked && now - asked_ns_ >= limit_ns && info.tcpi_last_ack_recv * kNsPerMs >= limit_ns;
  }

 private:
  int64_t asked_ns_ = 0;  ///< since when there is something to be acknowledged; 0: there is not
};

}  // namespace sirtaki
