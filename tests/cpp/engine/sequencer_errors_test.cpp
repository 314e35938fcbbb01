#include <functional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "sequencer_fleet.h"
#include "transport/memory/region.h"

// Mismatches, joins and process sets.
namespace sirtaki {
namespace {

using testing::add_set;
using testing::Client;
using testing::contains;
using testing::Fleet;
using testing::in_set;
using testing::join_of;
using testing::launched;
using testing::named;
using testing::remove_set;
using testing::rounding;
using testing::sum_of;
using Names = std::vector<std::string>;

// ---- Mismatches ----

struct Disagreement {
  const char* what;
  Request base;
  std::function<void(Request&)> change;
  const char* first;   ///< what the message says of rank 0
  const char* second;  ///< and of rank 1
};

std::vector<Disagreement> disagreements() {
  return {
      {"data types", sum_of("x"), [](Request& r) { r.dtype = Dtype::kI8; }, "rank 0 has float32",
       "rank 1 has int8"},
      {"devices", sum_of("x"), [](Request& r) { r.device = 1; }, "rank 0 has a CPU tensor",
       "rank 1 has a GPU tensor"},
      {"tensor shapes", sum_of("x"), [](Request& r) { r.shapes = {{4, 1}}; }, "rank 0 has [4]",
       "rank 1 has [4, 1]"},
      {"numbers of tensors", sum_of("x"), [](Request& r) { r.shapes = {{4}, {4}}; }, "rank 0 has 1",
       "rank 1 has 2"},
      {"reduce operations", sum_of("x"), [](Request& r) { r.reduce = ReduceOp::kMax; },
       "rank 0 has Sum", "rank 1 has Max"},
      {"reduce operations", sum_of("x"), [](Request& r) { r.reduce = ReduceOp::kBitXor; },
       "rank 0 has Sum", "rank 1 has BitXor"},
      {"scale factors", sum_of("x"), [](Request& r) { r.scale.pre = 0.5; },
       "rank 0 has prescale 1.0", "rank 1 has prescale 0.5"},
      {"scale factors", named(Kind::kReducescatter, "x"), [](Request& r) { r.scale.post = 0.5; },
       "rank 0 has prescale 1.0", "postscale 0.5"},
      {"root ranks", named(Kind::kBroadcast, "x"), [](Request& r) { r.root = 1; }, "rank 0 has 0",
       "rank 1 has 1"},
      {"codecs", sum_of("x"), [](Request& r) { r.codec = CodecId::kBF16; }, "rank 0 has none",
       "rank 1 has bfloat16"},
      {"operations", sum_of("x"), [](Request& r) { r.kind = Kind::kAllgather; },
       "rank 0 has allreduce", "rank 1 has allgather"},
      {"tensor shapes (only the first dimension may differ)", named(Kind::kAllgather, "x", {2, 3}),
       [](Request& r) { r.shapes = {{2, 4}}; }, "rank 0 has [2, 3]", "rank 1 has [2, 4]"},
      {"tensor shapes (only the first dimension may differ)", named(Kind::kAlltoall, "x", {2, 3}),
       [](Request& r) { r.shapes = {{2, 3, 1}}; }, "rank 0 has [*, 3]", "rank 1 has [*, 3, 1]"},
      {"tensor shapes", named(Kind::kReducescatter, "x", {2, 3}),
       [](Request& r) { r.shapes = {{3, 3}}; }, "rank 0 has [2, 3]", "rank 1 has [3, 3]"},
      {"tensor shapes", named(Kind::kScatter, "x", {2, 3}), [](Request& r) { r.shapes = {{3, 3}}; },
       "rank 0 has [2, 3]", "rank 1 has [3, 3]"},
      {"lists of ranks", add_set({0}), [](Request& r) { r.splits = {1}; }, "rank 0 has [0]",
       "rank 1 has [1]"},
  };
}

TEST_CASE("every kind of disagreement fails on all ranks with what each of two had") {
  for (const Disagreement& d : disagreements()) {
    CAPTURE(d.what);
    CAPTURE(d.second);
    Fleet fleet(3);
    Request other = d.base;
    d.change(other);
    fleet.submit(0, d.base);
    fleet.submit(1, other);
    fleet.submit(2, d.base);
    fleet.settle();
    for (const Client& c : fleet.clients) {
      CHECK(c.batches.empty());
      REQUIRE(c.errors.size() == 1);
      CHECK(c.codes[0] == ErrorCode::kMismatch);
      CHECK(contains(c.errors[0], std::string("different ") + d.what));
      CHECK(contains(c.errors[0], "'" + d.base.name + "'"));
      CHECK(contains(c.errors[0], d.first));
      CHECK(contains(c.errors[0], d.second));
      CHECK(c.negotiation.waiting() == 0);
    }
    // The world goes on, also with the same name.
    fleet.submit_everywhere(sum_of(d.base.name));
    fleet.settle();
    CHECK(fleet.client(2).batches.size() == 1);
  }
}

TEST_CASE("what does not matter for a kind may differ") {
  Request other = named(Kind::kAllgather, "x", {3});
  other.root = 1;
  other.reduce = ReduceOp::kMax;
  Fleet fleet(2);
  fleet.submit(0, named(Kind::kAllgather, "x", {5}));
  fleet.submit(1, other);
  fleet.settle();
  CHECK(fleet.client(0).batches.size() == 1);
}

void check_refused(int size, const Request& request, const char* why) {
  Fleet fleet(size);
  fleet.submit_everywhere(request);
  fleet.settle();
  for (const Client& c : fleet.clients) {
    REQUIRE(c.errors.size() == 1);
    CHECK(c.codes[0] == ErrorCode::kInternal);
    CHECK(contains(c.errors[0], why));
  }
}

TEST_CASE("requests that all agree on but that make no sense fail on all ranks") {
  for (const int size : {1, 2}) {
    for (const Kind kind : {Kind::kAllgather, Kind::kAlltoall}) {
      check_refused(size, named(kind, "x", {}), "rank-zero tensor");
    }
    for (const Kind kind : {Kind::kBroadcast, Kind::kReduce, Kind::kGather, Kind::kScatter}) {
      for (const int root : {-1, size}) {
        Request request = named(kind, "x");
        request.root = root;
        check_refused(size, request, "is not one of");
      }
    }
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      Request request = named(Kind::kReducescatter, "x");
      request.reduce = op;
      check_refused(size, request, "needs integers or bools, not float32");
    }
    Request adasum = named(Kind::kReduce, "x");
    adasum.reduce = ReduceOp::kAdasum;
    check_refused(size, adasum, "reduce does not support Adasum");
    adasum.kind = Kind::kAllreduce;
    adasum.dtype = Dtype::kI32;
    check_refused(size, adasum, "floating-point");
    check_refused(size, rounding(named(Kind::kReducescatter, "x")), "travel as bfloat16");
    check_refused(size, rounding(launched(sum_of("x"))), "float32 in CPU memory");
    Request doubles = rounding(sum_of("x"));
    doubles.dtype = Dtype::kF64;
    check_refused(size, doubles, "float32 in CPU memory");
    Request vectors = rounding(sum_of("x"));
    vectors.reduce = ReduceOp::kAdasum;
    check_refused(size, vectors, "only sums, averages");
    Request smallest = sum_of("x");
    smallest.codec = CodecId::kInt8;
    smallest.reduce = ReduceOp::kMin;
    check_refused(size, smallest, "only sums and averages of float32 in CPU memory travel as int8");
    Request moved = named(Kind::kAllreduce, "x");
    moved.dtype = Dtype::kF8E5M2;
    check_refused(size, moved, "float8_e5m2 can be moved, but not reduced");
    Request least = named(Kind::kReduce, "x");
    least.dtype = Dtype::kC64;
    least.reduce = ReduceOp::kMin;
    check_refused(size, least, "Min needs numbers that have an order, not complex64");
    check_refused(size, remove_set(0), "no process set 0");
    check_refused(size, remove_set(7), "no process set 7");
  }
}

// ---- Join ----

TEST_CASE("others go on without a rank that joined, until all have joined") {
  Fleet fleet(3);
  fleet.submit(1, join_of());
  for (const int r : {0, 2}) fleet.submit(r, sum_of("x"));
  fleet.settle();
  for (const Client& c : fleet.clients) {
    REQUIRE(c.names() == Names{"x"});
    CHECK(c.batches[0][0].response.joined);
  }
  fleet.submit(0, join_of());
  fleet.submit(2, join_of());
  fleet.settle();
  for (const Client& c : fleet.clients) {
    REQUIRE(c.names() == Names{"x", "join.0"});
    CHECK(c.batches[1][0].response.base.root == 2);  // the last one
    CHECK(c.negotiation.waiting() == 0);
  }
  CHECK_FALSE(fleet.sequencer.expects_peers());
}

TEST_CASE("a rank joins operations of accelerators if it has one") {
  Fleet fleet(2);
  fleet.submit(1, launched(join_of()));
  fleet.submit(0, launched(sum_of("x")));
  fleet.settle();
  for (const Client& c : fleet.clients) CHECK(c.names() == Names{"x"});
}

TEST_CASE("operations of accelerators fail after a rank without one has joined") {
  Fleet fleet(2);
  fleet.submit(1, join_of());
  fleet.submit(0, launched(sum_of("x")));
  fleet.settle();
  CHECK(fleet.client(0).codes == std::vector<ErrorCode>{ErrorCode::kInternal});
  CHECK(fleet.client(1).names().empty());
}

TEST_CASE("operations of accelerators do not go with those of the hosts") {
  CHECK(can_fuse(launched(sum_of("x")), launched(sum_of("y"))));
  CHECK_FALSE(can_fuse(launched(sum_of("x")), sum_of("y")));
}

TEST_CASE("a join completes what only the joining rank had not submitted") {
  Fleet fleet(2);
  fleet.submit(0, sum_of("x"));
  fleet.settle();
  CHECK(fleet.client(0).batches.empty());
  fleet.submit(1, join_of());
  fleet.settle();
  CHECK(fleet.client(0).names() == Names{"x"});
}

TEST_CASE("what a joined rank had submitted before still counts") {
  Fleet fleet(2);
  fleet.submit(1, sum_of("x"));
  fleet.submit(1, join_of());
  fleet.submit(0, sum_of("x"));
  fleet.settle();
  REQUIRE(fleet.client(1).names() == Names{"x"});
  CHECK_FALSE(fleet.client(1).batches[0][0].response.joined);
}

TEST_CASE("operations that need everybody's tensor fail while a rank has joined") {
  for (const Kind kind :
       {Kind::kAllgather, Kind::kBroadcast, Kind::kAlltoall, Kind::kReducescatter}) {
    Fleet fleet(2);
    fleet.submit(1, join_of());
    fleet.submit(0, named(kind, "x"));
    fleet.settle();
    REQUIRE(fleet.client(0).errors.size() == 1);
    CHECK(fleet.client(0).codes[0] == ErrorCode::kInternal);
    CHECK(contains(fleet.client(0).errors[0], "not supported with Join at this time"));
    CHECK(fleet.client(1).errors.empty());
    fleet.submit(0, join_of());
    fleet.settle();
    CHECK(fleet.client(1).names() == Names{"join.0"});
  }
}

TEST_CASE("a barrier does not wait for a rank that joined") {
  Fleet fleet(2);
  fleet.submit(1, join_of());
  Request barrier;
  fleet.submit(0, barrier);
  fleet.settle();
  CHECK(fleet.client(0).batches.size() == 1);
}

TEST_CASE("unnamed operations meet again after a join") {
  Fleet fleet(3);
  for (int i = 0; i < 3; ++i) fleet.submit(0, sum_of(""));
  fleet.submit(1, sum_of(""));
  fleet.submit(1, join_of());
  fleet.submit(2, join_of());
  fleet.settle();
  fleet.submit(0, join_of());
  fleet.settle();
  fleet.submit_everywhere(sum_of("", {7}));
  fleet.settle();
  for (const Client& c : fleet.clients) {
    REQUIRE_FALSE(c.batches.empty());
    CHECK(c.batches.back().at(0).response.base.shapes.at(0) == Shape{7});
    CHECK_FALSE(c.batches.back().at(0).response.joined);
    CHECK(c.negotiation.waiting() == 0);
  }
}

// ---- Ranks that submit nothing more ----

TEST_CASE(
    "what a rank has submitted before its last word runs, and what it has not fails at once") {
  Fleet fleet(3);
  fleet.submit(0, sum_of("waits"));
  fleet.submit(2, sum_of("has"));
  fleet.finish(2);
  fleet.submit(0, sum_of("has"));
  fleet.submit(1, sum_of("has"));
  fleet.submit(1, sum_of("waits"));
  fleet.settle();
  for (const int rank : {0, 1}) {
    const Client& c = fleet.client(rank);
    CHECK(c.names() == Names{"has"});
    REQUIRE(c.errors.size() == 1);
    CHECK(contains(c.errors[0], "allreduce 'waits': rank 2 left the group without submitting it"));
    CHECK(c.codes[0] == ErrorCode::kPeerLost);
    CHECK(c.negotiation.waiting() == 0);
  }
  CHECK(fleet.client(2).errors.empty());
}

TEST_CASE("sets without a rank that submits nothing more go on") {
  Fleet fleet(3);
  fleet.submit_everywhere(add_set({0, 1}));
  fleet.settle();
  fleet.finish(2);
  for (const int rank : {0, 1}) fleet.submit(rank, in_set(sum_of("x"), 1));
  fleet.settle();
  CHECK(fleet.client(0).names().back() == "x");
  CHECK(fleet.client(0).errors.empty());
}

// ---- Process sets ----

TEST_CASE("members of a process set run its operations without the others") {
  Fleet fleet(3);
  fleet.submit_everywhere(add_set({0, 2}));
  fleet.settle();
  for (const Client& c : fleet.clients) CHECK(c.batches.at(0).at(0).response.base.root == 1);
  fleet.submit(0, in_set(sum_of("x"), 1));
  fleet.submit(2, in_set(sum_of("x"), 1));
  fleet.settle();
  CHECK(fleet.client(0).batches.size() == 2);
  CHECK(fleet.client(1).batches.size() == 1);
  CHECK(fleet.client(2).batches.size() == 2);
}

TEST_CASE("a set of exactly these ranks can exist once") {
  Fleet fleet(2);
  for (const std::vector<int64_t>& ranks : {std::vector<int64_t>{0, 1}, {1}, {1}}) {
    fleet.submit_everywhere(add_set(ranks));
    fleet.settle();
  }
  CHECK(fleet.client(0).batches.size() == 1);
  CHECK(fleet.client(0).errors.size() == 2);
}

TEST_CASE("numbers of removed sets are given out in the order in which they were freed") {
  Fleet fleet(3);
  std::vector<int32_t> numbers;
  const auto add = [&](const std::vector<int64_t>& ranks) {
    fleet.submit_everywhere(add_set(ranks));
    fleet.settle();
    numbers.push_back(fleet.client(1).batches.back().at(0).response.base.root);
  };
  add({0});
  add({1});
  for (const int32_t set : {2, 1}) {
    fleet.submit_everywhere(remove_set(set));
    fleet.settle();
  }
  add({2});
  add({0, 1});
  add({1, 2});
  CHECK(numbers == std::vector<int32_t>{1, 2, 2, 1, 3});
}

TEST_CASE("the number of a removed set is given out again") {
  Fleet fleet(3);
  const auto number = [&] { return fleet.client(1).batches.back().at(0).response.base.root; };
  for (const int64_t rank : {0, 1}) {
    fleet.submit_everywhere(add_set({rank}));
    fleet.settle();
    CHECK(number() == rank + 1);
  }
  fleet.submit_everywhere(remove_set(1));
  fleet.settle();
  fleet.submit_everywhere(add_set({0, 1}));
  fleet.settle();
  CHECK(number() == 1);
  for (const int r : {0, 1}) fleet.submit(r, in_set(sum_of(""), 1));
  fleet.settle();
  CHECK(fleet.client(1).batches.size() == 5);
  CHECK(fleet.client(2).batches.size() == 4);
}

TEST_CASE("rank 0 expects requests for sets it is no member of") {
  Fleet fleet(3);
  fleet.submit_everywhere(add_set({1, 2}));
  fleet.settle();
  CHECK(fleet.sequencer.expects_peers());
  fleet.submit_everywhere(remove_set(1));
  fleet.settle();
  CHECK_FALSE(fleet.sequencer.expects_peers());
}

TEST_CASE("removing a set fails what is pending in it") {
  EngineOptions options;
  options.stall_shutdown_seconds = 30;
  Fleet fleet(3, options);
  fleet.submit_everywhere(add_set({1, 2}));
  fleet.settle();
  fleet.submit(1, in_set(sum_of("x"), 1));
  fleet.submit(1, in_set(sum_of("y"), 1));
  fleet.submit_everywhere(remove_set(1));
  fleet.settle();
  CHECK(fleet.client(1).errors.size() == 2);
  CHECK(contains(fleet.client(1).errors[0], "was removed"));
  CHECK_FALSE(fleet.sequencer.expects_peers());
  // On its way when the set was removed.
  fleet.submit(2, in_set(sum_of("x"), 1));
  fleet.settle();
  CHECK(fleet.client(2).errors.size() == 1);
  CHECK(fleet.client(2).negotiation.waiting() == 0);
  fleet.watch(1000);
  fleet.settle();
  CHECK(fleet.client(2).errors.size() == 1);
}

TEST_CASE("there is a limit to the number of process sets, and reaching it breaks nothing") {
  constexpr int kRanks = 11;  // 2047 subsets
  Fleet fleet(kRanks);
  for (int64_t bits = 1; bits < (1 << kRanks) - 1; ++bits) {
    std::vector<int64_t> ranks;
    for (int64_t r = 0; r < kRanks; ++r) {
      if ((bits >> r & 1) != 0) ranks.push_back(r);
    }
    fleet.submit_everywhere(add_set(ranks));
    fleet.settle();
  }
  const Client& c = fleet.client(3);
  CHECK(c.batches.size() == Region::kMaxSets - 1);
  CHECK(contains(c.errors.at(0), "process sets can exist"));
  fleet.submit_everywhere(sum_of("x"));
  fleet.settle();
  CHECK(c.names().back() == "x");
}

}  // namespace
}  // namespace sirtaki
