#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/network/links.h"

namespace sirtaki {

/// The ranks of a world, whose engines have ended in good order, agree to keep using their
/// connections: either all ranks do or none.
///
/// Each rank reports to its host's leader that it is ready; a leader reports to the one above it
/// once all ranks of its host and all hosts below are ready; and rank 0 releases them all. A rank
/// that cannot or will not continue hangs up, and so does every rank that sees that. Between its
/// report and its release no rank touches the shared memory, and meanwhile the leader resets it.
class Renewal {
 public:
  enum class State {
    kWaiting,
    kAgreed,   ///< the links belong to the next generation
    kRefused,  ///< some rank has not kept its links; this one has hung up, too
    kLate,     ///< some rank did not come in time; this one has hung up
  };

  /// `timeout_seconds`: the limit for the whole agreement.
  Renewal(Links& links, double timeout_seconds);

  /// Works until there is a decision, but no longer than until `limit_ns` on the clock.
  State advance(int64_t limit_ns);

  /// Once late: the ranks that are known to be missing.
  const std::vector<int32_t>& missing() const { return missing_; }

 private:
  /// Words between ranks while no engine runs. Zeros only wake the receiver.
  enum class Word : uint8_t {
    kReady = 1,  ///< this rank, or this host and those below it
    kGo,         ///< all ranks are ready
    kLate,       ///< the ranks that follow are not ready
  };
  /// A socket to a rank of this host.
  struct Local {
    const Link* link;
    Fd process;
    std::string received;
  };

  bool leads() const { return map_.place_of(links_.rank()) == 0; }
  /// The leader of this rank's host or, if that is this rank, the leader above it.
  int above() const;
  void say(const Local& to, std::string_view word) const;
  void say_below(std::string_view word);
  void say_above(std::string_view word);
  void take(Local& from);
  static bool read(Local& from, size_t bytes);
  void heard(int rank, std::string_view message);
  void look();
  void wait(int64_t limit_ns);
  int64_t deadline() const;
  void go();
  void be_late(std::vector<int32_t> missing);
  std::vector<int32_t> not_ready() const;

  Links& links_;
  const HostMap& map_;
  const int64_t start_ns_;
  const int64_t timeout_ns_;
  std::vector<Local> local_;
  std::vector<bool> ready_;  ///< by rank: it has reported that it is ready
  bool told_ = false;        ///< this rank has reported to its leader that it is ready
  bool let_go_ = false;      ///< all are ready
  State state_ = State::kWaiting;
  std::vector<int32_t> missing_;
};

}  // namespace sirtaki
