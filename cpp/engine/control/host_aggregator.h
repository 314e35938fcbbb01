#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/requests/messages.h"
#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"
#include "engine/sequencer/roster.h"

namespace sirtaki {

/// Merges the messages to the sequencer from the ranks of one host and of the hosts below it, so
/// that it has a few hosts as senders, not all ranks.
///
/// No operation can begin before all members of its set have reported it. So a report is held back
/// until all members here have reported, and all their reports go as one message. A rank that never
/// reports (because it is late, or wrong) delays the others' reports by at most `kHoldNs` on each
/// host on the way; only errors and warnings come later.
///
/// A plain state machine: messages in, messages out, no threads and no clock of its own.
class HostAggregator {
 public:
  static constexpr int64_t kHoldNs = 5'000'000;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  /// The same message from several ranks.
  struct Report {
    Reporters from;
    std::string message;
  };

  /// `here`: the hosts that it speaks for. `hosts` must outlive it.
  HostAggregator(const HostMap& hosts, HostRange here);

  /// Takes a message (Up …) of a rank, or the merged messages of a host below.
  void receive_up(int rank, std::string_view message, int64_t now_ns) {
    receive_up(Reporters{{rank}, {}}, message, now_ns);
  }
  void receive_up(const Reporters& from, std::string_view message, int64_t now_ns);
  /// Takes note of a message (Down …) that the sequencer sends to ranks here.
  void receive_down(std::string_view message);
  /// The members of a set on all hosts.
  const Roster& roster(int32_t set) { return rosters_.of(set); }

  /// The messages that are due for the sequencer, in this order.
  std::vector<Report> take(int64_t now_ns);
  /// When `take` will return something without a further message; kNever if it will not.
  int64_t deadline() const;

 private:
  /// A message, and how many members here have sent it.
  struct Held : Report {
    int members = 0;
  };
  /// An operation that ranks here have reported and that has not begun.
  struct Pending {
    Pending(int32_t its_set, const Roster& roster, HostRange here, uint64_t its_turn)
        : set(its_set),
          turn(its_turn),
          reported(roster.size()),
          members(roster.of_hosts(here).size()) {}

    int32_t set;
    uint64_t turn;   ///< in the order of first reports
    Marks reported;  ///< by place in the set's roster, including those already sent
    int members;     ///< of the set, here
    std::vector<Held> held;
    int64_t since_ns = 0;     ///< when the oldest of `held`, or of what follows them, came
    uint32_t carried_as = 0;  ///< the id under which a report carried numbers; 0: none did
  };

  void report(const Reporters& from, const Request& request, std::string_view message,
              int64_t now_ns);
  void report(Stretch who, const Reporters& from, const Request& request, std::string_view message,
              int64_t now_ns);
  void hold(Pending& pending, Stretch who, const Reporters& from, std::string_view message,
            int64_t now_ns);
  Held& held_as(Pending& pending, std::string_view message);
  void pass(const Reporters& from, std::string_view message);
  void release(Pending& pending);
  void release_all();
  void forget(const std::string& key);
  int joined(int32_t set) const;
  void learn_batch(Reader& in);
  void learn(const Request& request, uint64_t ordinal);
  void learn_set(const Request& change);
  void learn_offer(Reader& in);
  void forget_if_taken();
  const Request* find_known(uint32_t id) const;

  HostRange here_;
  ProcessSets sets_;
  Rosters rosters_;
  std::map<int32_t, int> joined_;                     ///< members here, by set
  std::unordered_map<uint32_t, Request> known_;       ///< kind, name and set of each short id
  std::unordered_map<uint32_t, Request> forgotten_;   ///< ranks may still report these
  std::unordered_map<std::string, Pending> pending_;  ///< by match key
  uint64_t turns_ = 0;
  /// Operations with held reports, by turn. A rank's unnamed operations count in the order in which
  /// they arrive, so a late report of an operation goes before those of later operations.
  std::map<uint64_t, Pending*> holding_;
  /// The latest offer of rank 0's numbers to a rank here: see Negotiation::use_offer.
  struct Offer {
    uint32_t id;
    std::string key;
  };
  std::optional<Offer> offer_;
  std::vector<Report> out_;
};

}  // namespace sirtaki
