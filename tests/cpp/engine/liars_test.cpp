#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/immediate.h"
#include "base/frames.h"
#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engine/execution/row_exchange.h"
#include "engine/requests/checks.h"
#include "engine_hosts.h"
#include "sequencer_fleet.h"

// Peers that know the protocol and lie within it: errors that name them, never a crash or a hang.
namespace sirtaki {
namespace {

using testing::contains;
using testing::error_of;
using testing::expect;
using testing::Fleet;
using testing::named;
using testing::sum_of;
using testing::VirtualHosts;
using Floats = std::vector<float>;

std::string encoded(const Request& request) {
  std::string text;
  Writer out(text);
  request.encode(out);
  return text;
}

std::string asking(const Request& request) {
  return std::string(1, static_cast<char>(Up::kRequest)) + encoded(request);
}

// ---- Bytes ----

TEST_CASE("values that no rank asks for are refused where they are read") {
  struct Lie {
    const char* what;
    std::string bytes;
  };
  std::vector<Lie> lies;
  for (const int kind : {14, kKindCount}) {
    std::string bytes = encoded(sum_of("x"));
    bytes[0] = static_cast<char>(kind);
    lies.push_back({"kind", bytes});
  }
  const auto lie = [&](const char* what, Kind kind, auto change) {
    Request request = named(kind, "x", {2, 3});
    change(request);
    lies.push_back({what, encoded(request)});
  };
  lie("dtype", Kind::kAllreduce, [](Request& r) { r.dtype = static_cast<Dtype>(kDtypeCount); });
  lie("reduction", Kind::kAllreduce,
      [](Request& r) { r.reduce = static_cast<ReduceOp>(kReduceOpCount); });
  lie("codec", Kind::kAllreduce, [](Request& r) { r.codec = static_cast<CodecId>(codec_count()); });
  lie("device", Kind::kAllreduce, [](Request& r) { r.device = 2; });
  lie("shape", Kind::kAllreduce, [](Request& r) { r.shapes = {{4}, {-1}}; });
  lie("shape", Kind::kAllreduce, [](Request& r) { r.shapes = {{0, int64_t{1} << 62}}; });
  lie("shape", Kind::kAllreduce, [](Request& r) { r.shapes = {{1 << 30, 1 << 30}}; });
  lie("one tensor", Kind::kAlltoall, [](Request& r) { r.shapes = {{1}, {1}}; });
  lie("one tensor", Kind::kScatter, [](Request& r) { r.shapes.clear(); });
  lie("splits", Kind::kAlltoall, [](Request& r) {
    r.device = 1;
    r.splits = {3, -1};
  });
  lie("no tensor", Kind::kJoin, [](Request&) {});
  lie("without ranks", Kind::kAddSet, [](Request& r) { r.shapes.clear(); });
  lie("control character", Kind::kAllreduce, [](Request& r) { r.name = "\0025.x"; });
  for (const Lie& l : lies) {
    CAPTURE(l.what);
    Reader in(l.bytes);
    const Error error = error_of([&] { Request::decode(in); });
    CHECK(error.code == ErrorCode::kInternal);
    CHECK(contains(error.what(), l.what));
  }
}

TEST_CASE("a bool is true or false whatever its byte") {
  const std::string bytes = "\x02";
  Reader in(bytes);
  CHECK(in.get<bool>() == true);
}

TEST_CASE("a frame that announces more than any message has is refused, not waited for") {
  std::string stream("\xff\xff\xff\xff rest", 9);
  CHECK_THROWS_AS(take_frames(stream, [](std::string_view) {}), Error);
}

// ---- Memory that another process writes ----

TEST_CASE("a ring whose positions cannot be is an error to read and to write") {
  const auto region = Region::anonymous(2);
  ByteRing reader = region->up(1, RingEnd::kReads);
  for (const uint32_t off : {reader.bytes() + 1, 0x80000000u, 0xffffffffu}) {
    reader.positions().tail = off;
    std::string out;
    CHECK_THROWS_AS(reader.read(out), Error);
    CHECK_THROWS_AS(region->up(1, RingEnd::kWrites).write("x"), Error);
    CHECK(out.empty());
  }
}

// ---- What ranks tell the sequencer ----

TEST_CASE("the sequencer refuses reports that no rank makes, and names who made them") {
  Fleet fleet(3);
  fleet.submit_everywhere(testing::add_set({0, 1}));
  fleet.settle();
  const auto refused = [&](int rank, const std::string& message, const std::string& why) {
    const Error error = error_of([&] { fleet.sequencer.receive(rank, message, 0); });
    CHECK(contains(error.what(), why));
  };
  std::string ready;
  Writer(ready).put(Up::kReady).put(uint32_t{77});
  refused(1, ready, "id 77");
  std::string flushed;
  Writer(flushed).put(Up::kFlushed);
  refused(1, flushed, "rank 1 has forgotten ids");
  fleet.submit_everywhere(sum_of("known"));
  fleet.settle();
  const uint32_t known = fleet.client(1).negotiation.id_of(encoded(sum_of("known")));
  refused(1, message_of(Up::kCarry, known) + "four",
          "a report with 4 bytes of numbers for allreduce 'known'");
  for (const Kind kind : {Kind::kAllreduce, Kind::kAllgather}) {
    refused(2, asking(testing::in_set(named(kind, "x", {1}), 1)), "rank 2 asks");
  }
  Request join = testing::join_of(1);
  refused(2, asking(join), "rank 2 asks");
  fleet.submit(0, sum_of("once"));
  refused(0, asking(sum_of("once")), "rank 0 reports twice");
  fleet.submit(0, join);
  refused(0, asking(join), "rank 0 joins twice");
}

TEST_CASE("launched splits that disagree with ranks or rows are an error for all members") {
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{1}, {1, 1, 1}, {3, 0}, {int64_t{1} << 47, 0}}) {
    Fleet fleet(2);
    Request good = testing::launched(named(Kind::kAlltoall, "x", {2, 3}));
    good.splits = {1, 1};
    Request bad = good;
    bad.splits = splits;
    fleet.submit(0, good);
    fleet.submit(1, bad);
    fleet.settle();
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(fleet.client(rank).errors.size() == 1);
      CHECK(contains(fleet.client(rank).errors[0], "alltoall splits"));
    }
  }
}

