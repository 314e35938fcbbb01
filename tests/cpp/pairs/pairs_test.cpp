#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "engine/engine.h"
#include "engine_hosts.h"

// Messages from one rank to another: whatever is legal arrives, whatever is wrong is told.
namespace sirtaki {
namespace {

using testing::contains;
using testing::error_of;
using testing::expect;
using Bytes = std::vector<std::byte>;
using Body = std::function<void(Engine&, int)>;

// ---- Worlds ----

/// How bytes get from rank to rank.
enum class Way { kSingleCopy, kRings, kHosts };

void run(Way way, int ranks, const Body& body) {
  EngineOptions options = testing::quick_options();
  options.single_copy = way != Way::kRings;
  options.log_level = LogLevel::kFatal;
  if (way != Way::kHosts) return testing::run_engines(ranks, options, body);
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank % 2);
  testing::run_hosts(host_of, options, body);
}

void run_all_ways(int ranks, const Body& body) {
  for (const Way way : {Way::kSingleCopy, Way::kRings, Way::kHosts}) {
    CAPTURE(static_cast<int>(way));
    run(way, ranks, body);
  }
}

// ---- Messages ----

Bytes message_of(int source, int64_t tag, size_t bytes) {
  Bytes message(bytes);
  const auto seed = static_cast<size_t>(source * 7 + tag * 13 + 1);
  for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>((i + seed) * 31 + i / 253);
  return message;
}

Transfer to(int rank, const Bytes& bytes, int64_t tag = 0, int32_t communicator = 0) {
  return {true, rank, communicator, tag, const_cast<std::byte*>(bytes.data()), bytes.size()};
}

Transfer from(int rank, Bytes& bytes, int64_t tag = 0, int32_t communicator = 0) {
  return {false, rank, communicator, tag, bytes.data(), bytes.size()};
}

/// A message of a pattern under way, and its bytes.
struct Posted {
  std::shared_ptr<Handle> handle;
  std::unique_ptr<Bytes> bytes;
  Bytes expected;
};

Posted send(Engine& engine, int to_rank, int64_t tag, size_t bytes) {
  auto data = std::make_unique<Bytes>(message_of(engine.rank(), tag, bytes));
  auto handle = engine.start(to(to_rank, *data, tag));
  return {std::move(handle), std::move(data), {}};
}

Posted receive(Engine& engine, int source, int64_t tag, size_t bytes) {
  auto data = std::make_unique<Bytes>(bytes);
  auto handle = engine.start(from(source, *data, tag));
  return {std::move(handle), std::move(data), message_of(source, tag, bytes)};
}

void finish(Engine& engine, Posted& posted) {
  testing::finish(engine, *posted.handle);
  if (!posted.expected.empty()) expect(*posted.bytes == posted.expected, "the message is right");
}

void finish_all(Engine& engine, std::vector<Posted>& posted) {
  for (Posted& each : posted) finish(engine, each);
}

// ---- Patterns that are legal ----

using Pattern = void (*)(Engine&, int rank, int ranks, size_t bytes);

void crossing(Engine& engine, int rank, int ranks, size_t bytes) {
  std::vector<Posted> posted;
  for (int peer = 0; peer < ranks; ++peer) posted.push_back(receive(engine, peer, 3, bytes));
  for (int peer = 0; peer < ranks; ++peer) {
    Bytes message = message_of(rank, 3, bytes);
    testing::check(*engine.start_and_wait(to(peer, message, 3)));  // nobody waits in between
  }
  finish_all(engine, posted);
}

void ring(Engine& engine, int rank, int ranks, size_t bytes) {
  Posted in = receive(engine, (rank + ranks - 1) % ranks, 0, bytes);
  Posted out = send(engine, (rank + 1) % ranks, 0, bytes);
  finish(engine, out);
  finish(engine, in);
}

void chain(Engine& engine, int rank, int ranks, size_t bytes) {
  if (rank > 0) {
    Posted in = receive(engine, rank - 1, 0, bytes);
    finish(engine, in);
  }
  if (rank + 1 < ranks) {
    Posted out = send(engine, rank + 1, 0, bytes);
    finish(engine, out);
  }
}

void to_itself(Engine& engine, int rank, int, size_t bytes) {
  Posted first = send(engine, rank, 1, bytes);
  finish(engine, first);
  Posted second = receive(engine, rank, 2, bytes);
  Posted in = receive(engine, rank, 1, bytes);
  Posted out = send(engine, rank, 2, bytes);
  finish(engine, in);
  finish(engine, out);
  finish(engine, second);
}

void received_backwards(Engine& engine, int rank, int ranks, size_t bytes) {
  std::vector<Posted> posted;
  for (int64_t tag = 0; tag < 5; ++tag)
    posted.push_back(send(engine, (rank + 1) % ranks, tag, bytes));
  const int source = (rank + ranks - 1) % ranks;
  for (int64_t tag = 4; tag >= 0; --tag) {
    Posted in = receive(engine, source, tag, bytes);
    finish(engine, in);
  }
  finish_all(engine, posted);
}

void one_tag_in_order(Engine& engine, int rank, int ranks, size_t bytes) {
  // Of one pair and tag nothing is overtaken, though small and large go different ways.
  const size_t sizes[] = {bytes, 4, bytes + 1, 0, 20'000, bytes};
  std::vector<Posted> posted;
  for (const size_t size : sizes) posted.push_back(send(engine, (rank + 1) % ranks, 5, size));
  const int source = (rank + ranks - 1) % ranks;
  for (const size_t size : sizes) {
    Bytes data(bytes + 20'001);
    const auto handle = engine.start_and_wait(from(source, data, 5));
    testing::check(*handle);
    expect(handle->message.bytes == size, "they come in order");
    data.resize(size);
    expect(data == message_of(source, 5, size), "the message is right");
  }
  finish_all(engine, posted);
}

void from_anybody(Engine& engine, int, int ranks, size_t bytes) {
  std::vector<Posted> posted;
  for (int peer = 0; peer < ranks; ++peer) posted.push_back(send(engine, peer, 9, bytes));
  std::vector<int> seen(static_cast<size_t>(ranks));
  for (int i = 0; i < ranks; ++i) {
    Bytes data(bytes);
    const auto handle = engine.start_and_wait(from(kAnySource, data, 9));
    testing::check(*handle);
    const Message& message = handle->message;
    expect(message.bytes == bytes && message.tag == 9, "what came is told");
    expect(data == message_of(message.source, 9, bytes), "it is of whom it says");
    seen[static_cast<size_t>(message.source)] += 1;
  }
  expect(seen == std::vector<int>(static_cast<size_t>(ranks), 1), "one from each");
  finish_all(engine, posted);
  testing::barrier(engine);  // or the next messages might be taken for these
}

void around_a_collective(Engine& engine, int rank, int ranks, size_t bytes) {
  Posted in = receive(engine, (rank + 1) % ranks, 0, bytes);
  std::vector<float> values(1000, 1.0f);
  testing::sum(engine, "beside", values);
  Posted out = send(engine, (rank + ranks - 1) % ranks, 0, bytes);
  testing::sum(engine, "beside", values);
  finish(engine, in);
  finish(engine, out);
  expect(values[0] == static_cast<float>(ranks * ranks), "the sums are right");
}

TEST_CASE("every legal pattern arrives, whatever the size and the way" *
          doctest::test_suite("slow")) {
  const std::pair<const char*, Pattern> patterns[] = {
      {"crossing", crossing},
      {"ring", ring},
      {"chain", chain},
      {"to itself", to_itself},
      {"received backwards", received_backwards},
      {"one tag in order", one_tag_in_order},
      {"from anybody", from_anybody},
      {"around a collective", around_a_collective},
  };
  std::vector<size_t> sizes{0, 1, 4000, 16 << 10, (16 << 10) + 1, 70'000, 3'000'001};
  if (testing::kSanitized) sizes = {0, 4000, 70'000, 600'001};
  for (const int ranks : {1, 2, 3}) {
    run_all_ways(ranks, [&](Engine& engine, int rank) {
      for (const auto& [name, pattern] : patterns) {
        for (const size_t bytes : sizes) {
          try {
            pattern(engine, rank, ranks, bytes);
          } catch (const std::exception& error) {
            throw std::runtime_error(std::string(name) + ", " + std::to_string(bytes) +
                                     " bytes: " + error.what());
          }
        }
      }
      testing::barrier(engine);  // who leaves ends the world of all
    });
  }
}

TEST_CASE("64 MiB arrive both ways at once" * doctest::test_suite("slow")) {
  const size_t bytes = testing::kSanitized ? 8 << 20 : 64 << 20;
  run_all_ways(2, [&](Engine& engine, int rank) {
    crossing(engine, rank, 2, bytes);
    testing::barrier(engine);
  });
}

TEST_CASE("random messages from several threads arrive") {
  run_all_ways(3, [](Engine& engine, int rank) {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::string wrong;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));  // the same on all ranks
        for (int i = 0; i < 60; ++i) {
          const size_t bytes = random() % 5 == 0 ? random() % 200'000 : random() % 5000;
          const int shift = static_cast<int>(random() % 3);
          const int64_t tag = t * 1000 + static_cast<int64_t>(random() % 4);
          try {
            Posted out = send(engine, (rank + shift) % 3, tag, bytes);
            Posted in = receive(engine, (rank + 3 - shift) % 3, tag, bytes);
            finish(engine, in);
            finish(engine, out);
          } catch (const std::exception& error) {
            const std::lock_guard lock(mutex);
            wrong += error.what() + std::string("; ");
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    testing::barrier(engine);  // who leaves ends the world of all
    if (!wrong.empty()) throw std::runtime_error(wrong);
  });
}

TEST_CASE("more small messages than may wait unasked arrive all the same") {
  constexpr int kMessages = 5'000;
  constexpr size_t kBytes = 16 << 10;  // 80 MiB
  run_all_ways(2, [&](Engine& engine, int rank) {
    if (rank == 0) {
      const Bytes message = message_of(0, 0, kBytes);
      std::vector<std::shared_ptr<Handle>> handles;
      for (int i = 0; i < kMessages; ++i) handles.push_back(engine.start(to(1, message)));
      Bytes last(1);
      handles.push_back(engine.start(to(1, last, 7)));
      for (const auto& handle : handles) testing::finish(engine, *handle);
      return testing::barrier(engine);
    }
    Bytes last(1);
    testing::check(*engine.start_and_wait(from(0, last, 7)));
    Bytes message(kBytes);
    for (int i = 0; i < kMessages; ++i) testing::check(*engine.start_and_wait(from(0, message)));
    expect(message == message_of(0, 0, kBytes), "the message is right");
    testing::barrier(engine);
  });
}

TEST_CASE("a process set's messages are its own") {
  run_all_ways(3, [](Engine& engine, int rank) {
    const int32_t set = testing::add_set_of(engine, {0, 1});
    if (rank == 2) return testing::barrier(engine);
    const int peer = 1 - rank;
    const Bytes world(4, std::byte{1});
    const Bytes own(4, std::byte{2});
    const auto first = engine.start(to(peer, world, 0));
    const auto second = engine.start(to(peer, own, 0, set));
    Bytes got(4);
    testing::check(*engine.start_and_wait(from(peer, got, 0, set)));
    expect(got == own, "the set's comes though the world's was first");
    testing::check(*engine.start_and_wait(from(peer, got, 0)));
    expect(got == world, "the world's is still there");
    testing::finish(engine, *first);
    testing::finish(engine, *second);
    testing::barrier(engine);
  });
}

TEST_CASE("a receive without memory of its own is given as much as its message has") {
  run_all_ways(2, [](Engine& engine, int rank) {
    for (const size_t bytes : {size_t{0}, size_t{5}, size_t{100'000}}) {
      Posted out = send(engine, 1 - rank, 0, bytes);
      Bytes memory;
      Transfer receive = from(1 - rank, memory);
      receive.room = [&](size_t wanted) {
        memory.resize(wanted);
        return memory.data();
      };
      testing::check(*engine.start_and_wait(receive));
      expect(memory == message_of(1 - rank, 0, bytes), "the message is right");
      finish(engine, out);
    }
    testing::barrier(engine);
  });
}

TEST_CASE("a callback of a send and of a receive may go on with the next") {
  run_all_ways(2, [](Engine& engine, int rank) {
    Bytes values(4, std::byte{7});
    std::promise<void> over;
    int turns = 0;
    std::function<void(const Handle&)> next = [&](const Handle&) {
      if (++turns > 20) return over.set_value();
      const bool sends = (turns + rank) % 2 == 0;
      Transfer transfer = sends ? to(1 - rank, values) : from(1 - rank, values);
      transfer.owner = std::make_shared<Handle>(next);
      engine.start(std::move(transfer));
    };
    Handle first;
    next(first);
    over.get_future().wait();
    testing::barrier(engine);
  });
}

// ---- What is begun while another thread drives ----

/// Does `work` while another thread holds the driver's role, which then gives it back at once.
void while_another_drives(Engine& engine, const std::function<void()>& work) {
  engine.with_backend([&](Backend&, const Doorbell&) { std::thread(work).join(); });
}

TEST_CASE("a send that had to wait for the driver is not overtaken by the next") {
  run(Way::kRings, 1, [](Engine& engine, int) {  // no engine thread begins it meanwhile
    const Bytes first(10, std::byte{1});
    const Bytes second(10, std::byte{2});
    std::vector<std::shared_ptr<Handle>> handles;
    while_another_drives(engine, [&] { handles.push_back(engine.start(to(0, first))); });
    handles.push_back(engine.start(to(0, second)));
    Bytes got(10);
    testing::check(*engine.start_and_wait(from(0, got)));
    expect(got == first, "the first comes first");
    testing::check(*engine.start_and_wait(from(0, got)));
    expect(got == second, "the second follows");
    for (const auto& handle : handles) testing::finish(engine, *handle);
  });
}

TEST_CASE("a receive that had to wait for the driver is not overtaken by the next") {
  run(Way::kRings, 1, [](Engine& engine, int) {
    Bytes first(10);
    Bytes second(10);
    std::vector<std::shared_ptr<Handle>> handles;
    while_another_drives(engine, [&] { handles.push_back(engine.start(from(0, first))); });
    handles.push_back(engine.start(from(0, second)));
    const Bytes message = message_of(0, 0, 10);
    testing::check(*engine.start_and_wait(to(0, message)));
    expect(handles[0]->done() && !handles[1]->done(), "the first receive is over, and it alone");
    expect(first == message, "it has the message");
    testing::check(*engine.start_and_wait(to(0, message)));
    testing::finish(engine, *handles[1]);
  });
}

TEST_CASE("what waits for the driver behind a transfer that ends the world fails with it") {
  const auto region = Region::anonymous(2);
  Engine engine(1, HostMap::single(2), region, LinkSet{}, MakeNetwork(), testing::quick_options());
  const Bytes data(100);
  std::vector<std::shared_ptr<Handle>> handles;
  while_another_drives(engine, [&] {
    region->pair_ring(1, 0, RingEnd::kReads).positions().head.store(0x80000000u);
    for (int i = 0; i < 3; ++i) handles.push_back(engine.start(to(0, data)));
  });
  handles.push_back(engine.start(to(0, data)));
  for (const auto& handle : handles) {
    REQUIRE(engine.wait(*handle, now_ns() + 10'000'000'000));
    REQUIRE(handle->error().has_value());
    CHECK(contains(handle->error()->what(), "lost peer rank 0"));
  }
}

// ---- What goes wrong ----

TEST_CASE("what cannot be sent or received is refused before anything is") {
  run_all_ways(2, [](Engine& engine, int rank) {
    const int32_t alone = testing::add_set_of(engine, {0});
    Bytes data(4);
    const auto refused = [&](Transfer transfer, const std::string& why) {
      const Error error = error_of([&] { engine.start(std::move(transfer)); });
      expect(error.code == ErrorCode::kInvalid, "it is the caller's mistake");
      expect(contains(error.what(), why), error.what());
    };
    refused(to(2, data), "cannot send to rank 2 with tag 0: a world of 2 has no such rank");
    refused(to(kAnySource, data), "no such rank");
    refused(from(-2, data), "no such rank");
    refused(to(0, data, -1), "a tag is not negative");
    refused(from(0, data, -5), "a tag is not negative");
    refused(to(0, data, 0, 99), "there is no process set 99");
    if (rank == 0) refused(to(1, data, 0, alone), "rank 1 is not a member of process set");
    if (rank == 1) refused(from(0, data, 0, alone), "it is not a member of process set");
    ring(engine, rank, 2, 100);
    testing::barrier(engine);
  });
}

TEST_CASE("a message too long for its receive is dropped, and told there alone") {
  run_all_ways(2, [](Engine& engine, int rank) {
    for (const size_t bytes : {size_t{20}, size_t{300'000}}) {
      for (const bool late : {false, true}) {
        Posted out = send(engine, 1 - rank, 4, bytes);
        if (late) testing::barrier(engine);
        Bytes data(bytes - 1);
        const auto handle = engine.start_and_wait(from(1 - rank, data, 4));
        expect(handle->error().has_value(), "it fails");
        expect(handle->error()->code == ErrorCode::kMismatch, "the ranks disagree");
        const std::string text = handle->error()->what();
        expect(contains(text, "receive from rank " + std::to_string(1 - rank) + " with tag 4"),
               text);
        expect(contains(text, "has " + std::to_string(bytes) + " bytes, more than the " +
                                  std::to_string(bytes - 1)),
               text);
        finish(engine, out);
      }
    }
    ring(engine, rank, 2, 100'000);
    testing::barrier(engine);
  });
}

TEST_CASE("a receive whose caller has no memory fails, and the sender does not") {
  run_all_ways(2, [](Engine& engine, int rank) {
    for (const size_t bytes : {size_t{20}, size_t{300'000}}) {
      Posted out = send(engine, 1 - rank, 0, bytes);
      Bytes nothing;
      Transfer receive = from(1 - rank, nothing);
      receive.room = [](size_t) -> std::byte* { throw std::runtime_error("all is in use"); };
      const auto handle = engine.start_and_wait(receive);
      expect(handle->error() && contains(handle->error()->what(), "all is in use"), "it fails");
      finish(engine, out);
    }
    ring(engine, rank, 2, 100'000);
    testing::barrier(engine);
  });
}

TEST_CASE("what nobody answers ends with the world, with an error that names it") {
  run_all_ways(2, [](Engine& engine, int rank) {
    testing::barrier(engine);
    if (rank == 0) return;
    Bytes data(1'000'000);
    const auto receive = engine.start(from(0, data, 8));
    const auto send = engine.start(to(0, data, 9));
    for (const auto& [handle, what] : {std::pair(receive, "receive from rank 0 with tag 8"),
                                       {send, "send to rank 0 with tag 9"}}) {
      engine.wait(*handle);
      expect(handle->error().has_value(), "it fails");
      expect(contains(handle->error()->what(), what), handle->error()->what());
      expect(contains(handle->error()->what(), "has been shut down"), handle->error()->what());
    }
    const auto late = engine.start_and_wait(from(0, data, 8));
    expect(late->error().has_value(), "and so does what comes later");
  });
}

TEST_CASE("a message can be received when its sender has left") {
  for (const Way way : {Way::kSingleCopy, Way::kRings}) {
    run(way, 2, [](Engine& engine, int rank) {
      if (rank == 0) {
        testing::check(*engine.start_and_wait(to(1, message_of(0, 2, 1000), 2)));
        return;
      }
      std::vector<float> value(1);
      error_of([&] { testing::sum(engine, "alone", value); });  // the world is over
      Bytes data(1000);
      testing::check(*engine.start_and_wait(from(0, data, 2)));
      expect(data == message_of(0, 2, 1000), "the message is right");
    });
  }
}

TEST_CASE("a lost rank fails what is pending, in the middle too") {
  for (const Way way : {Way::kSingleCopy, Way::kRings, Way::kHosts}) {
    std::atomic<int> failed{0};
    run(way, 3, [&](Engine& engine, int rank) {
      // All ranks are connected.
      crossing(engine, rank, 3, 100);
      testing::barrier(engine);
      Bytes large(30'000'000);
      Bytes small(4);
      std::vector<std::shared_ptr<Handle>> handles;
      if (rank == 1) {
        handles.push_back(engine.start(to(0, large)));
        handles.push_back(engine.start(to(2, large)));
        handles.push_back(engine.start(from(2, small)));  // which does not come
        testing::sleep_ms(5);
        engine.with_backend([](Backend&, const Doorbell& doorbell) { doorbell.abort(1); });
      } else {
        handles.push_back(engine.start(from(1, large)));
        handles.push_back(engine.start(from(2 - rank, small)));
      }
      for (const auto& handle : handles) {
        engine.wait(*handle);
        if (!handle->error()) continue;
        expect(handle->error()->code == ErrorCode::kPeerLost, handle->error()->what());
        failed.fetch_add(1);
      }
    });
    CHECK(failed >= 2);
  }
}

// ---- Peers that lie ----

/// Rank 0 says this to rank 1, which waits for a message.
void expect_refused(const Header& header, const std::string& why, size_t body = 0) {
  const auto region = Region::anonymous(2);
  EngineOptions options = testing::quick_options();
  const auto engine =
      std::make_unique<Engine>(1, HostMap::single(2), region, LinkSet{}, MakeNetwork(), options);
  Bytes data(100);
  const auto handle = engine->start(from(0, data));
  const Doorbell doorbell(region, 0, SpinPolicy{});
  RingStream stream(*region, doorbell, 0, 1);
  const Bytes bytes(body);
  stream.write({reinterpret_cast<const std::byte*>(&header), sizeof header}, bytes);
  engine->wait(*handle);
  REQUIRE(handle->error().has_value());
  CHECK(handle->error()->code == ErrorCode::kPeerLost);
  CHECK(contains(handle->error()->what(), "lost peer rank 0"));
  CHECK(contains(handle->error()->what(), why));
}

TEST_CASE("a rank that says what no rank says is lost, with the reason") {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  expect_refused({static_cast<Note>(77), 0, 0, 0, 0, 0}, "unknown kind");
  expect_refused({Note::kEager, 0, 0, kHuge, 0, 0}, "too long to come unasked");
  expect_refused({Note::kEager, 0, -1, 0, 0, 0}, "a negative tag");
  expect_refused({Note::kOffer, 0, 0, kHuge, 1, 0}, "impossible size");
  expect_refused({Note::kOffer, 0, -1, 5, 1, 0}, "a negative tag");
  expect_refused({Note::kShow, 0, 0, 5, 1, 0}, "outside its shared arrays");
  expect_refused({Note::kPart, 0, 0, 5, 1, 0}, "not asked for", 5);
  expect_refused({Note::kAsk, 0, 0, 0, 5, 0}, "not made");
  expect_refused({Note::kPulled, 0, 0, 0, 5, 0}, "not made");
  expect_refused({Note::kCredit, 0, 0, 1, 0, 0}, "more credit");
}

TEST_CASE("a ring of messages whose positions cannot be is an error that names the peer") {
  const auto region = Region::anonymous(2);
  Engine engine(1, HostMap::single(2), region, LinkSet{}, MakeNetwork(), testing::quick_options());
  Bytes data(100);
  const auto handle = engine.start(from(0, data));
  region->pair_ring(0, 1, RingEnd::kReads).positions().tail.store(0x80000000u);
  region->pair_flags(1)[0].fetch_or(1);
  Doorbell(region, 0, SpinPolicy{}).ring(1, kPair);
  engine.wait(*handle);
  REQUIRE(handle->error().has_value());
  CHECK(contains(handle->error()->what(), "overwritten"));
  CHECK(contains(handle->error()->what(), "lost peer rank 0"));
}

TEST_CASE("memory that is not its peer's is not read") {
  const auto region = Region::anonymous(2);
  SingleCopy writer(region, 0);
  SingleCopy reader(region, 1);
  const Bytes from_memory = message_of(0, 0, 5000);
  Bytes got(5000);
  const auto address = reinterpret_cast<uint64_t>(from_memory.data());
  SUBCASE("it is where it is the peer's") {
    CHECK(reader.copy(0, address, got.data(), got.size()) == got.size());
    CHECK(got == from_memory);
  }
  SUBCASE("another process") { region->pair_block(0).process = 1; }
  SUBCASE("another cookie") { region->pair_block(0).cookie[0] ^= 1; }
  SUBCASE("no process") { region->pair_block(0).process = -1; }
  SUBCASE("another place") { region->pair_block(0).cookie_address += 8; }
  if (got == from_memory) return;
  CHECK(reader.copy(0, address, got.data(), got.size()) == 0);
  CHECK(got == Bytes(5000));
}

}  // namespace
}  // namespace sirtaki
