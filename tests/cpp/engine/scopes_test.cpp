#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/immediate.h"
#include "backends/single.h"
#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engines.h"

// Whom an error concerns is said by its scope, and by nothing else.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using Floats = std::vector<float>;

/// Moves nothing; fails the first operation where there is an error.
class Failing final : public SingleBackend {
 public:
  explicit Failing(std::optional<Error> error) : error_(std::move(error)) {}

  WorkPtr start(const Op&, const Streams&, const Streams&) override {
    return immediately([error = std::exchange(error_, std::nullopt)] {
      if (error) throw *error;
    });
  }

 private:
  std::optional<Error> error_;
};

/// Two ranks sum `first` and then `then`; the backend of rank 1, or of both, fails in `first`.
void run_failing(const Error& error, bool both,
                 const std::function<void(Engine&, const Error* first)>& then) {
  const std::shared_ptr<Region> region = Region::anonymous(2);
  testing::run_threads(
      2,
      [&](int rank) {
        const bool fails = both || rank == 1;
        Engine engine(
            rank, HostMap::single(2), region, {}, {}, testing::quick_options(),
            [&](Endpoint&, const HostMap&, MakeNetwork) {
              return std::make_unique<Failing>(fails ? std::optional(error) : std::nullopt);
            });
        Floats value(4);
        const auto first = testing::start_sum(engine, "first", value);
        engine.wait(*first);
        then(engine, first->error() ? &*first->error() : nullptr);
      },
      [&](int rank) { Doorbell(region, rank, SpinPolicy{}).abort(rank); });
}

TEST_CASE("the world goes on after an error that all members find") {
  const Error error(ErrorCode::kInvalid, "this cannot be", Scope::kAllMembers);
  run_failing(error, true, [](Engine& engine, const Error* first) {
    expect(first != nullptr && first->code == ErrorCode::kInvalid, "it is the error's code");
    expect(std::string(first->what()) == "allreduce 'first' has failed\n  because this cannot be",
           first->what());
    Floats value(4);
    testing::sum(engine, "then", value);
  });
}

TEST_CASE("the world ends after an error that only one member has seen, whatever its code") {
  for (const ErrorCode code : {ErrorCode::kInternal, ErrorCode::kMismatch, ErrorCode::kInvalid}) {
    std::atomic<int> ended{0};
    run_failing(Error(code, "a disk is full"), false, [&](Engine& engine, const Error*) {
      Floats value(4);
      const Error later = testing::error_of([&] { testing::sum(engine, "then", value); });
      expect(later.scope == Scope::kWorld, "its scope is the world");
      expect(contains(later.what(), engine.rank() == 1
                                        ? "rank 1 cannot go on during allreduce 'first'\n"
                                          "  because a disk is full"
                                        : "lost peer rank 1"),
             later.what());
      ++ended;
    });
    CHECK(ended == 2);
  }
}

TEST_CASE("an error of a call says that nobody else has it") {
  testing::run_engines(2, [](Engine& engine, int rank) {
    Floats value(4);
    Request request = testing::sum_of("x", {4});
    request.set = 5;
    const Error error =
        testing::error_of([&] { engine.submit({request, {value.data()}, {value.data()}}); });
    expect(error.scope == Scope::kCall && error.code == ErrorCode::kInvalid, "it is the call's");
    const Error message = testing::error_of([&] { engine.start({true, rank, 5, 0, nullptr, 0}); });
    expect(message.scope == Scope::kCall, "so is that of a message");
    testing::sum(engine, "y", value);
  });
}

}  // namespace
}  // namespace sirtaki
