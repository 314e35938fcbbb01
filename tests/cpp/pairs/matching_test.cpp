#include "pairs/matching.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

/// The rule as it is written: lists, looked through from the front.
class Naive {
 public:
  struct Entry {
    int number;
    int source;
    int32_t communicator;
    int64_t tag;
  };

  static bool fit(const Entry& receive, const Entry& message) {
    return receive.communicator == message.communicator && receive.tag == message.tag &&
           (receive.source == kAnySource || receive.source == message.source);
  }
  template <class Fits>
  static std::optional<int> take(std::vector<Entry>& list, Fits fits) {
    const auto found = std::find_if(list.begin(), list.end(), fits);
    if (found == list.end()) return std::nullopt;
    const int number = found->number;
    list.erase(found);
    return number;
  }

  std::vector<Entry> posted;
  std::vector<Entry> arrived;
};

Transfer receive_of(const Naive::Entry& entry) {
  Transfer receive;
  receive.peer = entry.source;
  receive.communicator = entry.communicator;
  receive.tag = entry.tag;
  receive.bytes = static_cast<size_t>(entry.number);  // tells it from others
  return receive;
}

TEST_CASE("receives and messages find each other as in two plain lists") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Naive naive;
    Matching matching;
    for (int number = 0; number < 400; ++number) {
      const auto draw = [&](int most) {
        return static_cast<int>(random() % static_cast<unsigned>(most));
      };
      const bool receives = draw(2) == 0;
      Naive::Entry entry{number, draw(3), draw(2), draw(2)};
      if (receives && draw(3) == 0) entry.source = kAnySource;
      std::optional<int> got;
      std::optional<int> expected;
      if (receives) {
        expected =
            Naive::take(naive.arrived, [&](const auto& other) { return Naive::fit(entry, other); });
        const Transfer receive = receive_of(entry);
        if (const auto message = matching.take_arrived(receive)) {
          got = static_cast<int>(message->bytes);
        } else {
          matching.post(std::make_unique<Transfer>(receive));
          naive.posted.push_back(entry);
        }
      } else {
        expected =
            Naive::take(naive.posted, [&](const auto& other) { return Naive::fit(other, entry); });
        if (const auto receive =
                matching.take_posted(entry.source, entry.communicator, entry.tag)) {
          got = static_cast<int>(receive->bytes);
        } else {
          const Header header{
              Note::kEager, entry.communicator, entry.tag, static_cast<uint64_t>(number), 0, 0};
          matching.keep(std::make_unique<Arrived>(Arrived{header, entry.source}));
          naive.arrived.push_back(entry);
        }
      }
      REQUIRE(got == expected);
    }
    CHECK(matching.drop_posted(0).size() + matching.drop_posted(1).size() == naive.posted.size());
    CHECK(matching.drop_arrived().size() == naive.arrived.size());
    CHECK(matching.find([](const Transfer&) { return true; }) == nullptr);
  }
}

}  // namespace
}  // namespace sirtaki
