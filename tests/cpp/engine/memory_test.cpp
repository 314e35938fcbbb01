#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "engine/requests/checks.h"
#include "engines.h"
#include "ffi/table.h"

// What memory a member gives for its part in an operation; C programs may leave out what is not
// used.
namespace sirtaki {
namespace {

using testing::contains;
using testing::expect;
using testing::named;
using Floats = std::vector<float>;

std::string missing(Kind kind, int rank, bool gives_input, bool gives_output) {
  static float memory[8];
  Submission asked{named(kind, "x"), {gives_input ? memory : nullptr}, {}};
  if (gives_output) asked.outputs.push_back(memory);
  return missing_memory(asked, rank, 2);
}

TEST_CASE("a member lacks the memory that its part in an operation needs") {
  for (const Kind kind : {Kind::kAllreduce, Kind::kAllgather, Kind::kAlltoall, Kind::kReduce,
                          Kind::kReducescatter, Kind::kGather}) {
    CHECK(contains(missing(kind, 1, false, true), "tensor 0 has no memory for its input"));
  }
  for (const int rank : {0, 1}) {
    CHECK(contains(missing(Kind::kAllreduce, rank, true, false), "no memory for its output"));
    CHECK(missing(Kind::kAllreduce, rank, true, true).empty());
    CHECK(missing(Kind::kAllgather, rank, true, false).empty());
  }
  CHECK(contains(missing(Kind::kBroadcast, 0, false, true), "input"));
  CHECK(missing(Kind::kBroadcast, 1, false, true).empty());
  CHECK(contains(missing(Kind::kBroadcast, 1, false, false), "output"));
  CHECK(contains(missing(Kind::kReduce, 0, true, false), "output"));
  CHECK(missing(Kind::kReduce, 1, true, false).empty());
  CHECK(contains(missing(Kind::kScatter, 0, true, true), "input"));  // one for each member
  CHECK(missing_memory({named(Kind::kAllreduce, "x", {0, 3}), {}, {}}, 0, 2).empty());
}

TEST_CASE("C programs give an output only where there is a result") {
  testing::run_engines(2, [](Engine& engine, int rank) {
    const auto shared = std::shared_ptr<Engine>(&engine, [](Engine*) {});
    static std::mutex one_at_a_time;  // the table knows one world of a process
    sirtaki_world* world = nullptr;
    const sirtaki_table& table = ffi_table();
    {
      const std::lock_guard lock(one_at_a_time);
      set_current_engine(shared);
      world = table.current();
      set_current_engine(nullptr);
    }
    Floats first{1, 2, 3}, second{10, 20, 30}, result(3), other(3);
    const int64_t shape = 3;
    const auto run = [&](int kind, const std::vector<sirtaki_tensor>& tensors) {
      sirtaki_request asked{};
      asked.struct_size = sizeof asked;
      asked.kind = kind;
      asked.dtype = SIRTAKI_F32;
      asked.reduce = SIRTAKI_SUM;
      asked.prescale = asked.postscale = 1;
      asked.tensors = tensors.data();
      asked.tensor_count = tensors.size();
      sirtaki_operation* operation = table.submit(world, &asked);
      table.wait(operation, -1);
      const int32_t status = table.status(operation);
      table.release(operation);
      return status;
    };
    const bool root = rank == 0;
    expect(run(SIRTAKI_REDUCE, {{first.data(), root ? result.data() : nullptr, &shape, 1},
                                {second.data(), root ? other.data() : nullptr, &shape, 1}}) ==
               SIRTAKI_OK,
           "a reduce needs an output on its root alone");
    const float ranks = root ? 2 : 0;
    expect(result == Floats{ranks, 2 * ranks, 3 * ranks}, "the first sum");
    expect(other == Floats{10 * ranks, 20 * ranks, 30 * ranks}, "the second sum");
    expect(first == Floats{1, 2, 3}, "inputs stay as they are");
    Floats sent = root ? Floats{4, 5, 6} : Floats(3);
    expect(run(SIRTAKI_BROADCAST, {{root ? sent.data() : nullptr, root ? nullptr : sent.data(),
                                    &shape, 1}}) == SIRTAKI_OK,
           "a broadcast needs one memory a rank");
    expect(sent == Floats{4, 5, 6}, "what the root sent");
    expect(run(SIRTAKI_ALLREDUCE, {{first.data(), nullptr, &shape, 1}}) == SIRTAKI_INVALID,
           "an allreduce has a result everywhere");
    expect(run(SIRTAKI_BARRIER, {}) == SIRTAKI_OK, "a rank leaves when both were refused");
    table.release_world(world);
  });
}

TEST_CASE("an alltoall on accelerators is refused where its sizes are more than a message holds") {
  const auto why = [](size_t members) {
    Request request = testing::launched(named(Kind::kAlltoall, "x"));
    request.splits.assign(members, 0);
    return unsupported(request, members);
  };
  CHECK(why(5780).empty());
  CHECK(contains(why(5800), "among 5800 ranks"));
}

}  // namespace
}  // namespace sirtaki
