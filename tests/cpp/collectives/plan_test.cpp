#include "collectives/plan.h"

#include <cstdint>
#include <random>
#include <vector>

#include "collectives/cursor.h"
#include "collectives/slots/stream_slots.h"
#include "doctest/doctest.h"
#include "ranks.h"

namespace sirtaki {
namespace {

using testing::Bytes;

constexpr size_t kSizes[] = {0,    1,    8,    63,    64,    65,    127,    128,
                             1000, 4095, 4096, 16383, 16384, 99999, 262143, 262144};

Bytes counted(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 256);
  return bytes;
}

TEST_CASE("slices cover everything without overlap and begin at whole cache lines") {
  for (const size_t bytes : kSizes) {
    for (int n = 1; n <= 9; ++n) {
      CAPTURE(bytes);
      CAPTURE(n);
      size_t covered = 0;
      for (int m = 0; m < n; ++m) {
        const Range slice = slice_of(bytes, n, m);
        CHECK(slice.begin == covered);
        CHECK(slice.end >= slice.begin);
        CHECK((slice.begin % kSliceAlign == 0 || slice.begin == bytes));
        covered = slice.end;
      }
      CHECK(covered == bytes);
    }
  }
}

TEST_CASE("a slice of a chunk of any fill fits into half a chunk") {
  constexpr size_t kChunk = 4096;
  for (size_t bytes = 0; bytes <= kChunk; ++bytes) {
    for (const int n : {2, 3, 4, 7, 64, 100}) {
      size_t longest = 0;
      for (int m = 0; m < n; ++m) longest = std::max(longest, slice_of(bytes, n, m).bytes());
      CAPTURE(bytes);
      CAPTURE(n);
      REQUIRE(longest <= kChunk / 2);
    }
  }
}

TEST_CASE("no slice is much longer than its share, however many members there are") {
  for (const size_t bytes : kSizes) {
    for (int n = 1; n <= 1100; ++n) {
      size_t longest = 0;
      for (int m = 0; m < n; ++m) longest = std::max(longest, slice_of(bytes, n, m).bytes());
      CAPTURE(bytes);
      CAPTURE(n);
      REQUIRE(longest <= bytes / static_cast<size_t>(n) + 2 * kSliceAlign);
    }
  }
}

TEST_CASE("chunks cover a stream in order, the last may be shorter") {
  for (const size_t bytes : kSizes) {
    const Chunks chunks(bytes, 4096);
    CHECK(chunks.count() == (bytes + 4095) / 4096);
    size_t covered = 0;
    for (uint32_t q = 0; q < chunks.count(); ++q) {
      CHECK(chunks.range(q).begin == covered);
      CHECK(chunks.range(q).bytes() <= 4096);
      CHECK(chunks.range(q).bytes() > 0);
      covered = chunks.range(q).end;
    }
    CHECK(covered == bytes);
  }
}

TEST_CASE("a stream shorter than the longest has empty chunks at its end") {
  const Chunks chunks(10'000, 4096);
  CHECK(chunks.count() == 3);
  CHECK(chunks.range(0, 5000).bytes() == 4096);
  CHECK(chunks.range(1, 5000).bytes() == 904);
  CHECK(chunks.range(2, 5000).bytes() == 0);
  CHECK(chunks.range(2, 0).bytes() == 0);
}

TEST_CASE("the slots of a member hold all chunks in flight, whatever chunk size is asked for") {
  for (const int n : {2, 3, 7, 200}) {
    const std::shared_ptr<Region> region = Region::anonymous(n);
    Endpoint endpoint(region, 0, 0, SpinPolicy{});
    std::vector<int> ranks;
    for (int r = 0; r < n; ++r) ranks.push_back(r);
    for (const auto& [set, asked] : std::vector<std::pair<int, size_t>>{
             {0, 4096}, {0, 100'000}, {0, size_t{1} << 30}, {1, 4096}, {7, size_t{1} << 30}}) {
      Op op;
      op.chunk_bytes = asked;
      const Group group(endpoint, HostMap::single(n), ranks, set);
      for (const size_t bytes : {size_t{1}, size_t{50'000}, size_t{1} << 30}) {
        const size_t chunk = StreamSlots::chunk_for(group, op, bytes);
        const StreamSlots slots(group, chunk);
        CAPTURE(n);
        CAPTURE(asked);
        CAPTURE(bytes);
        CHECK(chunk > 0);
        CHECK(block_bytes(chunk, n) >= kSliceAlign);
        CHECK(block_bytes(chunk, n) * static_cast<size_t>(n) <= chunk);
        CHECK(block_bytes(StreamSlots::chunk_for(group, op, bytes, 1000), 1000) >= kSliceAlign);
        const std::byte* end = group.stream_slots(0) + group.stream_bytes();
        CHECK(slots.result(0, StreamSlots::kDepth - 1) + chunk / 2 <= end);
      }
    }
  }
}

TEST_CASE("a cursor walks a stream in ranges and skips empty segments") {
  Bytes buffer = counted(99'999);
  const Segments stream = testing::cut(buffer, 3, 5);
  REQUIRE(stream.list().size() > 5);
  std::minstd_rand random(1);
  Cursor cursor(stream);
  Bytes seen(buffer.size());
  size_t at = 0;
  while (at < buffer.size()) {
    const size_t end = std::min(buffer.size(), at + random() % 20'000);
    cursor.walk({at, end}, [&](const std::byte* from, size_t bytes, size_t position) {
      CHECK(bytes > 0);
      std::memcpy(seen.data() + position, from, bytes);
    });
    at = end;
  }
  CHECK(seen == buffer);
}

TEST_CASE("a cursor may skip parts of a stream") {
  Bytes buffer = counted(1000);
  Segments stream;
  for (size_t at = 0; at < 1000; at += 100) stream.add(buffer.data() + at, 100);
  Cursor cursor(stream);
  Bytes out(20);
  cursor.copy_to(reinterpret_cast<std::byte*>(out.data()), {95, 105});
  cursor.copy_to(reinterpret_cast<std::byte*>(out.data() + 10), {795, 805});
  CHECK(std::memcmp(out.data(), buffer.data() + 95, 10) == 0);
  CHECK(std::memcmp(out.data() + 10, buffer.data() + 795, 10) == 0);
}

TEST_CASE("streams are copied across different segment borders") {
  Bytes from = counted(99'999);
  Bytes to(from.size());
  copy_stream(testing::cut(from, 1, 1), testing::cut(to, 1, 2));
  CHECK(to == from);
}

TEST_CASE("a stream copied onto itself stays as it is") {
  Bytes buffer = counted(1000);
  const Bytes before = buffer;
  copy_stream(testing::cut(buffer, 1, 1), testing::cut(buffer, 1, 1));
  CHECK(buffer == before);
}

}  // namespace
}  // namespace sirtaki
