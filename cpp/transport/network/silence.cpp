#include "transport/network/silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace sirtaki {

bool is_silent(int socket, int64_t limit_ns) {
  constexpr int64_t kNsPerMs = 1'000'000;
  constexpr uint8_t kProbes = 2;  // of a closed window; a single one may be on its way
  tcp_info info{};
  socklen_t size = sizeof info;
  if (limit_ns <= 0) return false;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const bool asked = info.tcpi_unacked > 0 || info.tcpi_probes >= kProbes;
  return asked && info.tcpi_last_ack_recv * kNsPerMs >= limit_ns;
}

}  // namespace sirtaki
