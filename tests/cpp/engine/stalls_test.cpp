#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "sequencer_fleet.h"

// Operations that some members do not submit.
namespace sirtaki {
namespace {

using testing::contains;
using testing::Fleet;
using testing::join_of;
using testing::sum_of;
using Names = std::vector<std::string>;

constexpr int64_t kSecond = 1'000'000'000;

EngineOptions patience(double seconds) {
  EngineOptions options;
  options.stall_shutdown_seconds = seconds;
  options.hosts = {"alpha", "alpha", "beta"};
  return options;
}

TEST_CASE("an operation that some ranks do not submit may wait for ever where there is no limit") {
  Fleet fleet(3, patience(0));
  fleet.submit(1, sum_of("x"));
  fleet.watch(10'000);
  fleet.submit(0, sum_of("x"));
  fleet.submit(2, sum_of("x"));
  fleet.settle();
  CHECK(fleet.client(1).errors.empty());
  CHECK(fleet.client(0).batches.size() == 1);
}

TEST_CASE("a stalled operation fails where it was submitted, after the limit") {
  Fleet fleet(3, patience(30));
  fleet.submit(0, sum_of("x"));
  fleet.submit(1, sum_of("x"));
  fleet.watch(30);
  fleet.settle();
  CHECK(fleet.client(0).errors.empty());
  fleet.watch(2);
  fleet.settle();
  for (const int r : {0, 1}) {
    REQUIRE(fleet.client(r).errors.size() == 1);
    CHECK(fleet.client(r).codes[0] == ErrorCode::kTimeout);
    // The limit, however late that was looked at.
    CHECK(contains(fleet.client(r).errors[0], "allreduce 'x': not submitted within 30 s;"));
    CHECK(contains(fleet.client(r).errors[0], "2 (beta)"));
  }
  CHECK(fleet.client(2).errors.empty());
  CHECK_FALSE(fleet.sequencer.has_pending());
  CHECK_FALSE(fleet.sequencer.expects_peers());
}

TEST_CASE("a pause of the whole job is no stall") {
  Fleet fleet(2, patience(30));
  fleet.submit(0, sum_of("x"));
  fleet.watch(20);
  fleet.now_ns += 3600 * kSecond;  // a scheduler suspends the job
  fleet.watch(1);
  fleet.submit(1, sum_of("x"));
  fleet.settle();
  CHECK(fleet.client(0).errors.empty());
  CHECK(fleet.client(0).names() == Names{"x"});
}

TEST_CASE("a rank that submits after the others failed begins another operation") {
  Fleet fleet(2, patience(30));
  fleet.submit(0, sum_of("x"));
  fleet.watch(32);
  fleet.submit(1, sum_of("x"));
  fleet.settle();
  CHECK(fleet.client(1).errors.empty());
  fleet.submit(0, sum_of("x"));
  fleet.settle();
  CHECK(fleet.client(0).names() == Names{"x"});
  CHECK(fleet.client(1).names() == Names{"x"});
}

TEST_CASE("who has joined is not missed") {
  Fleet fleet(3, patience(10));
  fleet.submit(2, join_of());
  fleet.submit(1, sum_of("x"));
  fleet.watch(12);
  fleet.settle();
  REQUIRE(fleet.client(1).errors.size() == 1);
  CHECK(contains(fleet.client(1).errors[0], "missing ranks: 0 (alpha)"));
  CHECK_FALSE(contains(fleet.client(1).errors[0], "beta"));
}

TEST_CASE("a known operation stalls by its name too") {
  Fleet fleet(2, patience(30));
  fleet.submit_everywhere(sum_of("x"));
  fleet.settle();
  fleet.submit(1, sum_of("x"));
  fleet.watch(32);
  fleet.settle();
  CHECK(fleet.client(1).codes == std::vector<ErrorCode>{ErrorCode::kTimeout});
  CHECK(contains(fleet.client(1).errors.at(0), "allreduce 'x'"));
}

}  // namespace
}  // namespace sirtaki
