#include <cstring>
#include <memory>
#include <vector>

#include "doctest/doctest.h"
#include "engines.h"
#include "test_heap.h"

// Messages out of shared heaps.
namespace sirtaki {
namespace {

using testing::expect;
using testing::TestHeap;

constexpr size_t kBytes = 3'000'001;

/// Sends what is at `data` from rank 0 to rank 1; how many messages that one has read directly.
uint64_t send(std::byte* data, bool single_copy) {
  for (size_t i = 0; i < kBytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
  EngineOptions options = testing::quick_options();
  options.single_copy = single_copy;
  const std::shared_ptr<Region> region = Region::anonymous(2);
  uint64_t direct = 0;
  testing::run_threads(
      2,
      [&](int r) {
        const auto heaps = PeerHeaps::in_process(TestHeap::get().own(), r, 2);
        Engine engine(r, HostMap::single(2), region, {{}, {}, heaps.get()}, {}, options);
        std::vector<std::byte> got(kBytes);
        const Transfer transfer{r == 0, 1 - r, 0, 5, r == 0 ? data : got.data(), kBytes};
        testing::check(*engine.start_and_wait(transfer));
        if (r == 0) return;
        expect(std::memcmp(got.data(), data, kBytes) == 0, "every byte has come");
        direct = heaps->operations();
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
  TestHeap::get().clear();
  return direct;
}

TEST_CASE("a message that lies in the sender's shared heap is read there") {
  CHECK(send(TestHeap::get().allocate(kBytes), true) == 1);
  CHECK(send(TestHeap::get().allocate(kBytes), false) == 1);
}

TEST_CASE("a message that lies elsewhere is moved as it always was") {
  std::vector<std::byte> elsewhere(kBytes);
  CHECK(send(elsewhere.data(), true) == 0);
  CHECK(send(elsewhere.data(), false) == 0);
}

TEST_CASE("a message that reaches beyond its block is moved as it always was") {
  CHECK(send(TestHeap::get().allocate(kBytes / 2), false) == 0);
}

}  // namespace
}  // namespace sirtaki
