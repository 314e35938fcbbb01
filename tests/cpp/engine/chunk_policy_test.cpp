#include "engine/sequencer/chunk_policy.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "backends/native.h"
#include "collectives/slots/stream_slots.h"
#include "doctest/doctest.h"
#include "engines.h"
#include "sequencer_fleet.h"

namespace sirtaki {
namespace {

constexpr int64_t kUsual = 1000;
constexpr int64_t kLargest = 5000;
constexpr int64_t kBytes = 160 * kUsual;
constexpr int64_t kAllowed = 1 + 160 / 16;  // sleeps in so many bytes of usual chunks

ChunkPolicy policy_with_large_chunks() {
  ChunkPolicy policy(kUsual, kLargest);
  CHECK(policy.record(kBytes, kAllowed + 1));
  return policy;
}

// ---- The policy ----

TEST_CASE("chunks stay as they are where members hardly sleep for each other") {
  ChunkPolicy policy(kUsual, kLargest);
  CHECK_FALSE(policy.record(kBytes, kAllowed));
  CHECK(policy.chunk_bytes() == kUsual);
}

TEST_CASE("one batch in which members sleep at more than every sixteenth chunk makes them large") {
  CHECK(policy_with_large_chunks().chunk_bytes() == kLargest);
}

TEST_CASE("short batches tell nothing") {
  ChunkPolicy policy(kUsual, kLargest);
  CHECK_FALSE(policy.record(8 * kUsual - 1, 100));
  CHECK(policy.record(8 * kUsual, 100));
}

TEST_CASE("chunks are small again after 32 calm batches in a row") {
  ChunkPolicy policy = policy_with_large_chunks();
  for (int i = 0; i < 31; ++i) CHECK_FALSE(policy.record(kBytes, 0));
  CHECK_FALSE(policy.record(kBytes, 100));
  for (int i = 0; i < 31; ++i) CHECK_FALSE(policy.record(kBytes, 0));
  CHECK(policy.record(kBytes, 0));
  CHECK(policy.chunk_bytes() == kUsual);
  CHECK_FALSE(policy.record(kBytes, 0));
}

// ---- Who is told ----

constexpr int64_t kMiB = 1 << 20;

/// The chunks that the ranks are told of when members of a batch of 64 MiB sleep 1000 times.
std::vector<int64_t> told(const EngineOptions& options) {
  testing::Fleet fleet(2, options);
  fleet.sequencer.batch_done(64 * kMiB, 1000);
  CHECK(fleet.client(0).inbox == fleet.client(1).inbox);
  std::vector<int64_t> chunks;
  for (const std::string& message : fleet.client(0).inbox) {
    Reader in(message);
    CHECK(in.get<Down>() == Down::kTune);
    chunks.push_back(in.get<int64_t>());
  }
  return chunks;
}

TEST_CASE("all ranks are told of large chunks") {
  CHECK(told({}) == std::vector<int64_t>{512 << 10});
}

TEST_CASE("a chunk that is set or tuned is left alone") {
  EngineOptions set, tuned;
  set.autotune.chunk_fixed = true;
  tuned.autotune.enabled = true;
  CHECK(told(set).empty());
  CHECK(told(tuned).empty());
}

TEST_CASE("among several hosts the chunk is left alone, for there waits are for the network") {
  EngineOptions options;
  options.adapts_chunk = false;
  CHECK(told(options).empty());
}

// ---- In an engine ----

/// Our transports, and the chunks that each rank used.
class Watched : public NativeBackend {
 public:
  Watched(Endpoint& endpoint, const HostMap& hosts, MakeNetwork make_network,
          std::vector<size_t>& chunks)
      : NativeBackend(endpoint, hosts, std::move(make_network)), chunks_(chunks) {}
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override {
    chunks_.push_back(op.chunk_bytes);
    return NativeBackend::start(op, in, out);
  }

 private:
  std::vector<size_t>& chunks_;
};

TEST_CASE("ranks that sleep for each other at every chunk use large ones, all from the same batch" *
          doctest::test_suite(testing::kSlowSanitized)) {
  constexpr size_t kElements = 1 << 20;
  EngineOptions options;
  options.caller_spin_ns = 0;
  options.engine_spin_ns = 0;
  const std::shared_ptr<Region> region = Region::anonymous(3);
  std::vector<size_t> chunks[3];
  testing::run_threads(
      3,
      [&](int rank) {
        const auto make = [&](Endpoint& endpoint, const HostMap& hosts, MakeNetwork make_network) {
          return std::make_unique<Watched>(endpoint, hosts, std::move(make_network), chunks[rank]);
        };
        Engine engine(rank, HostMap::single(3), region, {}, {}, options, make);
        // Driven by the engines' threads, which do not yield.
        for (int i = 0; i < 50; ++i) {
          std::vector<float> values(kElements, 1.0f);
          const auto handle = testing::start_sum(engine, "x", values);
          while (!handle->done()) testing::sleep_ms(1);
          testing::check(*handle);
          testing::expect(values == std::vector<float>(kElements, 3.0f), "the sum is right");
        }
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
  CHECK(chunks[0].front() == 96 << 10);
  CHECK(chunks[0].back() == 512 << 10);
  CHECK(chunks[1] == chunks[0]);
  CHECK(chunks[2] == chunks[0]);
}

}  // namespace
}  // namespace sirtaki
