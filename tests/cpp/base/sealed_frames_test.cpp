#include "base/sealed_frames.h"

#include <string>
#include <vector>

#include "base/frames.h"
#include "doctest/doctest.h"

// What somebody between the two ends can do with the bytes, and what comes of it.
namespace sirtaki {
namespace {

using Messages = std::vector<std::string>;

constexpr SipKey kThere{std::byte{1}};
constexpr SipKey kBack{std::byte{2}};
constexpr size_t kOverhead = sizeof(FrameHead) + 2 * sizeof(SipTag);

std::string sealed(const Messages& messages, const SipKey& key = kThere) {
  FrameSealer sealer(key);
  std::string stream;
  for (const std::string& message : messages) sealer.append(stream, message);
  return stream;
}

/// The messages that are handed over before the stream ends or is found altered.
struct Opened {
  Messages messages;
  bool altered = false;
};

Opened open(std::string stream, size_t step = SIZE_MAX) {
  FrameOpener opener(kThere);
  std::string received;
  Opened opened;
  try {
    while (!stream.empty()) {
      received += stream.substr(0, step);
      stream.erase(0, step);
      opener.take(received, [&](uint32_t, std::string_view m) { opened.messages.emplace_back(m); });
    }
  } catch (const Altered&) {
    opened.altered = true;
  }
  return opened;
}

TEST_CASE("messages arrive as they were sent, however the stream is cut") {
  const Messages messages{"one", "", std::string(1000, 'x')};
  for (const size_t step : {size_t{1}, size_t{7}, SIZE_MAX}) {
    const Opened opened = open(sealed(messages), step);
    CHECK(opened.messages == messages);
    CHECK_FALSE(opened.altered);
  }
}

TEST_CASE("no byte can be changed") {
  const std::string good = sealed({"one", "two"});
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const Opened opened = open(bad);
    CHECK(opened.altered);
    const bool in_first = i < kOverhead + 3;
    CHECK(opened.messages == (in_first ? Messages{} : Messages{"one"}));
  }
}

TEST_CASE("a size is believed only when its tag is right") {
  std::string bad = sealed({"one"});
  bad[2] = 1;  // 65,539 bytes, which would be waited for
  CHECK(open(bad.substr(0, sizeof(FrameHead) + sizeof(SipTag))).altered);
}

TEST_CASE("messages repeated, swapped, left out or sent back are refused") {
  const std::string both = sealed({"one", "two"});
  const std::string first = both.substr(0, kOverhead + 3);
  const std::string second = both.substr(kOverhead + 3);
  CHECK(open(first + first).messages == Messages{"one"});
  CHECK(open(first + first).altered);
  CHECK(open(second + first).altered);
  CHECK(open(second).altered);
  CHECK(open(sealed({"one"}, kBack)).altered);
}

TEST_CASE("a stream that ends early hands over whole messages only") {
  const std::string both = sealed({"one", "two"});
  const Opened opened = open(both.substr(0, both.size() - 1));
  CHECK(opened.messages == Messages{"one"});
  CHECK_FALSE(opened.altered);
}

TEST_CASE("frames longer than any message are refused before they are waited for") {
  std::string stream("\xff\xff\xff\xff\1\0\0\0", sizeof(FrameHead));
  CHECK_THROWS_AS(take_frames(stream, [](std::string_view) {}), Error);
}

}  // namespace
}  // namespace sirtaki
