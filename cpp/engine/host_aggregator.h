#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/messages.h"
#include "engine/process_sets.h"
#include "engine/request.h"

namespace sirtaki {

/// Merges what the ranks of one host tell the sequencer, so that it hears hosts and not ranks.
///
/// No operation can begin before all members of its set have reported it. So a report is held back
/// until all members on this host have made theirs, and all of them go as one message. A rank that
/// never reports (because it is late, or wrong) delays the others' reports by `kHoldNs` at most;
/// only who waits for errors and warnings can notice.
///
/// A plain state machine: messages in, messages out, no threads and no clock of its own.
class HostAggregator {
 public:
  static constexpr int64_t kHoldNs = 5'000'000;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  /// The same message of some ranks of the host.
  struct Report {
    std::vector<int32_t> ranks;  ///< in the world
    std::string message;
  };

  /// `ranks`: those of this host, of a world of `size`.
  HostAggregator(int size, std::vector<int> ranks);

  /// Takes a message (Up …) of a rank of this host.
  void receive_up(int rank, std::string_view message, int64_t now_ns);
  /// Learns from a message (Down …) that the sequencer sends to ranks of this host.
  void receive_down(std::string_view message);

  /// What is to be told to the sequencer now, in this order.
  std::vector<Report> take(int64_t now_ns);
  /// When `take` has something without a further message; kNever if it will not.
  int64_t deadline() const;

 private:
  /// An operation that ranks of the host have reported and that has not begun.
  struct Pending {
    std::vector<bool> reported;  ///< by place, those sent included
    int count = 0;
    std::vector<Report> held;
    int64_t since_ns = 0;  ///< when the oldest of `held` came
  };

  void report(int rank, const Request& request, std::string_view message, int64_t now_ns);
  void pass(int rank, std::string_view message);
  void release(Pending& pending);
  void release_all();
  void forget(const std::string& key);
  bool is_held(const std::string& key) const;
  int expected(int32_t set);
  int place_of(int rank) const;
  void learn_batch(Reader& in);
  void learn(const Request& request, uint64_t ordinal);
  const Request* find_known(uint32_t id) const;

  std::vector<int> ranks_;
  ProcessSets sets_;
  std::map<int32_t, int> members_;  ///< of each set on this host, as far as asked for
  std::map<int32_t, int> joined_;   ///< how many of them have joined
  std::vector<std::map<int32_t, uint64_t>> ordinals_;  ///< of unnamed requests, by place and set
  std::unordered_map<uint32_t, Request> known_;        ///< kind, name and set of each short id
  std::unordered_map<uint32_t, Request> forgotten_;    ///< ranks may still report these
  std::unordered_map<std::string, Pending> pending_;   ///< by match key
  std::deque<std::string> holding_;  ///< keys of what is held, oldest first; some are not any more
  std::vector<Report> out_;
};

}  // namespace sirtaki