TEST_CASE("a process set of impossible ranks is refused") {
  for (const std::vector<int64_t>& ranks :
       {std::vector<int64_t>{-1}, {0, 3}, {int64_t{1} << 32}, {1, 0}, {1, 1}}) {
    Fleet fleet(3);
    fleet.submit_everywhere(testing::add_set(ranks));
    fleet.settle();
    CHECK(fleet.client(0).errors.size() == 1);
  }
}

TEST_CASE("a short id of a removed process set means nothing in the next one with its number") {
  Fleet fleet(4);
  fleet.submit_everywhere(testing::add_set({0, 1}));
  fleet.settle();
  const Request rows = testing::in_set(named(Kind::kAllgather, "x", {1}), 1);
  fleet.submit(0, rows);
  fleet.submit(1, rows);
  fleet.settle();
  const uint32_t id = fleet.client(1).negotiation.id_of(encoded(rows));
  REQUIRE(id != 0);
  std::string ready;
  Writer(ready).put(Up::kReady).put(id);
  fleet.submit_everywhere(testing::remove_set(1));
  fleet.settle();
  fleet.submit_everywhere(testing::add_set({0, 1, 2}));
  fleet.settle();
  CHECK_THROWS_AS(fleet.sequencer.receive(2, ready, 0), Error);
}

// ---- What the sequencer tells ranks ----

Response decided(const Request& base, std::vector<int64_t> sizes = {}, bool joined = false) {
  Response response;
  response.base = base;
  response.sizes = std::move(sizes);
  response.joined = joined;
  return response;
}

TEST_CASE("a decision that this rank did not ask for is found before anything is run") {
  ProcessSets sets(3);
  Request added = testing::add_set({0, 2});
  added.root = 1;
  sets.change(added);
  const auto why = [&](const Response& response, const Request* own) {
    return contradiction(response, own, sets, 1);
  };
  const Request sum = sum_of("x");
  CHECK(why(decided(sum), &sum).empty());
  CHECK(contains(why(decided(sum), nullptr), "has not submitted"));
  CHECK(why(decided(sum, {}, true), nullptr).empty());
  const Request rows = named(Kind::kAllgather, "x", {2, 3});
  CHECK(contains(why(decided(rows, {}, true), nullptr), "has not submitted"));
  CHECK(contains(why(decided(testing::in_set(sum, 1)), &sum), "process set 1"));
  CHECK(contains(why(decided(testing::in_set(sum, 9)), &sum), "process set 9"));
  CHECK(contains(why(decided(sum_of("x", {5})), &sum), "different tensor shapes"));
  Request root = named(Kind::kBroadcast, "x");
  root.root = 7;
  CHECK(contains(why(decided(root), &root), "root"));
  Request adasum = sum;
  adasum.reduce = ReduceOp::kAdasum;
  adasum.dtype = Dtype::kI32;
  CHECK(contains(why(decided(adasum, {}, true), nullptr), "Adasum"));
  Response carried = decided(sum);
  carried.carried = 16;
  CHECK(why(carried, &sum).empty());
  carried.carried = 20;
  CHECK(contains(why(carried, &sum), "no 20 bytes travel"));
}

