#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/agreement.h"
#include "engine/execution/executor.h"
#include "engine/execution/flight.h"
#include "engine/rank_context.h"
#include "pairs/pairs.h"

namespace sirtaki {

/// The work of this rank in progress: agreed batches, one in each track of the backend in their
/// order, and messages to and from single ranks. Only the driver uses it, except where noted.
class Runner final : Pairs::Listener {
 public:
  class Listener {
   public:
    /// It is the last batch's turn.
    virtual void close() = 0;

   protected:
    ~Listener() = default;
  };

  Runner(RankContext& context, Backend& backend, Agreement& agreement, Launches& launches,
         MakeNetwork make_network, Runner::Listener& listener);

  /// Adds a batch, under the agreement's lock.
  void add(Batch batch) {
    queue_.push_back(std::move(batch));
    held_up_ = false;  // its track may be free
  }
  Pairs& pairs() { return pairs_; }

  /// Continue what can continue; false if nothing could. Throw errors that end the world.
  bool advance_messages() { return pairs_.advance(); }
  bool advance_batches();
  /// Whether these would make progress.
  bool is_ready();
  /// Whether work is in progress that only a driver moves.
  bool busy() const { return !queue_.empty() || !flights_.empty() || pairs_.busy(); }
  /// Whether messages or requests came; `hears`: from `prepare_messages`. From any thread.
  bool has_news(uint32_t hears) const {
    return pairs_.has_posted() || (hears != 0 && pairs_.has_news());
  }
  /// The events that the driver may sleep for. Records the waits; throws if one takes too long.
  Sleep prepare(int64_t now_ns);
  /// The same for messages alone.
  uint32_t prepare_messages();

  /// The current work, described for users; empty: there is none.
  std::string describe() const;

  /// An operation has ended; from any thread.
  void complete(const Entry& entry, std::optional<Error> error);
  /// A transfer cannot begin; from any thread.
  void refuse(const Transfer& transfer, const Error& error) { end(transfer.owner, {}, error); }
  /// Ends all messages, and the batches that were dropped, with this error.
  void fail(const std::vector<Item>& dropped, const Error& error);
  /// Drops the batches, in progress or not begun, and returns their items: waits for threads that
  /// open connections.
  std::vector<Item> drop_batches();

 private:
  bool begin_some();
  bool may_begin(int track, const std::vector<int>& held) const;
  void begin(Batch batch, int track);
  void note_begun(Flight& flight);
  bool go_on(Flight& flight);
  void fail(Flight& flight, const Error& error);
  void done(Flight& flight, const std::optional<Error>& error);
  void complete(std::shared_ptr<Handle> handle, const std::optional<Error>& error);
  void end(const Item& item, const std::optional<Error>& error);
  void end(const std::shared_ptr<void>& owner, const Message& message,
           const std::optional<Error>& error) override;
  void invite(int rank) override { agreement_.invite(rank); }
  void note_waits(int64_t now_ns);
  void give_up_waiting(const std::string& what, const Awaited& awaited, int64_t now_ns) const;

  RankContext& context_;
  Agreement& agreement_;
  Runner::Listener& listener_;
  const int64_t data_timeout_ns_;
  Executor executor_;
  std::deque<Batch> queue_;  ///< not begun
  bool held_up_ = false;     ///< none of them can begin before work in progress is done
  std::vector<std::unique_ptr<Flight>> flights_;  ///< in progress, the oldest first
  Pairs pairs_;
};

}  // namespace sirtaki
