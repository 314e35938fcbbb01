#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/awaited.h"
#include "engine/observe/message_log.h"
#include "engine/requests/request.h"
#include "pairs/message.h"
#include "transport/memory/region.h"

namespace sirtaki {

/// How far an operation has come.
enum class Stage : uint8_t {
  kNone,       ///< there is none
  kSubmitted,  ///< not yet by all ranks, as far as this one knows
  kAgreed,     ///< all have, but others come first
  kUnderWay,
  kHandedOver,  ///< to who launches it on an accelerator
  kDone,
  kFailed,
};
inline constexpr auto kStages = static_cast<int>(Stage::kFailed) + 1;

constexpr const char* name(Stage stage) {
  constexpr const char* kNames[kStages] = {
      "", "submitted", "agreed", "under way", "handed over", "done", "failed"};
  return kNames[static_cast<int>(stage)];
}

/// What a flight recorder says of an operation, or of a message to or from another rank. Times are
/// on the monotonic clock, 0 where it has not come so far.
struct Recorded {
  uint64_t number = 0;    ///< on its rank, counted from 1; of messages 0
  uint64_t sequence = 0;  ///< of a message that is over: of those from its source to its receiver
  const char* operation = "";
  std::string tensor;  ///< as people see it: `grad`; of a message `tag 5`
  Dtype dtype = Dtype::kU8;
  Stage stage = Stage::kNone;
  int32_t set = 0;
  uint64_t bytes = 0;
  int64_t submitted_ns = 0;
  int64_t agreed_ns = 0;
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;
  /// Of a batch that runs as one only the first operation tells; of a message also once it is over.
  Awaited awaited;
  int64_t waits_since_ns = 0;

  bool is_open() const { return stage != Stage::kDone && stage != Stage::kFailed; }
  bool is_message() const { return number == 0; }
};

/// Writes down in shared memory what this rank's operations are doing, for others to read when it
/// is stuck, stopped or dead: the latest `Region::kRecords`, and those not yet done.
///
/// A record belongs to the operation that claimed it until that has ended. Only who submits, under
/// the agreement's lock, claims; then only whoever deals with the operation writes. Messages have
/// no records of their own: they may be over sooner than one is written. The driver writes down one
/// of those for which it sleeps for the second time.
class Recorder {
 public:
  /// 0: none was free.
  using Number = uint64_t;

  explicit Recorder(FlightRecord* records) : records_(records) {}

  Number submitted(const Request& request, uint64_t ordinal);
  void agreed(Number number) { note(number, Stage::kAgreed); }
  void begun(Number number) { note(number, Stage::kUnderWay); }
  void handed_over(Number number) { note(number, Stage::kHandedOver); }
  void ended(Number number, bool well) { note(number, well ? Stage::kDone : Stage::kFailed); }
  /// What is under way waits; kNone: it goes on.
  void waits(Number number, const Awaited& awaited, int64_t since_ns);

  /// The driver sleeps with this message pending; null: with none.
  void sleeps(const Transfer* message, int64_t now_ns);
  /// There is no message to be seen any more.
  void forget_message();

  /// From now on times are read from a clock that costs more, until told otherwise.
  void be_precise(bool wanted) {
    precise_.store(wanted, std::memory_order_relaxed);
    messages_.be_on(wanted);
  }

  /// Of what has been submitted from `next` on, and of the operations in `open`.
  struct Drained {
    std::vector<FlightRecord::Words> ended;  ///< messages too, where it is precise
    std::vector<Number> open;
    Number next;
    uint64_t lost;  ///< messages
  };
  /// What is over by now, to be asked for often; from any thread.
  Drained drain(Number next, const std::vector<Number>& open);

  MessageLog& messages() { return messages_; }

  /// What is written down of an operation; of 0 the message.
  FlightRecord::Words words_of(Number number) const;
  /// What is written down of a message, if that is done.
  static FlightRecord::Words words_of(const Transfer& message, int64_t since_ns);

 private:
  FlightRecord& of(Number number) { return records_[number % Region::kRecords]; }
  void note(Number number, Stage stage);
  uint64_t time() const;

  FlightRecord* records_;
  std::atomic<bool> precise_{false};
  MessageLog messages_;
  Number last_ = 0;
  const void* message_ = nullptr;  ///< whose the pending message was when the driver slept
  int64_t message_since_ns_ = 0;
  bool shows_message_ = false;
};

/// What a record says, if that can be; `ranks`: of the world.
std::optional<Recorded> decode(const FlightRecord::Words& words, int ranks);

/// The operations of a rank, oldest first: all that have not ended and the latest `most` others,
/// behind the message that it waits for. Believes nothing: what no rank writes is left out.
std::vector<Recorded> read_records(const FlightRecord* records, int ranks, size_t most);

}  // namespace sirtaki
