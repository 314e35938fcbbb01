#include "collectives/inter_host/cut.h"

#include <algorithm>
#include <vector>

#include "doctest/doctest.h"
#include "virtual_hosts.h"

// How reductions between hosts are cut, without anything that is sent.
namespace sirtaki {
namespace {

using testing::Bytes;

constexpr size_t kChunkBytes = 96 << 10;

/// Rank `rank`'s view of a world.
struct World {
  World(const std::vector<int>& host_of, int rank, int set = 0)
      : hosts(host_of),
        endpoint(Region::anonymous(static_cast<int>(hosts.ranks_on(hosts.host_of(rank)).size())),
                 rank, hosts.place_of(rank), SpinPolicy{}),
        group(endpoint, hosts, everybody(), set, over_sockets({})) {}

  std::vector<int> everybody() const {
    std::vector<int> ranks;
    for (int r = 0; r < hosts.size(); ++r) ranks.push_back(r);
    return ranks;
  }

  HostMap hosts;
  Endpoint endpoint;
  InterHostGroup group;
};

std::vector<int> even_hosts(int hosts, int per_host) {
  std::vector<int> host_of;
  for (int r = 0; r < hosts * per_host; ++r) host_of.push_back(r / per_host);
  return host_of;
}

/// Streams of a few bytes more or less, none of which is touched.
Streams streams_of(int count, size_t bytes) {
  Streams streams(static_cast<size_t>(count));
  for (size_t m = 0; m < streams.size(); ++m) streams[m].add(nullptr, bytes - m % 3);
  return streams;
}

/// Chunks fit into the slots, and what waits elsewhere into its limit.
void check_memory(const Cut& cut, const InterHostGroup& group) {
  if (group.size() > group.hosts()) {
    CHECK(2 * cut.depth() * cut.chunk_bytes() <= group.stream_bytes());
  } else {
    CHECK(2 * cut.depth() * cut.chunk_bytes() <= Cut::kStaging);
  }
}

/// Every byte of every stream is summed by this host once, in parts that do not meet in a chunk.
void check_cover(const Cut& cut, const Streams& in, int hosts) {
  size_t longest = 0;
  std::vector<std::vector<uint8_t>> seen;
  for (const Segments& stream : in) seen.emplace_back(stream.bytes());
  for (uint32_t q = 0; q < cut.count(); ++q) {
    std::vector<std::pair<size_t, size_t>> taken;  // of the chunk
    for (int lane = 0; lane < cut.lanes(); ++lane) {
      for (int host = 0; host < hosts; ++host) {
        cut.walk(q, lane, host, 1, [&](const Part& part) {
          longest = std::max(longest, part.range.bytes());
          taken.emplace_back(part.offset, part.offset + part.range.bytes());
          for (size_t i = part.range.begin; i < part.range.end; ++i) ++seen[part.stream][i];
        });
      }
    }
    std::sort(taken.begin(), taken.end());
    for (size_t i = 0; i < taken.size(); ++i) {
      REQUIRE(taken[i].second <= (i + 1 < taken.size() ? taken[i + 1].first : cut.chunk_bytes()));
    }
  }
  size_t wrong = 0;
  for (const auto& stream : seen) {
    wrong += stream.size() - static_cast<size_t>(std::count(stream.begin(), stream.end(), 1));
  }
  CHECK(wrong == 0);
  CHECK(longest <= cut.block_bytes());
}

void check(const Cut& cut, const InterHostGroup& group, const Streams& in) {
  check_memory(cut, group);
  check_cover(cut, in, group.hosts());
}

void check_all(const std::vector<int>& layout, size_t chunk) {
  for (const int set : {0, 1}) {
    const World world(layout, 0, set);
    for (const size_t bytes : {size_t{3}, size_t{200}, size_t{100'001}}) {
      const Streams in = streams_of(1, bytes);
      for (const int radix : {2, 3, world.group.hosts()}) {
        check(Cut(world.group, in, in[0].bytes(), chunk, radix, false), world.group, in);
      }
    }
    const Streams blocks = streams_of(world.group.size(), 200);
    check(Cut(world.group, blocks, 200, chunk, world.group.hosts(), true), world.group, blocks);
  }
}

TEST_CASE("what ten thousand ranks reduce is cut into chunks of bounded memory") {
  check_all(even_hosts(1250, 8), kChunkBytes);
}

TEST_CASE("ranks of hosts of any number of members cut everything, and nothing twice") {
  for (const std::vector<int>& layout :
       {std::vector{0, 1}, std::vector{0, 0, 1, 2, 2, 2}, std::vector{0, 0, 0, 1, 1, 2, 2, 2, 2, 2},
        even_hosts(3, 200)}) {
    for (const size_t chunk : {size_t{128}, kChunkBytes}) {
      check_all(layout, chunk);
    }
  }
}

TEST_CASE("a large tensor of ten thousand ranks takes no more memory than a small one") {
  const World world(even_hosts(1250, 8), 0);
  constexpr size_t kBytes = size_t{1} << 32;
  const Streams none;
  const auto received = [](const Cut& cut) {
    const auto moved = static_cast<size_t>(cut.steps().front().moved());
    return cut.depth() * moved * cut.block_bytes();
  };
  const Cut halving(world.group, none, kBytes, kChunkBytes, 2, false);
  check_memory(halving, world.group);
  CHECK(received(halving) <= size_t{2} << 20);
  const World alone(even_hosts(10'000, 1), 0);
  const Cut of_one(alone.group, none, kBytes, 128 << 20, 2, false);
  CHECK(received(of_one) + of_one.depth() * of_one.chunk_bytes() <= Cut::kStaging);
}

}  // namespace
}  // namespace sirtaki
