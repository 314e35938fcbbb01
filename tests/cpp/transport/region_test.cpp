#include "transport/memory/region.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "base/utf8.h"
#include "doctest/doctest.h"

// What a rank says of a loss: the others believe it, whatever a rank that lies has written there.
namespace sirtaki {
namespace {

TEST_CASE("a loss is noted though somebody has scribbled over the word that tells of it") {
  const auto region = Region::anonymous(2);
  auto& word = *reinterpret_cast<std::atomic<uint64_t>*>(
      reinterpret_cast<std::byte*>(&region->leader()) - alignof(LeaderBlock));
  for (const uint64_t scribble : {uint64_t{1} << 63, uint64_t{0xffffffff}}) {
    word = scribble;
    CHECK(region->lost_rank() < 0);
    region->set_loss(1, {0, -1, "gone"});
    CHECK(region->lost_rank() == 0);
    CHECK(region->loss().reason == "gone");
  }
}

TEST_CASE("whoever is lost first is named, whoever is lost then") {
  const auto region = Region::anonymous(2);
  region->set_loss(1, {0, -1, "first"});
  region->set_loss(0, {1, -1, "second"});
  CHECK(region->lost_rank() == 0);
  CHECK(region->loss().reason == "first");
}

TEST_CASE("a reason that is too long ends with a whole character") {
  const auto region = Region::anonymous(1);
  std::string reason;
  while (reason.size() < 600) reason += "\xe2\x82\xac";  // 479 bytes end in the middle of one
  region->set_loss(0, {0, -1, reason});
  const std::string said = region->loss().reason;
  CHECK(said == reason.substr(0, 477) + "??");
}

TEST_CASE("a region that is made as new takes no memory that was not touched") {
  constexpr uintptr_t kPage = 4096;
  const auto region = Region::anonymous(8);
  region->rank(3).bye = 1;
  region->clear();
  CHECK(region->rank(3).bye == 0);
  const auto ring =
      reinterpret_cast<uintptr_t>(&region->pair_ring(1, 2, RingEnd::kReads).positions()) + kPage;
  unsigned char resident = 1;
  REQUIRE(mincore(reinterpret_cast<void*>(ring / kPage * kPage), kPage, &resident) == 0);
  CHECK((resident & 1) == 0);
}

TEST_CASE("bytes that are part of no character become question marks") {
  CHECK(valid_utf8("") == "");
  CHECK(valid_utf8("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(valid_utf8("\xff"
                   "a\x80") == "?a?");
  CHECK(valid_utf8("\xc0\xaf") == "??");            // longer than need be
  CHECK(valid_utf8("\xed\xa0\x80") == "???");       // half of a pair
  CHECK(valid_utf8("\xf4\x90\x80\x80") == "????");  // beyond the last
  CHECK(valid_utf8("a\xe2\x82") == "a??");          // cut
}

}  // namespace
}  // namespace sirtaki
