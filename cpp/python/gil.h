#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <exception>
#include <type_traits>

namespace sirtaki {

/// Before Python 3.14, an ending interpreter makes a thread that wants its lock exit, which unwinds
/// that thread's C++ frames and so ends the process by std::terminate. As in Python 3.14, let the
/// thread stay where it is until the process has ended.
[[noreturn]] inline void stay() {
  for (;;) pause();
}

/// Stays when its frame is unwound by the thread's exit. libstdc++ shows that unwinding to
/// handlers, libc++ only to destructors.
class StayAtExit {
 public:
  StayAtExit() = default;
  ~StayAtExit() {
    if (!returned_) stay();
  }
  StayAtExit(const StayAtExit&) = delete;
  StayAtExit& operator=(const StayAtExit&) = delete;

  /// The frame ends by a return or an exception.
  void returned() { returned_ = true; }

 private:
  bool returned_ = false;
};

/// Releases the interpreter to other threads, while it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  // Compilers leave out the clean-up of a frame that may not throw.
  ~WithoutGil() noexcept(false) {
    StayAtExit guard;
    PyEval_RestoreThread(state_);
    guard.returned();
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

/// Calls while holding the interpreter's lock, from any thread, as long as the interpreter lives.
template <class Call>
auto with_gil(Call call) {
  StayAtExit guard;
  const PyGILState_STATE state = PyGILState_Ensure();
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      PyGILState_Release(state);
      guard.returned();
    } else {
      auto result = call();
      PyGILState_Release(state);
      guard.returned();
      return result;
    }
  } catch (...) {
    if (!std::current_exception()) stay();  // the thread's exit is no C++ exception
    PyGILState_Release(state);
    guard.returned();
    throw;
  }
}

}  // namespace sirtaki
