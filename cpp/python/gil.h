#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <optional>
#include <type_traits>

namespace sirtaki {

/// Before Python 3.14, an ending interpreter makes a thread that wants its lock exit, which unwinds
/// that thread's C++ frames and so ends the process by std::terminate. As in Python 3.14, let the
/// thread stay where it is until the process has ended.
[[noreturn]] inline void stay() {
  for (;;) pause();
}

/// Releases the interpreter to other threads, while it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      stay();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

/// Calls while holding the interpreter's lock, from any thread, as long as the interpreter lives.
template <class Call>
auto with_gil(Call call) {
  std::optional<PyGILState_STATE> state;
  try {
    state = PyGILState_Ensure();
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      PyGILState_Release(*state);
    } else {
      auto result = call();
      PyGILState_Release(*state);
      return result;
    }
  } catch (const abi::__forced_unwind&) {
    stay();
  } catch (...) {
    PyGILState_Release(*state);
    throw;
  }
}

}  // namespace sirtaki
