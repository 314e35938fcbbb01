#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/sealed_frames.h"
#include "transport/channel.h"

namespace sirtaki {

/// A connection for data. Its keys authenticate all traffic but the data itself.
struct DataSocket {
  DataSocket(Fd connected, const SealKeys& shared = {})
      : socket(std::move(connected)), keys(shared) {}

  Fd socket;
  SealKeys keys;
};

/// Opens a rank's connections to ranks on other hosts.
struct Connect {
  using Ended = std::function<bool()>;

  /// Opens a connected stream socket to another rank; the peer asks for the same (rank, number) at
  /// about the same time. Gives up once `ended()` is true. Throws what the opening raised.
  std::function<DataSocket(int rank, int number, const Ended& ended)> open;
  /// Why the connection to a rank broke, if its maker knows better than the socket; else empty.
  std::function<std::string(int rank)> why_broken;
};

/// Channels over sockets that are opened this way.
MakeNetwork over_sockets(Connect connect);

}  // namespace sirtaki