TEST_CASE("numbers of rows that cannot be are found before anything is run") {
  const ProcessSets sets(2);
  const Request rows = named(Kind::kAllgather, "x", {2, 3});
  const auto gathered = [&](const std::vector<int64_t>& sizes) {
    return contradiction(decided(rows, sizes), &rows, sets, 1);
  };
  CHECK(gathered({5, 2}).empty());
  CHECK(contains(gathered({5}), "wrong number of sizes"));
  CHECK(contains(gathered({-5, 2}), "impossible"));
  CHECK(contains(gathered({int64_t{1} << 62, 2}), "impossible"));
  CHECK(contains(gathered({5, 1}), "another number of rows"));
  Request parts = testing::launched(named(Kind::kAlltoall, "x", {4, 3}));
  parts.splits = {1, 3};
  const auto exchanged = [&](const std::vector<int64_t>& sizes) {
    return contradiction(decided(parts, sizes), &parts, sets, 1);
  };
  CHECK(exchanged({7, 9, 1, 3}).empty());
  CHECK(contains(exchanged({7, 9, 1}), "wrong number of sizes"));
  CHECK(contains(exchanged({7, 9, 3, 1}), "another number of rows"));
  CHECK(contains(exchanged({7, int64_t{1} << 61, 1, 3}), "impossible"));
  parts.device = 0;
  CHECK(exchanged({}).empty());
  CHECK(contains(exchanged({7, 9, 1, 3}), "wrong number of sizes"));
}

/// Moves nothing; the other member of two is played: it tells `rows` and `most` of an alltoall.
class Teller : public Backend {
 public:
  Teller(int64_t rows, int64_t most) : told_{rows, most} {}

  const char* name() const override { return "teller"; }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override {
    return immediately([this, &op, &in, &out] {
      if (op.dtype != Dtype::kI64) return;
      for (size_t m = 0; m < 2; ++m) {
        const void* from = m == 0 ? static_cast<const void*>(told_) : in[1].list()[0].data;
        std::memcpy(out[m].list()[0].data, from, sizeof told_);
      }
    });
  }
  int track_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t, const std::vector<int>&) override { return nullptr; }
  WorkPtr remove_set(int32_t) override { return nullptr; }

 private:
  int64_t told_[2];
};

TEST_CASE("rows that a member of an alltoall cannot send end the world, with its name") {
  constexpr int64_t kMost = 1000;
  const auto exchanged = [](int64_t rows, int64_t most) {
    Teller teller(rows, most);
    Op op;
    std::vector<int64_t> got;
    const Streams nothing(2);
    RowExchange exchange(teller, op, nothing, nothing,
                         {{1, 2}, 8, kMost, [&](const auto& received) { got = received; }});
    while (!exchange.advance()) {
    }
    CHECK(op.longest == static_cast<size_t>(std::max<int64_t>(most, 2)) * 8);
    return got;
  };
  CHECK(exchanged(3, 5) == std::vector<int64_t>{3, 2});
  for (const auto& [rows, most] :
       {std::pair<int64_t, int64_t>{-1, 5}, {6, 5}, {1, kMost + 1}, {kMost, kMost}}) {
    CAPTURE(rows);
    const Error error = error_of([&, r = rows, m = most] { exchanged(r, m); });
    CHECK(error.code == ErrorCode::kPeerLost);
    CHECK(contains(error.what(), "announced an impossible number of rows"));
  }
}

TEST_CASE("a new process set has a number and ranks that can be") {
  const ProcessSets sets(3);
  const auto why = [&](int32_t number, const std::vector<int64_t>& ranks) {
    Request own = testing::add_set(ranks);
    Request base = own;
    base.root = number;
    return contradiction(decided(base), &own, sets, 0);
  };
  CHECK(why(1, {0, 2}).empty());
  for (const int32_t number : {0, -1, 1024}) CHECK_FALSE(why(number, {0, 2}).empty());
  for (const std::vector<int64_t>& ranks : {std::vector<int64_t>{0, 3}, {2, 0}, {-1}}) {
    CHECK_FALSE(why(1, ranks).empty());
  }
}

