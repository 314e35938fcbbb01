#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/awaited.h"
#include "engine/requests/request.h"
#include "transport/memory/region.h"

namespace sirtaki {

/// How far an operation has come.
enum class Stage : uint8_t {
  kNone,       ///< there is none
  kSubmitted,  ///< not yet by all ranks, as far as this one knows
  kAgreed,     ///< all have, but others come first
  kUnderWay,
  kDone,
  kFailed,
};
inline constexpr auto kStages = static_cast<int>(Stage::kFailed) + 1;

constexpr const char* name(Stage stage) {
  constexpr const char* kNames[kStages] = {"",          "submitted", "agreed",
                                           "under way", "done",      "failed"};
  return kNames[static_cast<int>(stage)];
}

/// What a flight recorder says of an operation. Times are on the monotonic clock, 0 where it has
/// not come so far.
struct Recorded {
  uint64_t number = 0;  ///< on its rank, counted from 1
  Kind kind = Kind::kBarrier;
  Dtype dtype = Dtype::kU8;
  Stage stage = Stage::kNone;
  int32_t set = 0;
  uint64_t bytes = 0;
  std::string shown;  ///< as people see it: `allreduce 'grad'`
  int64_t submitted_ns = 0;
  int64_t agreed_ns = 0;
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;
  Awaited awaited;  ///< of a batch that runs as one only the first operation tells
  int64_t waits_since_ns = 0;

  bool is_open() const { return stage != Stage::kDone && stage != Stage::kFailed; }
};

/// Writes down in shared memory what this rank's operations are doing, for others to read when it
/// is stuck, stopped or dead: the latest `Region::kRecords`, and those not yet done.
///
/// A record belongs to the operation that claimed it until that has ended. Only who submits, under
/// the engine's lock, claims; then only whoever deals with the operation writes.
class Recorder {
 public:
  /// 0: none was free.
  using Number = uint64_t;

  explicit Recorder(FlightRecord* records) : records_(records) {}

  Number submitted(const Request& request, uint64_t ordinal);
  void agreed(Number number) { note(number, Stage::kAgreed); }
  void begun(Number number) { note(number, Stage::kUnderWay); }
  void ended(Number number, bool well) { note(number, well ? Stage::kDone : Stage::kFailed); }
  /// What is under way waits; kNone: it goes on.
  void waits(Number number, const Awaited& awaited, int64_t since_ns);

 private:
  FlightRecord& of(Number number) { return records_[number % Region::kRecords]; }
  void note(Number number, Stage stage);

  FlightRecord* records_;
  Number last_ = 0;
};

/// The operations of a rank, oldest first: all that have not ended and the latest `most` others.
/// Believes nothing: what no rank writes is left out. `ranks`: of the world.
std::vector<Recorded> read_records(const FlightRecord* records, int ranks, size_t most);

}  // namespace sirtaki
