#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/sealed_frames.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// A connection to another rank.
struct Link {
  int rank;
  Fd socket;
  SealKeys keys = {};  ///< only messages between hosts are sealed
};

/// The process at the other end of a Unix socket, as a descriptor that becomes readable when it
/// ends; empty if the kernel has none. Children that it forked may keep the socket open.
Fd process_of(int socket);

/// Detects the end of peer processes of this host, in a thread that sleeps until then.
class Watcher {
 public:
  /// Other work for the watcher's thread.
  class Service {
   public:
    virtual ~Service() = default;
    /// Called before the thread sleeps: adds what must wake it, returns how long it may sleep
    /// (negative: no limit).
    virtual int64_t prepare(Sleep& sleep) = 0;
    /// Called after it wakes, with what `prepare` added.
    virtual void serve(const Sleep& sleep) = 0;
  };

  /// The thread in `look` calls `lost(rank)` once for a peer, or again soon if that returns false.
  /// The links and the service must outlive the watcher. heartbeat: a file at whose start the
  /// thread writes the time now and then, and 0 when it ends; negative: none.
  Watcher(std::span<const Link> links, std::function<bool(int rank)> lost,
          Service* service = nullptr, int heartbeat = -1);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Starts the thread; without it, another thread calls `look`.
  void start();
  /// Waits for at most `limit_ns` (negative: no limit) until something happens; reports lost ranks.
  void look(int64_t limit_ns);

  /// Tells the thread to end; `end` and the destructor wait for that.
  void stop();
  void end();
  /// Makes the thread call its service now.
  void wake() const;
  /// Does the same to the watchers at the other ends of the links.
  void wake_peers() const;

 private:
  size_t own() const { return 2 * links_.size() + 1; }
  int64_t beat(int64_t limit_ns);
  void write_beat(int64_t time) const;

  const std::span<const Link> links_;
  std::vector<Fd> processes_;  ///< of each link's peer
  std::function<bool(int)> lost_;
  std::vector<int> undecided_;  ///< ranks to report again
  Service* service_;
  const int heartbeat_;
  int64_t beaten_ns_ = 0;
  Fd wake_;
  Sleep sleep_;  ///< the links' sockets, their processes, `wake_`, then what the service adds
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sirtaki
