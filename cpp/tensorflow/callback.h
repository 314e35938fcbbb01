#pragma once

#include <cstddef>

namespace sirtaki::tf {

/// TensorFlow's callback is a std::function<void()> of libstdc++, whatever C++ library this is
/// built with: these are its words, in the layout of that library since GCC 4.
class Callback {
 public:
  /// Interprets the memory there as such an object; it must not be empty.
  static const Callback& at(const void* function) {
    return *static_cast<const Callback*>(function);
  }

  Callback(const Callback& other) : manage_(other.manage_), call_(other.call_) {
    manage_(target_, other.target_, kCopy);
  }
  ~Callback() { manage_(target_, target_, kDestroy); }
  Callback& operator=(const Callback&) = delete;

  void operator()() const { call_(target_); }

  /// The words that point to functions, by which it can be recognised.
  const void* manager() const { return reinterpret_cast<const void*>(manage_); }
  const void* caller() const { return reinterpret_cast<const void*>(call_); }

 private:
  enum Task : int { kCopy = 2, kDestroy = 3 };

  alignas(void*) std::byte target_[2 * sizeof(void*)]{};
  bool (*manage_)(std::byte* to, const std::byte* from, Task task);
  void (*call_)(const std::byte* target);
};
static_assert(sizeof(Callback) == 4 * sizeof(void*));

}  // namespace sirtaki::tf
