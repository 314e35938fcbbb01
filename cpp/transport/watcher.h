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

/// The connections that a rank is given at its start.
struct LinkSet {
  /// Unix sockets, between the host's leader and each other rank of the host. They close when the
  /// peer's process ends.
  std::vector<Link> local;
  /// TCP sockets, between rank 0 and the leader of each other host.
  std::vector<Link> hosts;
};

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

  /// `lost(rank)` is called from the watcher's thread, at most once a peer. The service must live
  /// longer than the watcher.
  Watcher(std::vector<Link> links, std::function<void(int rank)> lost, Service* service = nullptr);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Makes the thread look after its service now.
  void wake() const;
  /// Does the same to the watchers at the other ends of the links.
  void wake_peers() const;

 private:
  void watch();

  std::vector<Link> links_;
  std::vector<Fd> processes_;  ///< pidfd of each link's peer, or empty where the kernel gives none
  std::function<void(int)> lost_;
  Service* service_;
  Fd wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sirtaki
