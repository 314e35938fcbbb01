#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "engine/control/relay.h"
#include "engine/observe/rank_state.h"

namespace sirtaki {

/// The relay beside the sequencer, on rank 0.
class SequencerRelay final : public Relay {
 public:
  using Receive = std::function<void(const Reporters& from, std::string_view message)>;

  using Relay::Relay;

  /// Sends a message of the sequencer to its recipients on other hosts.
  void send_down(const Recipients& to, std::string_view message);

  /// Asks the leaders of their hosts what ranks are doing; answers ring this rank's engine.
  void ask(const std::vector<int>& ranks);
  /// What is known of a rank since it was asked, if anything.
  RankState answer(int rank);

  bool has_up() const { return has_up_.load(); }
  /// Hands over the messages that came from other hosts.
  void receive_up(const Receive& receive);

 private:
  void receive(Peer& from, Hop hop, std::string_view body) override;
  int64_t work(int64_t) override { return HostAggregator::kNever; }
  bool has_news() const override { return false; }
  bool may_leave() const override;

  void receive_answers(const Peer& from, std::string_view body);
  void receive_report(const Peer& from, std::string_view body);

  std::map<int, RankState> answers_;
  std::vector<HostAggregator::Report> up_;
  std::atomic<bool> has_up_{false};
};

}  // namespace sirtaki