// ---- Whole engines ----

std::string batch(const std::vector<Response>& responses) {
  std::string message;
  Writer out(message);
  out.put(Down::kBatch).put(static_cast<uint32_t>(responses.size()));
  for (const Response& response : responses) {
    out.put(true).put(uint32_t{0}).put(uint64_t{0});
    out(response)(std::string());
  }
  return message;
}

/// Rank 1 of two has submitted the sums `x` and `y`, and rank 0 says this.
void expect_refused(const std::string& message, const std::string& why) {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  const auto engine = std::make_unique<Engine>(1, HostMap::single(2), region, LinkSet{},
                                               MakeNetwork(), testing::quick_options());
  Floats x(4), y(4);
  const auto first = testing::start_sum(*engine, "x", x);
  const auto second = testing::start_sum(*engine, "y", y);
  std::string frame;
  append_frame(frame, message);
  REQUIRE(region->down(1, RingEnd::kWrites).write(frame) == frame.size());
  for (const auto& handle : {first, second}) {
    const Error error = error_of([&] { testing::finish(*engine, *handle); });
    CHECK(contains(error.what(), why));
  }
}

TEST_CASE("an engine fails all operations when rank 0 decides what was not asked for") {
  expect_refused(batch({decided(sum_of("z"))}), "has not submitted");
  expect_refused(batch({decided(sum_of("x")), decided(sum_of("x"))}), "has not submitted");
  expect_refused(batch({decided(sum_of("x")), decided(sum_of("y", {5}))}), "tensor shapes");
  expect_refused(batch({decided(testing::in_set(sum_of("x"), 3))}), "process set 3");
  std::string unknown;
  Writer(unknown).put(Down::kBatch).put(1u).put(false).put(77u).put(uint64_t{0});
  expect_refused(unknown, "id 77");
  for (const int64_t bytes : {int64_t{0}, int64_t{-4096}, int64_t{1} << 62}) {
    std::string tune;
    Writer(tune).put(Down::kTune).put(bytes);
    expect_refused(tune, "a chunk cannot have");
  }
}

TEST_CASE("a result of another size than the tensors is refused") {
  Response carried = decided(sum_of("x"));
  carried.carried = 16;
  const std::string known =
      message_of(Down::kBatch, 1u, true, 7u, uint64_t{0}, carried, std::string());
  for (const std::string& result : {std::string(20, '\1'), std::string(12, '\1')}) {
    testing::Client client(1, 2, [](std::string_view) {});
    client.submit(sum_of("x"));
    client.negotiation.receive(known);
    const Floats values(4);
    client.submit(sum_of("x"), values.data());
    const std::string lie = message_of(Down::kBatch, 1u, false, 7u, uint64_t{0}, result);
    CHECK_THROWS_WITH(client.negotiation.receive(lie), doctest::Contains("its result has"));
    CHECK(client.errors.size() == 1);
  }
}

TEST_CASE("what cannot be run as one is not run") {
  Request mean = sum_of("y");
  mean.reduce = ReduceOp::kMax;
  const std::shared_ptr<Region> region = Region::anonymous(2);
  Engine engine(1, HostMap::single(2), region, {}, {}, testing::quick_options());
  Floats x(4), y(4);
  const auto first = testing::start_sum(engine, "x", x);
  const auto second = engine.submit({mean, {y.data()}, {y.data()}});
  std::string frame;
  append_frame(frame, batch({decided(sum_of("x")), decided(mean)}));
  REQUIRE(region->down(1, RingEnd::kWrites).write(frame) == frame.size());
  for (const auto& handle : {first, second}) {
    const Error error = error_of([&] { testing::finish(engine, *handle); });
    CHECK(contains(error.what(), "cannot be run as one"));
  }
}

TEST_CASE("a rank that lies to the sequencer is lost, with the reason") {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  Engine engine(0, HostMap::single(2), region, {}, {}, testing::quick_options());
  std::string frame;
  SUBCASE("within the protocol") { append_frame(frame, std::string("\x01\x4d\0\0\0", 5)); }
  SUBCASE("outside of it") { append_frame(frame, "\x09"); }
  SUBCASE("about the ring") { region->up(1, RingEnd::kReads).positions().tail = 0xffff0000; }
  if (!frame.empty()) region->up(1, RingEnd::kWrites).write(frame);
  Floats x(4);
  const Error error = error_of([&] { testing::sum(engine, "x", x); });
  CHECK(error.code == ErrorCode::kPeerLost);
  CHECK(contains(error.what(), "lost peer rank 1"));
  CHECK(contains(error.what(), "it sent what no rank sends"));
}

