#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/still_time.h"
#include "engine/control/host_aggregator.h"
#include "engine/control/host_rings.h"
#include "engine/observe/rank_state.h"
#include "engine/rank_context.h"
#include "engine/sequencer/roster.h"
#include "transport/network/host_link.h"
#include "transport/network/watcher.h"

namespace sirtaki {

/// The messages between leaders of hosts.
enum class Hop : uint8_t {
  kUp,         ///< reporters, and a message of theirs to the sequencer
  kDown,       ///< a process set, ranks (none: all members), and a message of the sequencer to them
  kHeartbeat,  ///< empty: the host is alive
  kLost,       ///< the lost rank, its reporter and the reason; the world ends
  kAsk,        ///< ranks: rank 0 wants to know what they are doing
  kTell,       ///< what each of some ranks is doing
  kBye,        ///< nothing more will be run on this host and those below it
};

/// Carries control messages between hosts, along their tree. It runs in the watcher's thread of
/// each host's leader, so that it does not depend on what the leader itself is doing.
///
/// Other threads send directly what the sockets accept at once. The first link leads up, except on
/// rank 0, whose relay passes what arrives to the sequencer.
class Relay final : public Watcher::Service {
 public:
  /// Ends the world when another host is gone or reports a loss, or when a rank of this host sends
  /// what no rank sends. `wake` wakes the relay's thread.
  explicit Relay(const RankContext& context, std::function<void()> wake = {});

  /// Whether no other host needs this one any more, or a loss has ended the world.
  bool left();
  /// Returns once that is so.
  void await_farewell();

  /// Reads what has arrived, unless the thread is doing so: saves a driver that polls anyway the
  /// time to wake the thread.
  void look();

  /// For a scheduler in place of the thread: one round. Returns the time until which it has nothing
  /// to do unless a message comes.
  int64_t step(int64_t now_ns);

  int64_t prepare(Sleep& sleep) override;
  void serve(const Sleep& sleep) override;

  // For the leader of another host than rank 0's.

  /// Sends a message of the leader itself to the sequencer.
  void send_up(std::string_view message);

  // For rank 0.

  /// Sends a message of the sequencer to its recipients on other hosts.
  void send_down(const Recipients& to, std::string_view message);
  bool has_up() const { return has_up_.load(); }
  /// Passes on the messages that came from other hosts.
  void receive_up(const ReceiveUp& receive);
  /// Asks the leaders of their hosts what ranks are doing; answers ring this rank's engine.
  void ask(const std::vector<int>& ranks);
  /// The answer about a rank since it was asked, if there is one.
  RankState answer(int rank);

 private:
  /// A link and the state of its other end.
  struct Peer {
    HostLink& link;
    HostRange under;     ///< the hosts whose messages come from there; none: it is above
    bool heard = false;  ///< since the last look
    bool begun = false;  ///< it has sent a message
    StillTime silence{};
    bool bye = false;
    std::string broken{};    ///< why its messages are no longer trusted
    size_t polled_from = 0;  ///< what the thread polls for it
    size_t polled_to = 0;

    bool is_above() const { return under.size() == 0; }
  };
  /// The work of the leader of another host than rank 0's for those below.
  struct Leader {
    Leader(const RankContext& context, HostRange here)
        : aggregator(context.hosts, here),
          rings(context, [&context](const Loss& loss) { context.doorbell.abort(loss); }) {}

    HostAggregator aggregator;
    HostRings rings;
    bool said_bye = false;
  };
  /// Marks the thread as working.
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
  bool has_news() const { return leader_ && leader_->rings.has_up(); }
  bool may_leave() const;
  bool all_below_closed() const;
  void send_to_all(const std::string& message);
  void wake() const;
  void wake_for_backlog() const;

  void receive(Peer& from, Hop hop, std::string_view body);
  void receive_report(const Peer& from, std::string_view body);
  void receive_answers(const Peer& from, std::string_view body);
  void receive_orders(std::string_view body);
  void receive_questions(std::string_view body);
  int64_t lead(int64_t now_ns);
  void report(const Reporters& from, std::string_view message);
  void send_reports(int64_t now_ns);
  void send_below(const Recipients& to, std::string_view message);
  void ask_below(const std::vector<int>& ranks);

  const RankContext& context_;
  const int64_t timeout_ns_;  ///< a host silent for this long is lost; 0: never
  const int64_t heartbeat_ns_;
  const HostRange here_;  ///< this host, followed by those below it
  const std::function<void()> wake_;

  std::mutex mutex_;  ///< guards all members below
  std::vector<Peer> peers_;
  std::optional<Leader> leader_;  ///< none on rank 0
  std::map<int, RankState> answers_;
  std::vector<HostAggregator::Report> up_;
  std::atomic<bool> has_up_{false};
  bool told_ = false;  ///< the loss was reported to the others
  bool in_round_ = false;
  int64_t sleeps_until_ = 0;  ///< unless a message comes
  int64_t beaten_ns_ = 0;
  std::condition_variable left_;
};

}  // namespace sirtaki
