#include "engine/observe/recorder.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "base/clock.h"
#include "engine/observe/rank_state.h"
#include "requests.h"

// What a rank writes down of its operations, and what others make of it.
namespace sirtaki {
namespace {

using testing::named;
using testing::sum_of;

constexpr int kWorld = 8;
constexpr int64_t kSecond = 1'000'000'000;

struct Records {
  std::shared_ptr<Region> region = Region::anonymous(2);
  FlightRecord* own = region->records(0);
  Recorder recorder{own, region->rank(0).totals};

  std::vector<Recorded> read(size_t most = 16) const { return read_records(own, kWorld, most); }
  std::string state(int64_t now_ns) const {
    return text_of(state_of(*region, HostMap::single(2), 0, now_ns));
  }
};

std::string shown(const Recorded& one) {
  return sirtaki::shown(one.operation, one.tensor, one.awaited.rank);
}

TEST_CASE("an operation is read as it was written, through all its stages") {
  Records records;
  CHECK(records.read().empty());
  Request request = named(Kind::kAllgather, "allgather.parts", {3, 5});
  request.dtype = Dtype::kF64;
  request.set = 7;
  const auto number = records.recorder.submitted(request, 0);
  REQUIRE(records.read().size() == 1);
  Recorded found = records.read()[0];
  CHECK(found.number == number);
  CHECK(found.operation == std::string("allgather"));
  CHECK(found.tensor == "parts");
  CHECK(found.dtype == Dtype::kF64);
  CHECK(found.set == 7);
  CHECK(found.bytes == 120);
  CHECK(shown(found) == "allgather 'parts'");
  CHECK(found.stage == Stage::kSubmitted);
  CHECK(found.submitted_ns > 0);
  CHECK(found.agreed_ns == 0);
  records.recorder.agreed(number);
  CHECK(records.read()[0].stage == Stage::kAgreed);
  records.recorder.begun(number);
  found = records.read()[0];
  CHECK(found.stage == Stage::kUnderWay);
  CHECK(found.awaited == Awaited{});
  CHECK(found.submitted_ns <= found.agreed_ns);
  CHECK(found.agreed_ns <= found.begun_ns);
  CHECK(found.ended_ns == 0);
  const Awaited awaited{Phase::kRead, 5, Awaited::kNobody, 17};
  records.recorder.waits(number, awaited, 42);
  found = records.read()[0];
  CHECK(found.awaited == awaited);
  CHECK(found.waits_since_ns == 42);
  records.recorder.waits(number, {}, 0);
  CHECK(records.read()[0].awaited == Awaited{});
  records.recorder.ended(number, true);
  found = records.read()[0];
  CHECK(found.stage == Stage::kDone);
  CHECK(found.begun_ns <= found.ended_ns);
}

TEST_CASE("what has ended is drained once, and what is open later") {
  Records records;
  const auto submit = [&](const char* name) {
    return records.recorder.submitted(named(Kind::kAllreduce, name, {1}), 0);
  };
  records.recorder.ended(submit("early"), true);
  Recorder::Drained drained = records.recorder.drain(0, {});
  CHECK(drained.ended.size() == 1);
  const auto slow = submit("slow");
  records.recorder.ended(submit("quick"), false);
  drained = records.recorder.drain(drained.next, drained.open);
  REQUIRE(drained.ended.size() == 1);
  CHECK(decode(drained.ended[0], kWorld)->tensor == "quick");
  CHECK(decode(drained.ended[0], kWorld)->stage == Stage::kFailed);
  CHECK(drained.open == std::vector<Recorder::Number>{slow});
  records.recorder.ended(slow, true);
  drained = records.recorder.drain(drained.next, drained.open);
  REQUIRE(drained.ended.size() == 1);
  CHECK(decode(drained.ended[0], kWorld)->tensor == "slow");
  CHECK(drained.open.empty());
  CHECK(records.recorder.drain(drained.next, drained.open).ended.empty());
}

TEST_CASE("times are precise where that is wanted") {
  Records records;
  records.recorder.be_precise(true);
  const int64_t before = now_ns();
  const auto number = records.recorder.submitted(named(Kind::kAllreduce, "grad", {1}), 0);
  records.recorder.agreed(number);
  const Recorded found = records.read()[0];
  CHECK(before <= found.submitted_ns);
  CHECK(found.submitted_ns <= found.agreed_ns);
  CHECK(found.agreed_ns <= now_ns());
}

TEST_CASE("a long name is cut where a character ends") {
  Records records;
  std::string name(39, 'x');
  records.recorder.submitted(sum_of(name + "\u00e9t\u00e9"), 0);
  records.recorder.submitted(sum_of("\u00e9t\u00e9"), 0);
  records.recorder.submitted(sum_of(""), 9);
  CHECK(shown(records.read()[0]) == "allreduce '" + name + "?'");
  CHECK(shown(records.read()[1]) == "allreduce '\u00e9t\u00e9'");
  CHECK(shown(records.read()[2]) == "allreduce 'noname.9'");
}

TEST_CASE("the latest operations are remembered, and all that have not ended") {
  Records records;
  const auto stuck = records.recorder.submitted(sum_of("stuck"), 0);
  const size_t many = 2 * Region::kRecords + 100;
  for (size_t i = 0; i < many; ++i) {
    records.recorder.ended(records.recorder.submitted(sum_of(std::to_string(i)), 0), i % 2 == 0);
  }
  const auto all = records.read(SIZE_MAX);
  REQUIRE(all.size() == Region::kRecords);
  CHECK(all[0].number == stuck);
  CHECK(shown(all[0]) == "allreduce 'stuck'");
  CHECK(shown(all.back()) == "allreduce '" + std::to_string(many - 1) + "'");
  CHECK(all.back().stage == Stage::kFailed);
  for (size_t i = 2; i < all.size(); ++i) CHECK(all[i - 1].number < all[i].number);
  const auto few = records.read(3);
  REQUIRE(few.size() == 4);
  CHECK(few[0].number == stuck);
  CHECK(few[1].number == all[all.size() - 3].number);
}

TEST_CASE("more open operations than there are records are not written down") {
  Records records;
  for (size_t i = 0; i < Region::kRecords; ++i) CHECK(records.recorder.submitted({}, i) != 0);
  const auto none = records.recorder.submitted(sum_of("one more"), 0);
  CHECK(none == 0);
  records.recorder.begun(none);
  records.recorder.ended(none, true);
  CHECK(records.read(SIZE_MAX).size() == Region::kRecords);
  CHECK(records.read(SIZE_MAX).back().stage == Stage::kSubmitted);
}

TEST_CASE("who reads while a rank writes sees each operation whole or not at all") {
  Records records;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 1; !stop; ++i) {
      const int64_t count = i % 1000;
      const auto number = records.recorder.submitted(sum_of(std::to_string(count), {count}), 0);
      records.recorder.begun(number);
      records.recorder.waits(number, {Phase::kWrite, 1, Awaited::kNobody, 7}, 77);
      records.recorder.ended(number, true);
    }
  });
  size_t seen = 0;
  bool whole = true;
  while (seen < 10'000) {
    for (const Recorded& one : records.read(64)) {
      ++seen;
      whole &= shown(one) == "allreduce '" + std::to_string(one.bytes / 4) + "'";
      whole &= one.awaited == Awaited{} || one.waits_since_ns == 77;
    }
  }
  stop = true;
  writer.join();
  CHECK(whole);
}

