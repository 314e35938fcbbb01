#pragma once

#include <cstdint>
#include <deque>
#include <functional>
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

/// What this rank has under way: batches that were agreed on, one in each track of the backend in
/// the order in which they came, and messages to and from single ranks. The driver's, but for what
/// says otherwise.
class Runner {
 public:
  /// `closed` is called when the last batch's turn has come.
  Runner(RankContext& context, Backend& backend, Agreement& agreement, Launches& launches,
         MakeNetwork make_network, std::function<void()> closed);

  /// Batches, under the agreement's lock.
  void add(Batch batch) {
    queue_.push_back(std::move(batch));
    held_up_ = false;  // its track may be free
  }
  Pairs& pairs() { return pairs_; }

  /// Go on with what can; false if that was nothing. Throw what ends the world.
  bool advance_messages() { return pairs_.advance(); }
  bool advance_batches();
  /// Whether these would get something further.
  bool is_ready();
  /// Something is under way that only a driver moves.
  bool busy() const { return !queue_.empty() || !flights_.empty() || pairs_.busy(); }
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
  /// Drops the batches, in the middle or not begun, and returns what they are of: waits for threads
  /// that open connections.
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
           const std::optional<Error>& error);
  void note_waits(int64_t now_ns);
  void require_progress(Flight& flight, int64_t now_ns) const;
  void give_up_waiting(const std::string& what, const Awaited& awaited, int64_t now_ns) const;

  RankContext& context_;
  Agreement& agreement_;
  const std::function<void()> closed_;
  const int64_t data_timeout_ns_;
  Executor executor_;
  std::deque<Batch> queue_;  ///< not begun
  bool held_up_ = false;     ///< none of them can begin before something under way is done
  std::vector<std::unique_ptr<Flight>> flights_;  ///< under way, the oldest first
  Pairs pairs_;
};

}  // namespace sirtaki
