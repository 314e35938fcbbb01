#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/fd.h"
#include "transport/channel.h"
#include "transport/network/connect.h"

namespace sirtaki {

/// The connections for data to ranks on other hosts, by rank and number: opened when they are first
/// needed, kept, and lent to one engine after the other. Safe to use from several threads.
class DataLinks {
 public:
  /// `rank`: whose they are. `connect` opens them. `patience_seconds`: how long a peer may take to
  /// ask for a connection that both have. `silent_seconds`: see Channel::is_silent.
  DataLinks(int rank, Connect connect, double patience_seconds,
            double silent_seconds = kSilentSeconds);

  /// From here on connections are of this generation: no earlier one has them.
  void begin(uint32_t generation);

  /// Opens as `connect` does, or gives a copy of what is kept once the peer has said that it goes
  /// on with it too. The keys are of the generation.
  DataSocket open(int rank, int number, const Connect::Ended& ended);
  std::string why_broken(int rank) const {
    return connect_.why_broken ? connect_.why_broken(rank) : "";
  }

  /// Hangs up on all peers, whoever else has the sockets.
  void close();

 private:
  using Key = std::pair<int, int>;

  bool agree(const DataSocket& kept, int rank, int number, const Connect::Ended& ended) const;
  DataSocket take(const Key& key);
  DataSocket keep(const Key& key, DataSocket opened);
  uint32_t generation() const;

  const int rank_;
  const Connect connect_;
  const int64_t patience_ns_;
  const int64_t silent_ns_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::map<Key, DataSocket> kept_;
  uint32_t generation_;
  bool closed_ = false;
};

}  // namespace sirtaki