TEST_CASE("an operation that cannot be announced is not left behind") {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  Engine engine(1, HostMap::single(2), region, {}, {}, testing::quick_options());
  region->up(1, RingEnd::kReads).positions().head =
      0x80000000;  // who reads the ring has overwritten it
  {
    Floats gone(4);  // freed by who called, as the submission failed
    CHECK_THROWS_AS(testing::start_sum(engine, "gone", gone), Error);
  }
  Floats next(4);
  const Error error = error_of([&] { testing::sum(engine, "next", next); });
  CHECK_FALSE(contains(error.what(), "gone"));
}

TEST_CASE("what cannot be is refused to who submits it, and the world goes on") {
  testing::run_engines(2, [](Engine& engine, int) {
    Floats values(4, 1.0f);
    Request impossible = sum_of("x", {-4});
    const Error error =
        error_of([&] { engine.submit({impossible, {values.data()}, {values.data()}}); });
    expect(error.code == ErrorCode::kInvalid, error.what());
    testing::sum(engine, "x", values);
    expect(values[0] == 2.0f, "the sum is right");
  });
}

TEST_CASE("splits that cannot be are refused to who asks, before anybody is told") {
  testing::run_engines(2, [](Engine& engine, int) {
    Request request = named(Kind::kAlltoall, "x", {2});
    const Floats sent(2, 1.0f);
    for (const std::vector<int64_t>& splits :
         {std::vector<int64_t>{1}, {1, 1, 1}, {2, 1}, {int64_t{1} << 47, 0}}) {
      request.splits = splits;
      const Error error = error_of([&] { engine.submit({request, {sent.data()}, {}}); });
      expect(error.code == ErrorCode::kInvalid, error.what());
      expect(contains(error.what(), "alltoall splits"), error.what());
    }
    request.splits = {1, 1};
    const auto handle = engine.submit_and_wait({request, {sent.data()}, {}});
    expect(!handle->error(), "the name is free, and the world goes on");
  });
}

// ---- Between hosts ----

std::string reported_by(const Reporters& from, const std::string& rest) {
  std::string text;
  Writer(text).put(Hop::kUp).put_vector(from.ranks).put_vector(from.hosts);
  return text + rest;
}

std::string ordered(int32_t set, const std::vector<int32_t>& ranks, const std::string& rest) {
  std::string text;
  Writer(text).put(Hop::kDown).put(set).put_vector(ranks);
  return text + rest;
}

std::string asked(const std::vector<int32_t>& ranks) {
  std::string text;
  Writer(text).put(Hop::kAsk).put_vector(ranks);
  return text;
}

const std::string kFlush(1, static_cast<char>(Down::kFlush));

TEST_CASE("a leader that lies is lost, with the reason") {
  VirtualHosts world({0, 1, 1});
  std::string message;
  std::string lost;
  const std::string report = asking(sum_of("x"));
  SUBCASE("for a rank of another host") { message = reported_by({{0}, {}}, report); }
  SUBCASE("for a rank below all") { message = reported_by({{-1}, {}}, report); }
  SUBCASE("for a rank that is not") { message = reported_by({{3}, {}}, report); }
  SUBCASE("for nobody") { message = reported_by({{}, {}}, report); }
  SUBCASE("for another host") { message = reported_by({{}, {{0, 1}}}, report); }
  SUBCASE("for a host above it") { message = reported_by({{}, {{0, 2}}}, report); }
  SUBCASE("for a host that is not") { message = reported_by({{}, {{1, 3}}}, report); }
  SUBCASE("for hosts that end before they begin") { message = reported_by({{}, {{1, 1}}}, report); }
  SUBCASE("about who is lost") { Writer(message).put(Hop::kLost).put(int32_t{-1}); }
  SUBCASE("about a rank that is not") { Writer(message).put(Hop::kLost).put(int32_t{3}); }
  SUBCASE("about who it is") { message = ordered(0, {}, kFlush); }
  SUBCASE("about what a rank of another host does") {
    Writer(message).put(Hop::kTell).put(int32_t{0}).put_string("in no operation");
  }
  SUBCASE("about what a rank does that is not") {
    Writer(message).put(Hop::kTell).put(int32_t{3}).put_string("in no operation");
  }
  SUBCASE("about how much it tells") {
    Writer(message).put(Hop::kTell).put(int32_t{1}).put(uint32_t{1 << 30});
  }
  SUBCASE("about who asks") { message = asked({1}); }
  SUBCASE("with an unknown message") { message = "\x07"; }
  world.speak(1, message);
  const auto engine = world.start(0, testing::quick_options());
  Floats x(4);
  const Error error = error_of([&] { testing::sum(*engine, "x", x); });
  CHECK(contains(error.what(), "lost peer rank 1 (node1)"));
  CHECK(contains(error.what(), "it sent what no leader of a host sends"));
}

