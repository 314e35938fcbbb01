#include "transport/memory/byte_ring.h"

#include <memory>
#include <random>
#include <string>
#include <thread>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

constexpr uint32_t kBytes = 32 << 10;

/// Both ends of an empty ring.
struct Ring {
  explicit Ring(uint32_t at = 0) : memory(new Memory(at)) {}
  ByteRing end(RingEnd which) { return {memory->positions, kBytes, which}; }

  // Shared memory begins as zeros, without a constructor.
  struct Memory {
    explicit Memory(uint32_t at) { positions.head = positions.tail = at; }
    ByteRing::Positions positions{};
    char data[kBytes]{};
  };
  std::unique_ptr<Memory> memory;
  ByteRing writer = end(RingEnd::kWrites);
  ByteRing reader = end(RingEnd::kReads);
};

std::string text_of(size_t begin, size_t size) {
  std::string text;
  for (size_t i = begin; i < begin + size; ++i) text += static_cast<char>(i * 31 + i / 251);
  return text;
}

TEST_CASE("a ring gives bytes back in order") {
  Ring ring;
  CHECK(ring.reader.empty());
  CHECK(ring.writer.write("hello ") == 6);
  CHECK(ring.writer.write("world") == 5);
  CHECK_FALSE(ring.reader.empty());
  std::string out = "> ";
  ring.reader.read(out);
  CHECK(out == "> hello world");
  CHECK(ring.reader.empty());
  ring.reader.read(out);
  CHECK(out == "> hello world");
}

TEST_CASE("a full ring takes what fits and tells how much") {
  Ring ring;
  const std::string text = text_of(0, kBytes + 100);
  CHECK(ring.writer.write(text) == kBytes);
  CHECK(ring.writer.write("x") == 0);
  std::string out;
  ring.reader.read(out);
  CHECK(out == text.substr(0, kBytes));
  CHECK(ring.writer.write("x") == 1);
}

TEST_CASE("a ring wraps around at every position") {
  Ring ring;
  std::string out;
  size_t written = 0;
  for (size_t size = 1; written < 20 * kBytes; size = size * 3 % 5001 + 1) {
    const std::string text = text_of(written, size);
    REQUIRE(ring.writer.write(text) == size);
    written += size;
    out.clear();
    ring.reader.read(out);
    REQUIRE(out == text);
  }
}

TEST_CASE("the positions of a ring may pass the end of their type") {
  Ring ring(0xffffffff - 1000);
  for (size_t i = 0; i < 10; ++i) {
    const std::string text = text_of(i, kBytes);
    REQUIRE(ring.writer.write(text + "no room") == kBytes);
    std::string out;
    ring.reader.read(out);
    REQUIRE(out == text);
  }
}

TEST_CASE("an end goes on where the last one stopped, whatever the other end has done") {
  Ring ring;
  std::string out;
  REQUIRE(ring.writer.write("before ") == 7);
  CHECK(ring.end(RingEnd::kWrites).write("after") == 5);
  ring.end(RingEnd::kReads).read(out);
  CHECK(out == "before after");
  CHECK(ring.end(RingEnd::kReads).empty());
}

TEST_CASE("an end refuses an impossible position each time that it reads it") {
  Ring of_writer;
  Ring of_reader;
  of_writer.memory->positions.head = 1;
  of_reader.memory->positions.tail = kBytes + 1;
  for (int time = 0; time < 2; ++time) {
    CHECK_THROWS_AS(of_writer.writer.write(std::string(kBytes + 1, 'x')), Error);
    CHECK_THROWS_AS(of_reader.reader.take(nullptr, kBytes + 1), Error);
  }
}

TEST_CASE("a writer and a reader may run at the same time") {
  Ring ring;
  constexpr size_t kTotal = 1 << 21;
  std::thread writer([&] {
    std::minstd_rand random(1);
    for (size_t sent = 0; sent < kTotal;) {
      const size_t size = std::min<size_t>(kTotal - sent, random() % 5000);
      std::string text = text_of(sent, size);
      sent += size;
      while (!text.empty()) {
        const size_t taken = ring.writer.write(text);
        if (taken == 0) std::this_thread::yield();
        text.erase(0, taken);
      }
    }
  });
  std::string out;
  while (out.size() < kTotal) {
    if (ring.reader.empty()) std::this_thread::yield();
    ring.reader.read(out);
  }
  writer.join();
  CHECK(out == text_of(0, kTotal));
}

}  // namespace
}  // namespace sirtaki
