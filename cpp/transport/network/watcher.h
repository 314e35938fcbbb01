#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/sealed_frames.h"

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

/// Tells when a peer process of this host is gone. Sleeps in poll() until then.
class Watcher {
 public:
  /// Something else that the watcher's thread looks after.
  class Service {
   public:
    virtual ~Service() = default;
    /// Called before the thread sleeps: adds what shall wake it, returns for how many milliseconds
    /// it may sleep (negative: no limit).
    virtual int prepare(std::vector<pollfd>& polled) = 0;
    /// Called after it woke, with what `prepare` added.
    virtual void serve(std::span<const pollfd> polled) = 0;
  };

  /// `lost(rank)` is called from the watcher's thread, at most once a peer. The links, and the
  /// service, must live longer than the watcher.
  Watcher(std::span<const Link> links, std::function<void(int rank)> lost,
          Service* service = nullptr);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Lets the thread end, which the destructor waits for.
  void stop();
  /// Makes the thread look after its service now.
  void wake() const;
  /// Does the same to the watchers at the other ends of the links.
  void wake_peers() const;

 private:
  void watch();

  const std::span<const Link> links_;
  std::vector<Fd> processes_;  ///< of each link's peer
  std::function<void(int)> lost_;
  Service* service_;
  Fd wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sirtaki
