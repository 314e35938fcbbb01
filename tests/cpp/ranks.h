#pragma once

#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/native.h"
#include "math_reference.h"
#include "sanitized.h"
#include "transport/group.h"

// Ranks as threads of the test, over anonymous shared memory.
namespace sirtaki::testing {

using reference::Bytes;

inline constexpr int kWorlds[] = {1, 2, 3, 4, 7};
inline constexpr size_t kSmallestChunk = 4096;

/// Fails the rank: doctest's own checks are too slow for every element.
inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("expected that " + what);
}

/// Runs `body(rank)` on `n` threads. When one throws, `stop` is called so that the others do not
/// wait for it, and the first exception comes out.
inline void run_threads(int n, const std::function<void(int)>& body,
                        const std::function<void(int)>& stop) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (first == nullptr) first = std::current_exception();
        }
        stop(r);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

inline void run_to_end(Backend& backend, const Doorbell& doorbell, const Op& op, const Streams& in,
                       const Streams& out, size_t chunk_bytes) {
  Op copy = op;
  copy.chunk_bytes = chunk_bytes;
  finish(*backend.start(copy, in, out), doorbell);
}

/// One rank with its backend, driven by the test's thread.
struct Member {
  Member(std::shared_ptr<Region> region, int world_rank, size_t chunk, OwnHeap* heap = nullptr)
      : rank(world_rank),
        size(region->ranks()),
        chunk_bytes(chunk),
        hosts(HostMap::single(size)),
        heaps(PeerHeaps::in_process(heap, rank, size)),
        endpoint(std::move(region), world_rank, world_rank, SpinPolicy{0, 0}, {}, heaps.get()) {
    endpoint.doorbell.drive_as_caller(true);
    backend = std::make_unique<NativeBackend>(endpoint, hosts, MakeNetwork());
  }

  void run(const Op& op, const Streams& in, const Streams& out) {
    run_to_end(*backend, endpoint.doorbell, op, in, out, chunk_bytes);
  }
  void add_set(int32_t set, const std::vector<int>& ranks) {
    finish(*backend->add_set(set, ranks), endpoint.doorbell);
  }
  void remove_set(int32_t set) { finish(*backend->remove_set(set), endpoint.doorbell); }

  int rank;
  int size;
  size_t chunk_bytes;
  HostMap hosts;
  std::shared_ptr<PeerHeaps> heaps;
  Endpoint endpoint;
  std::unique_ptr<NativeBackend> backend;
};

/// Runs `body(member)` for each rank of a world of `n`, which all have `heap`.
inline void run_members(int n, size_t chunk_bytes, const std::function<void(Member&)>& body,
                        OwnHeap* heap = nullptr) {
  const std::shared_ptr<Region> region = Region::anonymous(n);
  run_threads(
      n,
      [&](int r) {
        Member member(region, r, chunk_bytes, heap);
        body(member);
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
}

/// `count` elements that depend on `seed` alone; folds of few of them stay finite in any dtype.
inline Bytes numbers(Dtype dtype, size_t count, uint32_t seed) {
  if (dtype == Dtype::kC32) return numbers(Dtype::kF16, 2 * count, seed);
  if (dtype == Dtype::kC64) return numbers(Dtype::kF32, 2 * count, seed);
  if (dtype == Dtype::kC128) return numbers(Dtype::kF64, 2 * count, seed);
  std::minstd_rand random(seed + 1);
  Bytes bytes(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    const float single = static_cast<float>(bits % 1009) / 504.0f - 1.0f;
    const double number = static_cast<double>(single) + 1e-9;
    const uint64_t whole = bits % 7;
    uint16_t half = 0;
    const void* from = &whole;
    if (dtype == Dtype::kF64) from = &number;
    if (dtype == Dtype::kF32) from = &single;
    if (dtype == Dtype::kF16) half = f32_to_f16(single);
    if (dtype == Dtype::kBF16) half = f32_to_bf16(single);
    if (dtype == Dtype::kF16 || dtype == Dtype::kBF16) from = &half;
    std::memcpy(bytes.data() + i * size_of(dtype), from, size_of(dtype));
  }
  return bytes;
}

/// Cuts a buffer into segments of odd numbers of elements, some of them empty.
inline Segments cut(Bytes& buffer, size_t element, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  Segments segments;
  size_t at = 0;
  while (at < buffer.size()) {
    const size_t most = (buffer.size() - at) / element;
    const size_t piece = std::min<size_t>(most, random() % 3 == 0 ? 0 : random() % 30'011);
    segments.add(buffer.data() + at, piece * element);
    at += piece * element;
  }
  segments.add(buffer.data() + at, 0);
  return segments;
}

}  // namespace sirtaki::testing
