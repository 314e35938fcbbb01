#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/rank_context.h"
#include "engine/sequencer/roster.h"

namespace sirtaki {

using Lost = std::function<void(const Loss&)>;
/// Takes a message (Up …) of those who say the same.
using ReceiveUp = std::function<void(const Reporters& from, std::string_view message)>;

/// Takes what a rank says: one that says what no rank says is as good as lost.
template <class Take>
void take_word_of(int rank, const Lost& lost, Take take) {
  try {
    take();
  } catch (const Error& error) {
    lost({rank, -1, std::string("it sent what no rank sends: ") + error.what()});
  }
}

/// The rings in shared memory between the leader of a host and its ranks, at the leader's end.
/// Sending never blocks: what a full ring does not take waits here.
class HostRings {
 public:
  HostRings(const RankContext& leader, Lost lost);

  /// Something has come from a rank other than the leader.
  bool has_up() const;
  void receive_up(const ReceiveUp& receive);

  /// To those of this host; what is for the leader itself goes to `own`, unless that is null.
  void send_down(const Recipients& to, std::string_view message, std::string* own = nullptr);
  /// Tries again to send what waits.
  void flush();
  bool has_backlog() const;

 private:
  void push(size_t place);

  const RankContext& leader_;
  const std::vector<int>& ranks_;  ///< by place
  const Lost lost_;
  std::vector<std::string> up_in_;     ///< by place: the beginning of a message
  std::vector<std::string> down_out_;  ///< by place: what its ring did not take
};

}  // namespace sirtaki
