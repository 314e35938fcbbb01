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

/// The process at the other end of a Unix socket, as a descriptor that is readable once it has
/// ended; empty where the kernel gives none. Children that it forked may keep the socket open.
Fd process_of(int socket);

/// Tells when a peer process of this host is gone, in a thread that sleeps until then.
class Watcher {
 public:
  /// Something else that the watcher's thread looks after.
  class Service {
   public:
    virtual ~Service() = default;
    /// Called before the thread sleeps: adds what shall wake it, returns for how many milliseconds
    /// it may sleep (negative: no limit).
    virtual int prepare(Sleep& sleep) = 0;
    /// Called after it woke, with what `prepare` added.
    virtual void serve(const Sleep& sleep) = 0;
  };

  /// `lost(rank)` is called by who looks, once a peer, or again soon where it returns false. The
  /// links, and the service, must live longer than the watcher. heartbeat: a file at whose start
  /// the thread writes the time now and then, and 0 when it ends; negative: none.
  Watcher(std::span<const Link> links, std::function<bool(int rank)> lost,
          Service* service = nullptr, int heartbeat = -1);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Starts the thread; without it somebody else calls `look`.
  void start();
  /// Waits for at most so long (negative: no limit) until something happens, and says who is lost.
  void look(int milliseconds);

  /// Lets the thread end, which `end` and the destructor wait for.
  void stop();
  void end();
  /// Makes the thread look after its service now.
  void wake() const;
  /// Does the same to the watchers at the other ends of the links.
  void wake_peers() const;

 private:
  size_t own() const { return 2 * links_.size() + 1; }
  int beat(int milliseconds);
  void write_beat(int64_t time) const;

  const std::span<const Link> links_;
  std::vector<Fd> processes_;  ///< of each link's peer
  std::function<bool(int)> lost_;
  std::vector<int> undecided_;  ///< ranks to ask about again
  Service* service_;
  const int heartbeat_;
  int64_t beaten_ns_ = 0;
  Fd wake_;
  Sleep sleep_;  ///< the links' sockets, their processes, `wake_`, then what the service adds
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sirtaki
