#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "engine/autotuner.h"
#include "engine/chunk_policy.h"
#include "engine/messages.h"
#include "engine/options.h"
#include "engine/process_sets.h"
#include "engine/request.h"

namespace sirtaki {

class Timeline;

/// Decides in what order all ranks run what all members have submitted. Lives on rank 0.
///
/// It is a plain state machine: messages in, messages out, no threads and no clock of its own.
class Sequencer {
 public:
  /// Delivers a message to some ranks.
  using Send = std::function<void(const std::vector<int>& ranks, std::string_view message)>;

  Sequencer(int size, const EngineOptions& options, Send send);

  /// Tells all ranks the settings on which they must agree; before anything else.
  void announce_settings();

  /// Takes a message (Up …) of a rank.
  void receive(int rank, std::string_view message, int64_t now_ns);
  /// Takes the same message of several ranks.
  void receive(const std::vector<int>& ranks, std::string_view message, int64_t now_ns);

  /// Sends the next batch of operations that are ready, if there is one; `may_go` tells whether
  /// rank 0 can run something of a set that it is a member of.
  bool dispatch(int64_t now_ns, const std::function<bool(int32_t set)>& may_go);
  bool dispatch(int64_t now_ns) {
    return dispatch(now_ns, [](int32_t) { return true; });
  }

  /// Rank 0 has run a batch of so many bytes, in which a member slept `sleeps` times for another.
  void batch_done(int64_t bytes, int64_t sleeps);

  bool has_ready() const { return !ready_.empty(); }
  /// A request of another rank may complete something now: rank 0 itself has submitted its part, or
  /// has none in it.
  bool expects_peers() const { return awaited_ > 0 || sets_without_zero_ > 0 || !joined_.empty(); }
  bool has_pending() const { return !pending_.empty(); }

  /// Warns of operations some members have not submitted, or fails them; returns the warnings.
  std::vector<std::string> check_stalls(int64_t now_ns);

  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

 private:
  /// An operation that all members have agreed on before.
  struct Known {
    Response response;
    std::vector<Request> requests;  ///< by member where they differ between members, else empty
  };

  struct Pending {
    std::string key;
    uint64_t ordinal = 0;
    int32_t set = 0;
    uint32_t id = 0;  ///< all reports so far were this id; 0: `requests` holds them
    int count = 0;
    int first_rank = 0;
    std::vector<bool> reported;     ///< by member
    std::vector<Request> requests;  ///< [0] is the first one's; by member for kinds with sizes
    Request base;
    std::string error;
    ErrorCode error_code = ErrorCode::kMismatch;
    int64_t since_ns = 0;
    bool warned = false;
  };

  struct Joined {
    std::vector<bool> members;
    int count = 0;
    int last = -1;
  };

  using PendingMap = std::unordered_map<std::string, std::unique_ptr<Pending>>;

  void receive_request(int rank, const Request& request, int64_t now_ns);
  void refuse(int rank, const Request& request);
  void receive_ready(int rank, uint32_t id, int64_t now_ns);
  bool receive_ready(const std::vector<int>& ranks, uint32_t id, int64_t now_ns);
  void receive_join(int rank, const Request& request);
  void receive_shutdown(int rank, int64_t now_ns);
  void receive_flushed(int rank);

  Pending& pending_for(int rank, const Request& request, int64_t now_ns);
  uint64_t next_ordinal(int rank, const Request& request);
  void mark(Pending& pending, int rank);
  void report(Pending& pending, int rank);
  void expand(Pending& pending);
  void expand_reports(Pending& pending);
  void merge(Pending& pending, int rank, const Request& request);
  void complete_if_all(Pending& pending);
  bool is_joined(int32_t set, int member) const;
  void recheck_set(int32_t set);
  void finish_join(int32_t set);

  void fail(const Pending& pending, ErrorCode code, const std::string& why);
  void send_error(const std::vector<int>& ranks, const std::string& key, ErrorCode code,
                  const std::string& text);
  void fail_stalled(const Pending& pending, double seconds);
  std::string validate(const Pending& pending) const;
  std::string validate_set_change(const Request& request) const;
  Response respond(const Pending& pending) const;
  void apply_to_sets(Pending& pending);
  void remove_set(int32_t set);
  std::unique_ptr<Pending> take_ready(const std::function<bool(int32_t set)>& may_go);
  bool fits(const Pending& first, const Pending& next, int64_t bytes) const;
  int64_t bytes_of(const Pending& pending) const;
  const Request& base_of(const Pending& pending) const;
  const Known& known(uint32_t id) const;
  void append_item(std::string& out, Pending& pending);
  uint32_t remember(const Pending& pending, const Response& response);
  void flush();
  void send_chunk_bytes(int64_t bytes);
  void tune(const std::vector<std::unique_ptr<Pending>>& batch, int64_t bytes, int64_t now_ns);
  std::string missing_ranks(const Pending& pending) const;
  std::string host(int rank) const;

  int size_;
  EngineOptions options_;
  Send send_;
  Timeline* timeline_ = nullptr;
  std::unique_ptr<Autotuner> autotuner_;
  std::optional<ChunkPolicy> chunk_policy_;  ///< where the chunk is neither set nor tuned
  ProcessSets sets_;
  std::vector<int> everyone_;
  std::vector<std::map<int32_t, uint64_t>> ordinals_;  ///< of unnamed requests, by rank and set
  PendingMap pending_;
  int awaited_ = 0;  ///< pending ones rank 0 has submitted or has no part in
  int sets_without_zero_ = 0;
  std::deque<std::unique_ptr<Pending>> ready_;
  std::unordered_map<uint32_t, Known> known_;
  std::map<int32_t, Joined> joined_;
  uint32_t next_id_ = 1;
  uint32_t oldest_id_ = 1;  ///< ranks have forgotten, or are about to, all ids before it
  bool full_ = false;       ///< an operation found no room for its id
  int unflushed_ = 0;       ///< ranks that may still use forgotten ids
  bool ended_ = false;      ///< a rank has left
};

}  // namespace sirtaki
