#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/control/host_aggregator.h"
#include "engine/control/relay.h"

namespace sirtaki {

/// The relay on the leader of every other host. The first link leads up.
class LeaderRelay final : public Relay {
 public:
  LeaderRelay(const HostMap& hosts, int rank, std::shared_ptr<Region> region,
              const Doorbell& doorbell, std::span<HostLink> links, double timeout_seconds,
              Lost lost);

  /// Sends a message of the leader itself to the sequencer.
  void send_up(std::string_view message);

 private:
  void receive(Peer& from, Hop hop, std::string_view body) override;
  int64_t work(int64_t now_ns) override;
  bool has_news() const override;
  bool may_leave() const override;

  HostLink& above() { return peers_[0].link; }
  void report(const Reporters& from, std::string_view message);
  void receive_orders(std::string_view body);
  void receive_questions(std::string_view body);
  void receive_answers(const Peer& from, std::string_view body);
  void receive_report(const Peer& from, std::string_view body);
  void read_rings(int64_t now_ns);
  void push(int place);
  void lose_liar(int place, const std::string& why) const;
  void send_reports(int64_t now_ns);
  bool is_here(int host) const { return host >= here_.begin && host < here_.end; }
  void deliver(const Recipients& to, std::string_view message);
  void deliver(int place, std::string_view message);
  bool deliver_waiting();

  const HostRange here_;  ///< this host and those below it
  HostAggregator aggregator_;
  std::vector<std::string> up_in_;     ///< by place: the beginning of a message
  std::vector<std::string> down_out_;  ///< by place: what its ring did not take
  bool said_bye_ = false;
};

}  // namespace sirtaki
