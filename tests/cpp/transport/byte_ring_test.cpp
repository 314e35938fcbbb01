#include "transport/memory/byte_ring.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

std::unique_ptr<ByteRing> empty_ring() {
  // Shared memory begins as zeros, without a constructor.
  return std::make_unique<ByteRing>();
}

std::string text_of(size_t begin, size_t size) {
  std::string text;
  for (size_t i = begin; i < begin + size; ++i) text += static_cast<char>(i * 31 + i / 251);
  return text;
}

TEST_CASE("a ring gives bytes back in order") {
  const auto ring = empty_ring();
  CHECK(ring->empty());
  CHECK(ring->write("hello ") == 6);
  CHECK(ring->write("world") == 5);
  CHECK_FALSE(ring->empty());
  std::string out = "> ";
  ring->read(out);
  CHECK(out == "> hello world");
  CHECK(ring->empty());
  ring->read(out);
  CHECK(out == "> hello world");
}

TEST_CASE("a full ring takes what fits and tells how much") {
  const auto ring = empty_ring();
  const std::string text = text_of(0, ByteRing::kBytes + 100);
  CHECK(ring->write(text) == ByteRing::kBytes);
  CHECK(ring->write("x") == 0);
  std::string out;
  ring->read(out);
  CHECK(out == text.substr(0, ByteRing::kBytes));
  CHECK(ring->write("x") == 1);
}

TEST_CASE("a ring wraps around at every position") {
  const auto ring = empty_ring();
  std::string out;
  size_t written = 0;
  for (size_t size = 1; written < 20 * ByteRing::kBytes; size = size * 3 % 5001 + 1) {
    const std::string text = text_of(written, size);
    REQUIRE(ring->write(text) == size);
    written += size;
    out.clear();
    ring->read(out);
    REQUIRE(out == text);
  }
}

TEST_CASE("the positions of a ring may pass the end of their type") {
  const auto memory = empty_ring();
  // Both positions come first, each with a cache line pair of its own.
  const uint32_t near_end = 0xffffffff - 1000;
  std::memcpy(static_cast<void*>(memory.get()), &near_end, sizeof near_end);
  std::memcpy(reinterpret_cast<char*>(memory.get()) + 128, &near_end, sizeof near_end);
  for (size_t i = 0; i < 10; ++i) {
    const std::string text = text_of(i, ByteRing::kBytes);
    REQUIRE(memory->write(text + "no room") == ByteRing::kBytes);
    std::string out;
    memory->read(out);
    REQUIRE(out == text);
  }
}

TEST_CASE("a writer and a reader may run at the same time") {
  const auto ring = empty_ring();
  constexpr size_t kTotal = 1 << 21;
  std::thread writer([&] {
    std::minstd_rand random(1);
    for (size_t sent = 0; sent < kTotal;) {
      const size_t size = std::min<size_t>(kTotal - sent, random() % 5000);
      std::string text = text_of(sent, size);
      sent += size;
      while (!text.empty()) {
        const size_t taken = ring->write(text);
        if (taken == 0) std::this_thread::yield();
        text.erase(0, taken);
      }
    }
  });
  std::string out;
  while (out.size() < kTotal) {
    if (ring->empty()) std::this_thread::yield();
    ring->read(out);
  }
  writer.join();
  CHECK(out == text_of(0, kTotal));
}

}  // namespace
}  // namespace sirtaki
