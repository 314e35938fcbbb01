#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/network/links.h"

namespace sirtaki {

/// The ranks of a world, whose engines have ended in good order, agree to go on with the
/// connections that they have: all of them or none.
///
/// Each says that it is ready to its host's leader, the leaders say so to the one above them once
/// all of their host and all hosts below are, and rank 0 lets all go. A rank that cannot or will
/// not go on has hung up, or does; so does everybody who sees that. Nobody touches the shared
/// memory between being ready and being let go, and meanwhile the leader makes it as new.
class Renewal {
 public:
  enum class State {
    kWaiting,
    kAgreed,   ///< the links are of the next generation
    kRefused,  ///< some rank has not kept them; this one has hung up too
    kLate,     ///< some rank did not come in time; this one has hung up
  };

  /// `timeout_seconds`: for everything.
  Renewal(Links& links, double timeout_seconds);

  /// Goes on until there is a decision, but no longer than until `limit_ns` on the clock.
  State advance(int64_t limit_ns);

  /// Once late: the ranks that are known not to have come.
  const std::vector<int32_t>& missing() const { return missing_; }

 private:
  /// What ranks say between two engines. Zeros only wake.
  enum class Word : uint8_t {
    kReady = 1,  ///< this rank, or host with those below it
    kGo,         ///< everybody is ready
    kLate,       ///< some ranks, which follow, are not
  };
  /// A socket to a rank of this host.
  struct Local {
    const Link* link;
    Fd process;
    std::string received;
  };

  bool leads() const { return map_.place_of(links_.rank()) == 0; }
  /// The leader of this rank's host, or if that is this one, the one above it.
  int above() const;
  void say(Local& to, Word word, std::string_view body) const;
  static void say(HostLink& to, Word word, std::string_view body);
  void say_below(Word word, std::string_view body = {});
  void say_above(Word word, std::string_view body = {});
  void take(Local& from);
  static bool read(Local& from, size_t bytes);
  void heard(int rank, Word word, std::string_view body);
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
  std::vector<bool> ready_;  ///< by rank: it has said so
  bool told_ = false;        ///< whoever leads this rank knows that it is ready
  bool let_go_ = false;      ///< all are ready
  State state_ = State::kWaiting;
  std::vector<int32_t> missing_;
};

}  // namespace sirtaki