TEST_CASE("memory that lies is never believed") {
  Records records;
  std::minstd_rand random(1);
  auto* bytes = reinterpret_cast<unsigned char*>(records.own);
  size_t found = 0;
  bool sane = true;
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < Region::kRecords * sizeof(FlightRecord); ++i) {
      bytes[i] = static_cast<unsigned char>(random() >> 8);
      // Half of the records look as if they were written.
      if (i % sizeof(FlightRecord) == 0) bytes[i] &= 0xfe;
      if (i % sizeof(FlightRecord) == 16) bytes[i] %= kStages;
      if (i % sizeof(FlightRecord) == 17) bytes[i] %= 20;
      if (i % sizeof(FlightRecord) == 18) bytes[i] %= kDtypeCount + 2;
      if (i % sizeof(FlightRecord) == 19) bytes[i] %= 45;
    }
    for (const Recorded& one : records.read(SIZE_MAX)) {
      ++found;
      sane &= static_cast<int>(one.stage) < kStages && one.operation != nullptr;
      sane &= static_cast<int>(one.dtype) < kDtypeCount;
      sane &= one.awaited.rank >= -1 && one.awaited.rank < kWorld;
      for (const char c : shown(one)) sane &= static_cast<unsigned char>(c) >= ' ';
    }
    CHECK(records.state(kSecond).size() < 400);
  }
  CHECK(sane);
  CHECK(found > 1000);
}

TEST_CASE("a rank that was killed while it wrote hides one operation alone") {
  Records records;
  records.recorder.submitted(sum_of("before"), 0);
  const auto torn = records.recorder.submitted(sum_of("torn"), 0);
  records.recorder.submitted(sum_of("behind"), 0);
  *reinterpret_cast<uint64_t*>(records.own + torn) |= 1;  // its version
  REQUIRE(records.read().size() == 2);
  CHECK(shown(records.read()[0]) == "allreduce 'before'");
  CHECK(shown(records.read()[1]) == "allreduce 'behind'");
}

