#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/frames.h"
#include "engine/control/host_aggregator.h"
#include "engine/sequencer/roster.h"
#include "transport/hosts.h"
#include "transport/memory/doorbell.h"
#include "transport/network/host_link.h"
#include "transport/network/watcher.h"

namespace sirtaki {

/// What leaders of hosts tell one another.
enum class Hop : uint8_t {
  kUp,         ///< reporters, and a message of theirs to the sequencer
  kDown,       ///< a process set, ranks (none: all members), and a message of the sequencer to them
  kHeartbeat,  ///< nothing: the host is alive
  kLost,       ///< a rank that is gone, who reports it and why; the world ends
  kAsk,        ///< ranks: rank 0 wants to know what they are doing
  kTell,       ///< what each of some ranks is doing
  kBye,        ///< nothing more will be run on this host and those below it
};

/// A message of leaders.
std::string framed(Hop hop, std::string_view body);

/// Carries control messages between hosts, along their tree; runs in the watcher's thread of each
/// host's leader, so that it does not depend on what the leader itself is doing.
///
/// Other threads send directly what the sockets take at once.
class Relay : public Watcher::Service {
 public:
  using Lost = std::function<void(const Loss&)>;

  /// `lost` is called when another host is gone or reports a loss, or a rank of this one says what
  /// no rank says; `why` is empty where another host knows. `timeout_seconds`: a host silent
  /// for so long is gone; 0: never.
  Relay(const HostMap& hosts, int rank, std::shared_ptr<Region> region, const Doorbell& doorbell,
        std::span<HostLink> links, double timeout_seconds, Lost lost);

  /// How the relay's thread is woken.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

  /// No other host needs this one any more, or the world has ended by a loss.
  bool left();
  /// Returns once that is so.
  void await_farewell();

  /// Takes what has arrived, if the thread does not do so just now: saves a driver that polls
  /// anyway the time that waking the thread takes.
  void look();

  /// For a scheduler in place of the thread: one round. Returns until when nothing needs to be done
  /// unless something comes.
  int64_t step(int64_t now_ns);

  int prepare(Sleep& sleep) final;
  void serve(const Sleep& sleep) final;

 protected:
  /// A link and what is known of its other end.
  struct Peer {
    HostLink& link;
    HostRange under;       ///< the hosts whose words come from there; none: it is above
    int64_t heard_ns = 0;  ///< or will be for the first time at the latest; 0: not known yet
    bool bye = false;
    std::string broken;      ///< why nothing it says is believed any more
    size_t polled_from = 0;  ///< what the thread polls for it
    size_t polled_to = 0;
  };

  /// A message from another host, under the lock.
  virtual void receive(Peer& from, Hop hop, std::string_view body) = 0;
  /// Work of each round of the thread, under the lock; returns until when it may sleep, on the
  /// clock.
  virtual int64_t work(int64_t now_ns) = 0;
  /// Something to do came while the thread prepared to sleep.
  virtual bool has_news() const = 0;
  /// Whether nobody needs this host any more.
  virtual bool may_leave() const = 0;

  bool all_local_closed() const;
  /// All hosts below have said goodbye.
  bool all_below_left() const;
  void send_to_all(Hop hop, std::string_view body = {});
  /// Those of `to` that are on hosts below: one copy a child.
  void send_below(const Recipients& to, std::string_view message);
  void ask_below(const std::vector<int32_t>& ranks);
  void wake_for_backlog() const;
  /// Reads who reports; throws for others than those at that end.
  Reporters read_reporters(const Peer& from, Reader& in) const;
  bool is_under(const Peer& peer, int rank) const;
  void require_under(const Peer& peer, int rank) const;
  /// Under the lock. The thread itself looks again before it sleeps, and may run before its engine
  /// can wake it.
  void wake() const {
    if (wake_ && !in_round_) wake_();
  }

  const HostMap& hosts_;
  const int rank_;
  const std::shared_ptr<Region> region_;
  const Doorbell& doorbell_;
  const Lost lost_;

  std::mutex mutex_;  ///< guards what follows
  std::vector<Peer> peers_;
  bool told_ = false;         ///< the others know of the loss
  int64_t sleeps_until_ = 0;  ///< unless something comes

 private:
  /// The thread is at work.
  struct Round {
    explicit Round(Relay& relay) : relay(relay) { relay.in_round_ = true; }
    ~Round() { relay.in_round_ = false; }
    Relay& relay;
  };

  void hear(Peer& peer);
  void tell(int64_t now_ns);
  bool receive_from(Peer& peer);
  void receive_loss(Reader& in);
  void check_silence(int64_t now_ns);
  void spread_loss();

  const int64_t timeout_ns_;
  const int64_t heartbeat_ns_;
  std::function<void()> wake_;
  bool in_round_ = false;
  int64_t beaten_ns_ = 0;
  int64_t polled_ns_ = 0;
  std::condition_variable left_;
};

}  // namespace sirtaki
