#include "engine/observe/recorder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/utf8.h"
#include "collectives/kinds.h"

namespace sirtaki {
namespace {

/// The words of a record.
enum Word : size_t {
  kNumber,
  kWhat,  ///< stage, kind or direction, dtype, length of the name, and in the upper half the set
  kBytes,
  kOrdinal,
  kTimes,  ///< of the stages from kSubmitted on; one of the last two for kDone and kFailed
  kWaits = kTimes + 4,  ///< phase, rank + 1, and in the upper half the chunk
  kSince,
  kName,
};
constexpr size_t kNameWords = FlightRecord::kWords - kName;
constexpr size_t kNameBytes = kNameWords * sizeof(uint64_t);

/// In place of the kind.
constexpr uint8_t kSend = 0xfe;
constexpr uint8_t kReceive = 0xff;

Stage stage_of(uint64_t what) { return static_cast<Stage>(what & 0xff); }

bool has_ended(uint64_t what) {
  return stage_of(what) == Stage::kNone || stage_of(what) >= Stage::kDone;
}

/// The name for users, unless it is empty.
std::string_view without_kind(const Request& request) {
  const std::string_view kind = traits_of(request.kind).name;
  std::string_view name = request.name;
  const bool prefixed =
      name.size() > kind.size() + 1 && name.starts_with(kind) && name[kind.size()] == '.';
  return prefixed ? name.substr(kind.size() + 1) : name;
}

Awaited awaited_in(uint64_t word, int ranks) {
  Awaited awaited;
  const auto phase = static_cast<int>(word & 0xff);
  const auto rank = static_cast<int>(word >> 8 & 0xffffff) - 1;
  if (phase == 0 || phase >= kPhases || rank >= ranks) return {};
  awaited.phase = static_cast<Phase>(phase);
  awaited.rank = rank;
  awaited.chunk = static_cast<uint32_t>(word >> 32);
  return awaited;
}

/// The word with a stage's time.
size_t time_of(Stage stage) {
  if (stage >= Stage::kDone) return kTimes + 3;
  return kTimes + std::min<size_t>(static_cast<size_t>(stage) - 1, 2);
}

uint64_t awaited_word(const Awaited& awaited) {
  return static_cast<uint64_t>(awaited.phase) | static_cast<uint64_t>(awaited.rank + 1) << 8 |
         static_cast<uint64_t>(awaited.chunk) << 32;
}

}  // namespace

std::optional<Recorded> decode(const FlightRecord::Words& words, int ranks) {
  Recorded found;
  const uint64_t what = words[kWhat];
  const auto kind = static_cast<uint8_t>(what >> 8);
  const auto dtype = static_cast<uint8_t>(what >> 16);
  const auto length = static_cast<uint8_t>(what >> 24);
  const bool message = kind >= kSend;
  found.stage = stage_of(what);
  if (found.stage == Stage::kNone || static_cast<int>(found.stage) >= kStages ||
      (!message && kind >= kKindCount) || dtype >= kDtypeCount || length > kNameBytes) {
    return std::nullopt;
  }
  found.number = message ? 0 : words[kNumber];
  found.dtype = static_cast<Dtype>(dtype);
  found.set = static_cast<int32_t>(what >> 32);
  found.bytes = words[kBytes];
  if (message) {
    found.operation = kind == kSend ? "send" : "receive";
    found.sequence = words[kName];
    found.tensor = "tag " + std::to_string(static_cast<int64_t>(words[kOrdinal]));
  } else {
    found.operation = traits_of(static_cast<Kind>(kind)).name;
    // Names are cut anywhere, and other processes can write to this memory.
    found.tensor = valid_utf8({reinterpret_cast<const char*>(&words[kName]), length}, true);
    if (length == 0) found.tensor = "noname." + std::to_string(words[kOrdinal]);
  }
  found.submitted_ns = static_cast<int64_t>(words[kTimes]);
  found.agreed_ns = static_cast<int64_t>(words[kTimes + 1]);
  found.begun_ns = static_cast<int64_t>(words[kTimes + 2]);
  found.ended_ns = static_cast<int64_t>(words[kTimes + 3]);
  if (found.stage == Stage::kUnderWay || message) {
    found.awaited = awaited_in(words[kWaits], ranks);
  }
  if (found.awaited.phase != Phase::kNone) {
    found.waits_since_ns = static_cast<int64_t>(words[kSince]);
  }
  return found;
}

uint64_t Recorder::time() const {
  return static_cast<uint64_t>(precise_.load(std::memory_order_relaxed) ? now_ns() : recent_ns());
}

Recorder::Number Recorder::submitted(const Request& request, uint64_t ordinal) {
  constexpr int kTries = 8;
  const auto bytes = static_cast<uint64_t>(bytes_of(request));
  const uint64_t now = time();
  tally_.submitted(request, bytes, static_cast<int64_t>(now));
  for (int i = 0; i < kTries; ++i) {
    FlightRecord& record = of(++last_);
    if (!has_ended(record.own(kWhat))) continue;
    FlightRecord::Words words{};
    const std::string_view name = without_kind(request);
    const size_t length = std::min(name.size(), kNameBytes);
    words[kNumber] = last_;
    words[kWhat] = static_cast<uint64_t>(Stage::kSubmitted) |
                   static_cast<uint64_t>(request.kind) << 8 |
                   static_cast<uint64_t>(request.dtype) << 16 | length << 24 |
                   static_cast<uint64_t>(static_cast<uint32_t>(request.set)) << 32;
    words[kBytes] = bytes;
    words[kOrdinal] = ordinal;
    words[kTimes] = now;
    std::memcpy(&words[kName], name.data(), length);
    record.write(0, words);
    tally_.waits(static_cast<int64_t>(now));
    return last_;
  }
  return 0;
}

void Recorder::note(Number number, Stage stage) {
  if (number == 0) return;
  FlightRecord& record = of(number);
  const uint64_t before = record.own(kWhat);
  const uint64_t now = time();
  if (stage_of(before) == Stage::kSubmitted) tally_.heard(static_cast<int64_t>(now));
  if (stage == Stage::kFailed) tally_.failed(before >> 8 & 0xff);
  const uint64_t what = (before & ~uint64_t{0xff}) | static_cast<uint64_t>(stage);
  record.write(kWhat, what, time_of(stage), now);
}

void Recorder::waits(Number number, const Awaited& awaited, int64_t since_ns) {
  if (number == 0) return;
  of(number).write(kWaits, std::array{awaited_word(awaited), static_cast<uint64_t>(since_ns)});
}

void Recorder::sleeps(const Transfer* message, int64_t now_ns) {
  const void* owner = message == nullptr ? nullptr : message->owner.get();
  if (owner != message_) {
    forget_message();
    message_ = owner;
    message_since_ns_ = now_ns;
  } else if (owner != nullptr && !shows_message_) {
    records_[Region::kMessageRecord].write(0, words_of(*message, message_since_ns_));
    shows_message_ = true;
  }
}

void Recorder::forget_message() {
  message_ = nullptr;
  if (!shows_message_) return;
  records_[Region::kMessageRecord].write(0, FlightRecord::Words{});
  shows_message_ = false;
}

Recorder::Drained Recorder::drain(Number next, const std::vector<Number>& open) {
  Drained found{{}, {}, next, 0};
  FlightRecord::Words words;
  for (size_t i = 0; i < Region::kRecords; ++i) {
    const Number seen = records_[i].own(kNumber);  // most are old, and not worth reading completely
    if (seen < next && std::find(open.begin(), open.end(), seen) == open.end()) continue;
    if (!records_[i].read(words) || words[kNumber] == 0) continue;
    if (has_ended(words[kWhat])) {
      found.ended.push_back(words);
    } else {
      found.open.push_back(words[kNumber]);
    }
    found.next = std::max(found.next, words[kNumber] + 1);
  }
  found.lost = messages_.take(found.ended);
  return found;
}

FlightRecord::Words Recorder::words_of(Number number) const {
  FlightRecord::Words words{};
  const size_t at = number == 0 ? Region::kMessageRecord : number % Region::kRecords;
  for (size_t i = 0; i < words.size(); ++i) words[i] = records_[at].own(i);
  return number == 0 || words[kNumber] == number ? words : FlightRecord::Words{};
}

FlightRecord::Words Recorder::words_of(const Transfer& message, int64_t since_ns) {
  FlightRecord::Words words{};
  words[kWhat] = static_cast<uint64_t>(Stage::kUnderWay) |
                 static_cast<uint64_t>(message.sends ? kSend : kReceive) << 8 |
                 static_cast<uint64_t>(set_of(message.communicator)) << 32;
  words[kBytes] = message.bytes;
  words[kOrdinal] = static_cast<uint64_t>(message.tag);
  words[kWaits] = awaited_word({message.sends ? Phase::kTake : Phase::kSend, message.peer});
  words[kTimes] = words[kTimes + 1] = words[kTimes + 2] = words[kSince] =
      static_cast<uint64_t>(since_ns);
  return words;
}

// ---- Messages ----

std::unique_ptr<MessageLog::Words> MessageLog::words_of(Transfer& transfer) {
  auto words = std::make_unique<Words>(Recorder::words_of(transfer, now_ns()));
  transfer.number = &(*words)[kName];
  return words;
}

void MessageLog::ended(Words words, const Message& message, bool well) {
  const Stage stage = well ? Stage::kDone : Stage::kFailed;
  words[kWhat] = (words[kWhat] & ~uint64_t{0xff}) | static_cast<uint64_t>(stage);
  words[time_of(stage)] = static_cast<uint64_t>(now_ns());
  if (message.source != kAnySource) {
    words[kBytes] = message.bytes;
    words[kOrdinal] = static_cast<uint64_t>(message.tag);
    words[kWaits] = awaited_word({Phase::kSend, message.source});
    words[kName] = message.number;
  }
  const std::lock_guard lock(mutex_);
  if (ended_.size() < kMost) {
    ended_.push_back(words);
  } else {
    ++lost_;
  }
}

uint64_t MessageLog::take(std::vector<Words>& found) {
  const std::lock_guard lock(mutex_);
  found.insert(found.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return std::exchange(lost_, 0);
}

std::vector<Recorded> read_records(const FlightRecord* records, int ranks, size_t most) {
  std::vector<Recorded> found;
  std::vector<std::pair<Recorder::Number, size_t>> ended;  // few of them are decoded
  FlightRecord::Words words;
  for (size_t i = 0; i <= Region::kMessageRecord; ++i) {
    if (!records[i].read(words)) continue;
    if (has_ended(words[kWhat])) {
      ended.emplace_back(words[kNumber], i);
    } else if (auto one = decode(words, ranks)) {
      found.push_back(std::move(*one));
    }
  }
  std::make_heap(ended.begin(), ended.end());
  for (size_t left = most; left > 0 && !ended.empty(); ended.pop_back()) {
    std::pop_heap(ended.begin(), ended.end());
    if (!records[ended.back().second].read(words)) continue;
    if (auto one = decode(words, ranks)) {
      found.push_back(std::move(*one));
      --left;
    }
  }
  std::ranges::sort(found, {}, &Recorded::number);
  return found;
}

}  // namespace sirtaki
