#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/execution/callbacks.h"
#include "engine/execution/executor.h"
#include "engine/execution/runner.h"
#include "engine/observe/recorder.h"
#include "engine/observe/timeline.h"
#include "engine/rank_context.h"
#include "pairs/pairs.h"

namespace sirtaki {

/// What this rank has under way: batches that were agreed on, and messages to and from single
/// ranks. The driver's, but for what says otherwise.
class Execution {
 public:
  struct Events {
    /// Process sets have changed on all ranks.
    std::function<void(const Request& change)> sets_changed;
    /// A batch is done here.
    std::function<void(const Flight&)> done;
    /// The last batch's turn has come.
    std::function<void()> closed;
    /// A rank of another host is to connect.
    std::function<void(int rank)> invite;
  };

  /// `sets` are those that this rank knows, at any time.
  Execution(RankContext& context, Backend& backend, const ProcessSets& sets, Launches& launches,
            Recorder& recorder, CurrentTimeline& timeline, Callbacks& callbacks,
            MakeNetwork make_network, Events events);

  /// Batches, under the agreement's lock.
  void add(Batch batch) { runner_.add(std::move(batch)); }
  Pairs& pairs() { return pairs_; }

  /// Go on with what can; false if that was nothing. Throw what ends the world.
  bool advance_messages() { return pairs_.advance(); }
  bool advance_batches() { return runner_.advance(); }
  /// Whether these would get something further.
  bool is_ready() { return runner_.is_ready() || pairs_.is_ready(); }
  /// Something is under way that only a driver moves.
  bool busy() const { return !runner_.idle() || pairs_.busy(); }
  /// Something has come or was asked for; `hears`: what `prepare_messages` said. From any thread.
  bool has_news(uint32_t hears) const {
    return pairs_.has_posted() || (hears != 0 && pairs_.has_news());
  }
  /// What the driver may sleep for. Notes what is waited for; throws where that takes too long.
  Sleep prepare(int64_t now_ns);
  /// The same of messages alone.
  uint32_t prepare_messages();

  /// What is going on, for people; empty: nothing.
  std::string describe() const;

  /// An operation has ended; from any thread.
  void complete(const Entry& entry, std::optional<Error> error);
  /// This transfer cannot be begun; from any thread.
  void refuse(const Transfer& transfer, const Error& error) { end(transfer.owner, {}, error); }
  /// Ends all messages, and the batches that were dropped, for this reason.
  void fail(const std::vector<Item>& dropped, const Error& error);
  /// Drops the batches: waits for threads that open connections.
  std::vector<Item> drop_batches() { return runner_.drop(); }

 private:
  Runner::Events runner_events();
  Pairs::Events pairs_events();
  void complete(std::shared_ptr<Handle> handle, const std::optional<Error>& error);
  void begun(Flight& flight);
  void goes_on(Flight& flight);
  void done(Flight& flight, const std::optional<Error>& error);
  void end(const Item& item, const std::optional<Error>& error);
  void end(const std::shared_ptr<void>& owner, const Message& message,
           const std::optional<Error>& error);
  void note_waits(int64_t now_ns);
  void require_progress(Flight& flight, int64_t now_ns) const;
  void require_messages_progress(int64_t now_ns);
  void give_up_waiting(const std::string& what, const Awaited& awaited, int64_t now_ns) const;

  RankContext& context_;
  Recorder& recorder_;
  CurrentTimeline& timeline_;
  Callbacks& callbacks_;
  const Events events_;
  const int64_t data_timeout_ns_;
  Executor executor_;
  Runner runner_;
  Pairs pairs_;
};

}  // namespace sirtaki