TEST_CASE("rank 0 that lies to a leader is lost, with the reason") {
  VirtualHosts world({0, 1, 1});
  std::string message;
  SUBCASE("about whom it orders") { message = ordered(0, {0}, kFlush); }
  SUBCASE("about whom it orders, who is below all") { message = ordered(0, {-1}, kFlush); }
  SUBCASE("about whom it orders, who is not") { message = ordered(0, {3}, kFlush); }
  SUBCASE("about a process set") { message = ordered(5, {}, kFlush); }
  SUBCASE("about who it is") { message = reported_by({{}, {{0, 1}}}, kFlush); }
  SUBCASE("about whom it asks") { message = asked({1, 0}); }
  SUBCASE("about a rank that is not") { message = asked({3}); }
  SUBCASE("about who tells") { message = std::string(1, static_cast<char>(Hop::kTell)); }
  SUBCASE("to the aggregator") { message = ordered(0, {}, std::string("\0\1\0\0\0\1", 6)); }
  world.speak(0, message);
  const auto engine = world.start(1, testing::quick_options());
  Floats x(4);
  const Error error = error_of([&] { testing::sum(*engine, "x", x); });
  CHECK(contains(error.what(), "lost peer rank 0 (node0)"));
  CHECK(contains(error.what(), "it sent what no leader of a host sends"));
}

TEST_CASE("a rank that lies to its leader is lost, with the reason") {
  VirtualHosts world({0, 1, 1});
  SUBCASE("in its ring") { world.regions[1]->up(1, RingEnd::kReads).positions().tail = 0xffff0000; }
  SUBCASE("in its words") {
    std::string frame;
    append_frame(frame, std::string(1, '\0'));
    REQUIRE(world.regions[1]->up(1, RingEnd::kWrites).write(frame) == frame.size());
  }
  const auto engine = world.start(1, testing::quick_options());
  Floats x(4);
  const Error error = error_of([&] { testing::sum(*engine, "x", x); });
  CHECK(contains(error.what(), "lost peer rank 2 (node1)"));
  CHECK(contains(error.what(), "it sent what no rank sends"));
}

TEST_CASE("a silent host is called stopped or overloaded") {
  VirtualHosts world({0, 1});
  world.speak(1, std::string(1, static_cast<char>(Hop::kHeartbeat)));
  EngineOptions options = testing::quick_options();
  options.host_timeout_seconds = 0.5;
  const auto engine = world.start(0, options);
  Floats x(4);
  const Error error = error_of([&] { testing::sum(*engine, "x", x); });
  CHECK(contains(error.what(), "silent for 0.5 s: it is stopped or overloaded"));
  CHECK(contains(error.what(), "SIRTAKI_HOST_TIMEOUT_SECONDS"));
}

TEST_CASE("a leader that dies after its goodbye, before it told its host, hangs nobody") {
  VirtualHosts world({0, 1, 1});
  const auto engine = world.start(2, testing::quick_options());
  Floats x(4);
  const auto handle = testing::start_sum(*engine, "x", x);
  std::string end;
  std::string frame;
  Writer(end).put(Down::kShutdown).put(int32_t{1});
  append_frame(frame, end);
  bool told = false;
  SUBCASE("nothing of the end is in the ring") { frame.clear(); }
  SUBCASE("a part of it is") { frame.resize(frame.size() - 1); }
  SUBCASE("all of it is") { told = true; }
  world.regions[1]->down(1, RingEnd::kWrites).write(frame);
  world.regions[1]->rank(0).bye.store(1);
  world.links_of(1).local.clear();
  const Error error = error_of([&] { testing::finish(*engine, *handle); });
  CHECK(contains(error.what(), told ? "has been shut down: rank 1" : "lost peer rank 1"));
}

}  // namespace
}  // namespace sirtaki
