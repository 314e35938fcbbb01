#include <array>
#include <memory>
#include <string>
#include <vector>

#include "collective_case.h"
#include "doctest/doctest.h"
#include "test_heap.h"

// Collectives of tensors that lie in shared heaps, wholly, in part or not at all.
namespace sirtaki {
namespace {

using testing::Bytes;
using testing::Case;
using testing::CaseMaker;
using testing::expect;
using testing::Member;
using testing::op_of;
using testing::TestHeap;

/// What of a member's memory lies in the heap.
enum class Place { kInside, kOutside, kMixed };

/// Memory for streams, of which each piece lies where it should.
class Placed {
 public:
  /// `sizes`: of the streams. Pieces are cut where `seed` says.
  Placed(const std::vector<Bytes>& streams, size_t element, Place place, uint32_t seed) {
    for (const Bytes& stream : streams) {
      streams_.emplace_back();
      std::minstd_rand random(++seed);
      for (size_t at = 0; at < stream.size();) {
        const size_t most = (stream.size() - at) / element;
        const size_t bytes = std::min<size_t>(most, 1 + random() % 60'000) * element;
        const bool inside = place == Place::kInside || (place == Place::kMixed && random() % 2);
        std::byte* data = inside ? TestHeap::get().allocate(bytes) : outside(bytes);
        std::memcpy(data, stream.data() + at, bytes);
        streams_.back().add(data, bytes);
        at += bytes;
      }
    }
  }

  const Streams& streams() const { return streams_; }
  std::vector<Bytes> bytes() const {
    std::vector<Bytes> all;
    for (const Segments& stream : streams_) {
      Bytes& bytes = all.emplace_back();
      for (const Segment& segment : stream.list()) {
        const auto* data = reinterpret_cast<const unsigned char*>(segment.data);
        bytes.insert(bytes.end(), data, data + segment.bytes);
      }
    }
    return all;
  }

 private:
  std::byte* outside(size_t bytes) {
    return outside_.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
  }

  Streams streams_;
  std::vector<std::unique_ptr<std::byte[]>> outside_;
};

/// Runs the collective as one member and compares every byte.
void run_placed(Member& rank, const Case& c, Place place) {
  const auto member = static_cast<size_t>(rank.rank);
  const size_t element = size_of(c.op.dtype);
  const auto seed = static_cast<uint32_t>(c.seed + member);
  const Placed in(c.in[member], element, place, seed);
  const std::vector<Bytes>& expected = c.expected[member];
  if (c.in_place) {
    rank.run(c.op, in.streams(), in.streams());
    expect(in.bytes() == expected, describe(c, member));
    return;
  }
  std::vector<Bytes> empty;
  for (const Bytes& stream : expected) empty.emplace_back(stream.size(), 0xee);
  const Placed out(empty, element, place, seed);
  rank.run(c.op, in.streams(), out.streams());
  expect(out.bytes() == expected, describe(c, member));
  expect(in.bytes() == c.in[member], "inputs stay as they are; " + describe(c, member));
}

/// The places of a world's members.
using Places = std::vector<Place>;

/// Bytes that each member says were moved directly.
uint64_t run_all(const std::vector<Case>& cases, const Places& places) {
  const int n = static_cast<int>(places.size());
  std::vector<uint64_t> moved(places.size());
  testing::run_members(
      n, testing::kSmallestChunk,
      [&](Member& member) {
        const auto index = static_cast<size_t>(member.rank);
        for (const Case& c : cases) run_placed(member, c, places[index]);
        moved[index] = member.heaps->moved();
      },
      TestHeap::get().own());
  TestHeap::get().clear();
  for (const uint64_t each : moved) CHECK(each == moved[0]);
  return moved[0];
}

/// Sanitizers look at how memory is used, which is the same for every dtype.
std::vector<Dtype> dtypes() {
  if (testing::kSanitized) return {Dtype::kBF16, Dtype::kI64};
  return {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kBool, Dtype::kI64};
}

bool may_be_in_place(Kind kind) { return kind == Kind::kAllreduce || kind == Kind::kBroadcast; }

/// Cases of one kind that are long enough for a handshake.
std::vector<Case> long_cases(Kind kind, int n) {
  // There, members give one another parts of a tensor.
  const bool in_parts = kind == Kind::kAlltoall || kind == Kind::kReducescatter;
  const size_t bytes = in_parts ? 1'200'000 / static_cast<size_t>(n) : 1'200'000;
  std::vector<Case> cases;
  uint32_t seed = static_cast<uint32_t>(n);
  for (const Dtype dtype : dtypes()) {
    const Op op = op_of(kind, dtype, static_cast<int>(++seed) % n);
    cases.push_back(CaseMaker(op, n, bytes / size_of(dtype), seed).make());
    if (!may_be_in_place(kind)) continue;
    cases.push_back(cases.back());
    cases.back().in_place = true;
  }
  return cases;
}

std::vector<int> worlds() {
  return testing::kSanitized ? std::vector{2, 3} : std::vector{2, 3, 4, 7};
}

TEST_CASE("collectives move what lies in shared heaps directly, with exact results" *
          doctest::test_suite("slow")) {
  for (const int n : worlds()) {
    for (const Kind kind : testing::kDataKinds) {
      CAPTURE(n);
      CAPTURE(static_cast<int>(kind));
      CHECK(run_all(long_cases(kind, n), Places(static_cast<size_t>(n), Place::kInside)) > 0);
    }
  }
}

TEST_CASE("collectives of tensors of which parts lie in shared heaps give exact results" *
          doctest::test_suite("slow")) {
  for (const int n : worlds()) {
    for (const Kind kind : testing::kDataKinds) {
      CAPTURE(n);
      CAPTURE(static_cast<int>(kind));
      run_all(long_cases(kind, n), Places(static_cast<size_t>(n), Place::kMixed));
    }
  }
}

/// Whether members write one another's results.
bool is_pushed(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kBroadcast;
}

TEST_CASE("a member whose tensors lie elsewhere gets exact results, as do the others" *
          doctest::test_suite("slow")) {
  for (const int n : worlds()) {
    for (const Kind kind : testing::kDataKinds) {
      CAPTURE(n);
      CAPTURE(static_cast<int>(kind));
      Places places(static_cast<size_t>(n), Place::kInside);
      places[1] = Place::kOutside;
      const uint64_t moved = run_all(long_cases(kind, n), places);
      if (is_pushed(kind)) CHECK(moved == 0);
    }
  }
}

TEST_CASE("nothing is moved directly where no tensor lies in a shared heap") {
  const int n = 3;
  for (const Kind kind : testing::kDataKinds) {
    CAPTURE(static_cast<int>(kind));
    CHECK(run_all(long_cases(kind, n), Places(n, Place::kOutside)) == 0);
  }
}

TEST_CASE("an allreduce moves every byte of what lies in shared heaps directly") {
  const Case c = CaseMaker(op_of(Kind::kAllreduce, Dtype::kF32), 3, 300'000, 1).make();
  CHECK(run_all({c}, Places(3, Place::kInside)) == 1'200'000);
}

TEST_CASE("small operations hold no handshake") {
  const Case c = CaseMaker(op_of(Kind::kAllreduce, Dtype::kF32), 2, 250'000, 1).make();
  CHECK(run_all({c}, Places(2, Place::kInside)) == 0);
}

TEST_CASE("every reduction and scale gives exact results in shared heaps" *
          doctest::test_suite(testing::kSlowSanitized)) {
  constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  constexpr std::array kScales = {Scale{}, Scale{0.3, 1.0}, Scale{1.0, 1.0 / 3}};
  std::vector<Case> cases;
  uint32_t seed = 0;
  for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReducescatter}) {
    for (const Dtype dtype : dtypes()) {
      for (const ReduceOp reduce : kOps) {
        const Op op = op_of(kind, dtype, 1, reduce, kScales[++seed % kScales.size()]);
        cases.push_back(CaseMaker(op, 2, 1'100'000 / size_of(dtype), seed).make());
      }
    }
  }
  CHECK(run_all(cases, Places(2, Place::kInside)) > 0);
}

TEST_CASE("a tensor of many millions of bytes is summed in turns" *
          doctest::test_suite(testing::kSlowSanitized)) {
  for (const int n : {2, 3}) {
    Case c = CaseMaker(op_of(Kind::kAllreduce, Dtype::kF32), n, 3'000'001, 1).make();
    c.in_place = true;
    CHECK(run_all({c}, Places(static_cast<size_t>(n), Place::kInside)) == 12'000'004);
  }
}

TEST_CASE("a tensor that reaches beyond its block takes the slots") {
  constexpr size_t kCount = 300'000;
  std::byte* const inside = TestHeap::get().allocate(kCount * 4);
  std::byte* const across = TestHeap::get().allocate(kCount * 2);
  testing::run_members(
      2, testing::kSmallestChunk,
      [&](Member& member) {
        std::byte* const data = member.rank == 0 ? across : inside;
        auto* values = reinterpret_cast<float*>(data);
        std::fill_n(values, kCount, 1.5f);
        Streams streams(1);
        streams[0].add(data, kCount * 4);
        member.run(op_of(Kind::kAllreduce, Dtype::kF32), streams, streams);
        expect(std::all_of(values, values + kCount, [](float v) { return v == 3.0f; }),
               "every element is summed");
        expect(member.heaps->moved() == 0, "nothing is moved directly");
      },
      TestHeap::get().own());
  TestHeap::get().clear();
}

TEST_CASE("more segments than members can tell of take the slots") {
  constexpr size_t kPieces = 10'000;
  testing::run_members(
      2, testing::kSmallestChunk,
      [&](Member& member) {
        std::vector<float> outside(kPieces * 32, 1.5f);
        auto* inside = reinterpret_cast<float*>(TestHeap::get().allocate(kPieces * 128));
        std::fill_n(inside, kPieces * 32, 1.5f);
        Streams streams(1);
        for (size_t i = 0; i < kPieces; ++i) {
          streams[0].add((i % 2 != 0 ? inside : outside.data()) + i * 32, 128);
        }
        member.run(op_of(Kind::kAllreduce, Dtype::kF32), streams, streams);
        for (size_t i = 0; i < kPieces * 32; ++i) {
          const float expected = 3.0f;
          expect((i / 32 % 2 != 0 ? inside : outside.data())[i] == expected, "all are summed");
        }
        expect(member.heaps->moved() == 0, "nothing is moved directly");
      },
      TestHeap::get().own());
  TestHeap::get().clear();
}

TEST_CASE("a world of which one rank has no heap takes the slots") {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  const Case c = CaseMaker(op_of(Kind::kAllreduce, Dtype::kF32), 2, 300'000, 1).make();
  testing::run_threads(
      2,
      [&](int r) {
        std::vector<HeapMemory> memory(2);
        memory[0].bytes = TestHeap::kSpan;  // as handed over by rank 0 alone
        PeerHeaps heaps(TestHeap::get().own(), r, std::move(memory));
        Endpoint endpoint(region, r, r, SpinPolicy{0, 0}, {}, &heaps);
        endpoint.doorbell.drive_as_caller(true);
        NativeBackend backend(endpoint, HostMap::single(2), {});
        const auto index = static_cast<size_t>(r);
        const Placed in(c.in[index], 4, Place::kInside, c.seed);
        testing::run_to_end(backend, endpoint.doorbell, c.op, in.streams(), in.streams(),
                            testing::kSmallestChunk);
        expect(in.bytes() == c.expected[index], describe(c, index));
        expect(heaps.moved() == 0, "nothing is moved directly");
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
  TestHeap::get().clear();
}

}  // namespace
}  // namespace sirtaki
