#include <vector>

#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engines.h"

// Receives that their callers take back.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using Bytes = std::vector<std::byte>;

Transfer message(bool sends, int rank, Bytes& bytes) {
  return {sends, rank, 0, 4, bytes.data(), bytes.size()};
}

TEST_CASE("a receive that is taken back leaves its message to the next") {
  testing::run_engines(2, testing::quick_options(), [](Engine& engine, int rank) {
    Bytes first(100), second(100, std::byte{7});
    if (rank == 1) {
      testing::barrier(engine);
      return testing::check(*engine.start_and_wait(message(true, 0, second)));
    }
    const auto given_up = engine.start(message(false, 1, first));
    engine.withdraw(given_up);
    expect(engine.wait(*given_up), "it ends");
    expect(contains(given_up->error()->what(), "given up by its caller"), "it says why");
    testing::barrier(engine);
    second.assign(100, std::byte{0});
    testing::check(*engine.start_and_wait(message(false, 1, second)));
    expect(first == Bytes(100), "its memory is left alone");
    expect(second == Bytes(100, std::byte{7}), "the next one has the message");
    engine.withdraw(given_up);  // what is over stays as it is
  });
}

}  // namespace
}  // namespace sirtaki
