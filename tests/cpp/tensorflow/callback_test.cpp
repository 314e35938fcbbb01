#include "tensorflow/callback.h"

#include <functional>
#include <memory>
#include <string>

#include "doctest/doctest.h"

// What we take for TensorFlow's callback is libstdc++'s std::function, word by word.
#ifdef __GLIBCXX__
namespace sirtaki::tf {
namespace {

const Callback& callback_of(const std::function<void()>& function) {
  return Callback::at(&function);
}

TEST_CASE("a callback calls the function that it lies on") {
  int calls = 0;
  const std::function<void()> function = [&calls] { ++calls; };
  callback_of(function)();
  callback_of(function)();
  CHECK(calls == 2);
}

TEST_CASE("a copy of a callback outlives the function, and holds what that held until it goes") {
  const auto held = std::make_shared<int>(0);
  // Larger than what a std::function keeps in itself, and smaller.
  for (const bool large : {false, true}) {
    CAPTURE(large);
    std::function<void()> function = [held] { ++*held; };
    if (large) {
      function = [held, room = std::string("of another size"), more = 1.5] {
        *held += static_cast<int>(room.size() + more) > 0 ? 1 : 0;
      };
    }
    *held = 0;
    {
      const Callback copy = callback_of(function);
      const Callback second = copy;
      CHECK(held.use_count() == 4);
      function = nullptr;
      copy();
      second();
      CHECK(*held == 2);
    }
    CHECK(held.use_count() == 1);
  }
}

}  // namespace
}  // namespace sirtaki::tf
#endif
