#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/observe/rank_state.h"
#include "engine/options.h"
#include "engine/requests/messages.h"
#include "engine/requests/process_sets.h"
#include "engine/requests/request.h"
#include "engine/sequencer/autotuner.h"
#include "engine/sequencer/chunk_policy.h"
#include "engine/sequencer/id_cache.h"
#include "engine/sequencer/joins.h"
#include "engine/sequencer/ready.h"
#include "engine/sequencer/reports.h"
#include "transport/exchange_rules.h"
#include "transport/hosts.h"

namespace sirtaki {

class Timeline;

/// The state of a rank; nothing: the question is under way.
using StateOf = std::function<std::optional<RankState>(int rank)>;

/// Decides the order in which all ranks run what all members have submitted. Lives on rank 0.
///
/// It is a plain state machine: messages in, messages out, no threads and no clock of its own.
class Sequencer {
 public:
  /// Delivers a message to its recipients.
  using Send = std::function<void(const Recipients& to, std::string_view message)>;

  /// `hosts` must outlive it. `carries`: the numbers of small sums may travel with reports.
  Sequencer(const HostMap& hosts, const EngineOptions& options, Send send, bool carries = false);

  /// Sends all ranks the settings on which they must agree; the first call.
  void announce_settings() { send_chunk_bytes(options_.chunk_bytes); }

  /// Takes a message (Up …) of a rank.
  void receive(int rank, std::string_view message, int64_t now_ns);
  /// Takes the same message of several ranks; for hosts, of all members of its process set there.
  void receive(const Reporters& from, std::string_view message, int64_t now_ns);

  /// Sends the next batch of ready operations, if there is one; `may_go` tells whether rank 0 can
  /// run an operation of a set that it belongs to.
  bool dispatch(
      int64_t now_ns,
      const std::function<bool(int32_t set)>& may_go = [](int32_t) { return true; });

  /// Rank 0 has run a batch of `bytes`, in which a member slept `sleeps` times for another.
  void batch_done(int64_t bytes, int64_t sleeps);

  bool has_ready() const { return !ready_.empty(); }
  /// Whether another rank's request may now complete or fail an operation: rank 0 itself has
  /// submitted its part, or has none in it.
  bool expects_peers() const {
    return reports_.awaits_peers() || sets_without_zero_ > 0 || !joins_.empty() || !last_.empty();
  }
  bool has_pending() const { return !reports_.empty(); }

  /// Fails operations that some members have not submitted for too long, once it is known what
  /// these members are doing.
  void check_stalls(int64_t now_ns, const StateOf& state_of = [](int) { return RankState{}; });

  /// Sends ranks a message.
  void tell(std::vector<int> ranks, std::string_view message);

  /// Writes to it from now on, first what is being negotiated; null: stops.
  void set_timeline(Timeline* timeline);

 private:
  void receive_report(const Reporters& from, Up kind, Reader& in);
  template <class Report>
  void report(Stretch who, const Request& base, const Report& reported);
  void refuse(const Reporters& from, const Request& request);
  Stretch member(int32_t set, int rank);
  void receive_join(int rank, const Request& request);
  void receive_shutdown(int rank, int64_t now_ns);
  void receive_last(int rank);
  bool fail_if_abandoned(Pending& pending);
  void receive_meet(int rank, int32_t peer);
  void receive_flushed(int rank);

  void complete_if_all(Pending& pending);
  void finish_join(int32_t set);

  void fail(const Pending& pending, ErrorCode code, const std::string& why);
  void send_error(std::vector<int> ranks, const std::string& key, ErrorCode code,
                  const std::string& text);
  void apply_to_sets(Pending& pending);
  void remove_set(const Request& change);
  std::optional<std::string> missing_text(const Pending& pending, const StateOf& state_of);
  void append_item(std::string& out, Pending& pending);
  Response respond(const Pending& pending);
  void offer(Pending& pending);
  void flush();
  void send_chunk_bytes(int64_t bytes) { send_to_set(0, message_of(Down::kTune, bytes)); }
  void send_to_set(int32_t set, std::string_view message);
  void tune(const Ready::Batch& batch, int64_t now_ns);

  EngineOptions options_;
  Send send_;
  const bool carries_;
  const bool offers_;
  const ExchangeRules rules_;
  Timeline* timeline_ = nullptr;
  std::unique_ptr<Autotuner> autotuner_;
  std::optional<ChunkPolicy> chunk_policy_;  ///< if the chunk is neither set nor tuned
  ProcessSets sets_;
  IdCache cache_;
  Joins joins_;
  Reports reports_;
  int sets_without_zero_ = 0;
  std::set<int> last_;  ///< ranks that submit nothing more
  Ready ready_;
  bool ended_ = false;  ///< a rank has left
};

}  // namespace sirtaki
