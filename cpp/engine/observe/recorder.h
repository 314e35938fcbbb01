#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/awaited.h"
#include "engine/observe/message_log.h"
#include "engine/observe/tally.h"
#include "engine/requests/request.h"
#include "pairs/message.h"
#include "transport/memory/region.h"

namespace sirtaki {

/// The progress of an operation.
enum class Stage : uint8_t {
  kNone,       ///< there is no operation
  kSubmitted,  ///< as far as this rank knows, not yet by all ranks
  kAgreed,     ///< all ranks have submitted it, but others come first
  kUnderWay,
  kHandedOver,  ///< to the thread that launches it on an accelerator
  kDone,
  kFailed,
};
inline constexpr auto kStages = static_cast<int>(Stage::kFailed) + 1;

constexpr const char* name(Stage stage) {
  constexpr const char* kNames[kStages] = {
      "", "submitted", "agreed", "under way", "handed over", "done", "failed"};
  return kNames[static_cast<int>(stage)];
}

/// A flight recorder's entry for an operation, or for a message to or from another rank. Times are
/// on the monotonic clock, 0 for stages not reached.
struct Recorded {
  uint64_t number = 0;    ///< on its rank, counted from 1; 0 for messages
  uint64_t sequence = 0;  ///< of an ended message: among those from its source to its receiver
  const char* operation = "";
  std::string tensor;  ///< as users see it: `grad`; for a message `tag 5`
  Dtype dtype = Dtype::kU8;
  Stage stage = Stage::kNone;
  int32_t set = 0;
  uint64_t bytes = 0;
  int64_t submitted_ns = 0;
  int64_t agreed_ns = 0;
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;
  /// Only the first operation of a batch has it; a message also once it has ended.
  Awaited awaited;
  int64_t waits_since_ns = 0;

  bool is_open() const { return stage != Stage::kDone && stage != Stage::kFailed; }
  bool is_message() const { return number == 0; }
};

/// Records in shared memory what this rank's operations are doing, for others to read when it is
/// stuck, stopped or dead: the latest `Region::kRecords`, and those not yet done.
///
/// A record belongs to the operation that claimed it until that has ended. Only the submitting
/// thread, under the agreement's lock, claims; then only the thread that handles the operation
/// writes. Messages have no records of their own: they may end before one is written. The driver
/// records one of those for which it sleeps a second time.
class Recorder {
 public:
  /// 0: no record was free.
  using Number = uint64_t;

  Recorder(FlightRecord* records, RankTotals& totals) : records_(records), tally_(totals) {}

  Number submitted(const Request& request, uint64_t ordinal);
  void agreed(Number number) { note(number, Stage::kAgreed); }
  void begun(Number number) { note(number, Stage::kUnderWay); }
  void handed_over(Number number) { note(number, Stage::kHandedOver); }
  void ended(Number number, bool well) { note(number, well ? Stage::kDone : Stage::kFailed); }
  /// The operation waits; kNone: it continues.
  void waits(Number number, const Awaited& awaited, int64_t since_ns);

  /// The driver sleeps with this message pending; null: with none.
  void sleeps(const Transfer* message, int64_t now_ns);
  /// There is no pending message any more.
  void forget_message();

  /// From now on, and until it is turned off, times come from a more precise but slower clock.
  void be_precise(bool wanted) {
    precise_.store(wanted, std::memory_order_relaxed);
    messages_.be_on(wanted);
  }

  /// Records submitted from `next` on, and those of the operations in `open`.
  struct Drained {
    std::vector<FlightRecord::Words> ended;  ///< messages too, if it is precise
    std::vector<Number> open;
    Number next;
    uint64_t lost;  ///< messages
  };
  /// The operations that have ended by now; may be called often and from any thread.
  Drained drain(Number next, const std::vector<Number>& open);

  MessageLog& messages() { return messages_; }

  /// The record of an operation; for 0, of the message.
  FlightRecord::Words words_of(Number number) const;
  /// The record that a finished message would have.
  static FlightRecord::Words words_of(const Transfer& message, int64_t since_ns);

 private:
  FlightRecord& of(Number number) { return records_[number % Region::kRecords]; }
  void note(Number number, Stage stage);
  uint64_t time() const;

  FlightRecord* records_;
  Tally tally_;
  std::atomic<bool> precise_{false};
  MessageLog messages_;
  Number last_ = 0;
  const void* message_ = nullptr;  ///< owner of the message pending when the driver slept
  int64_t message_since_ns_ = 0;
  bool shows_message_ = false;
};

/// Decodes a record if it is possible; `ranks`: of the world.
std::optional<Recorded> decode(const FlightRecord::Words& words, int ranks);

/// The operations of a rank, oldest first: all that have not ended and the latest `most` others,
/// after the message that it waits for. Trusts nothing: leaves out what no rank writes.
std::vector<Recorded> read_records(const FlightRecord* records, int ranks, size_t most);

}  // namespace sirtaki