TEST_CASE("a rank's state is told in words") {
  Records records;
  Recorder& recorder = records.recorder;
  CHECK(records.state(0) == "in no operation yet");
  const auto first = recorder.submitted(sum_of("a"), 0);
  const int64_t then = records.read()[0].submitted_ns;
  CHECK(records.state(then + 3 * kSecond) ==
        "waiting with allreduce 'a', submitted 3.0 s ago, for other ranks");
  recorder.agreed(first);
  CHECK(records.state(records.read()[0].agreed_ns + kSecond) ==
        "about to begin allreduce 'a' for 1.0 s");
  recorder.begun(first);
  CHECK(records.state(records.read()[0].begun_ns + 12 * kSecond) == "in allreduce 'a' for 12 s");
  recorder.waits(first, {Phase::kWrite, 1, 1, 3}, kSecond);
  CHECK(records.state(3 * kSecond) ==
        "in allreduce 'a', waiting 2.0 s for rank 1 to write chunk 3");
  recorder.waits(first, {Phase::kSend, 1}, kSecond);
  const auto second = recorder.submitted(sum_of("b"), 0);
  CHECK(records.state(3 * kSecond) ==
        "in allreduce 'a', waiting 2.0 s for rank 1 to send its part (1 more open)");
  recorder.ended(second, false);
  recorder.ended(first, true);
  CHECK(records.state(records.read()[1].ended_ns + kSecond) ==
        "in no operation; the last one, allreduce 'b', ended 1.0 s ago");
  records.region->rank(0).bye.store(1);
  CHECK(records.state(0) == "gone from the world");
}

TEST_CASE("a rank's state is data, which another host reads as it was") {
  Records records;
  const HostMap hosts = HostMap::single(2);
  records.recorder.ended(records.recorder.submitted(sum_of("before"), 0), true);
  const auto number = records.recorder.submitted(sum_of("a"), 0);
  records.recorder.begun(number);
  records.recorder.waits(number, {Phase::kWrite, 1, 1, 3}, kSecond);
  const RankState state = state_of(*records.region, hosts, 0, 3 * kSecond);
  std::string bytes;
  Writer out(bytes);
  out(state);
  Reader in(bytes);
  const RankState read = RankState::decode(in, 2);
  CHECK(read.rank == 0);
  CHECK(read.stage == Stage::kUnderWay);
  CHECK(read.operation == "allreduce");
  CHECK(read.tensor == "a");
  CHECK(read.phase == Phase::kWrite);
  CHECK(read.peer == 1);
  CHECK(read.chunk == 3);
  CHECK(read.seconds == 2);
  CHECK(read.open == 1);
  CHECK(read.completed == 1);
  CHECK(text_of(read) == records.state(3 * kSecond));
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string lie = bytes;
    lie[at] = '\x7f';
    Reader lies(lie);
    try {
      const RankState found = RankState::decode(lies, 2);
      CHECK((found.rank >= 0 && found.rank < 2 && found.peer >= -1 && found.peer < 2));
    } catch (const Error& error) {
      CHECK(error.scope == Scope::kWorld);
    }
  }
}

TEST_CASE("a message is written down when its driver sleeps for it again") {
  Records records;
  Transfer receive;
  receive.peer = 1;
  receive.tag = 7;
  receive.owner = std::make_shared<int>(0);
  records.recorder.sleeps(&receive, kSecond);
  CHECK(records.read().empty());
  records.recorder.sleeps(&receive, 2 * kSecond);
  REQUIRE(records.read().size() == 1);
  CHECK(records.read()[0].is_message());
  CHECK(records.state(4 * kSecond) ==
        "in receive from rank 1 with tag 7, waiting 3.0 s for rank 1 to send its part");
  CHECK(state_of(*records.region, HostMap::single(2), 0, kSecond).completed == 0);
  records.recorder.forget_message();
  CHECK(records.read().empty());
}

TEST_CASE("what was handed to an accelerator is open until that is launched") {
  Records records;
  const auto number = records.recorder.submitted(sum_of("a"), 0);
  records.recorder.begun(number);
  records.recorder.handed_over(number);
  const Recorded found = records.read()[0];
  CHECK(found.is_open());
  CHECK(found.ended_ns == 0);
  CHECK(records.state(found.begun_ns + kSecond) ==
        "in allreduce 'a', handed to its accelerator 1.0 s ago");
  records.recorder.ended(number, true);
  CHECK_FALSE(records.read()[0].is_open());
}

}  // namespace
}  // namespace sirtaki
