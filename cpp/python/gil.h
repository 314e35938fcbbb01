#pragma once

#include <Python.h>

#include <exception>
#include <type_traits>

namespace sirtaki {

/// Before Python 3.14, an ending interpreter makes a thread that wants its lock exit, which unwinds
/// that thread's C++ frames and so ends the process. As in Python 3.14, let the thread stay where
/// it is until the process has ended.
[[noreturn]] void stay();

/// PyEval_RestoreThread and PyGILState_Ensure, which stay where an interpreter ends.
void take_gil(PyThreadState* state);
void ensure_gil(PyGILState_STATE* state);

/// Releases the interpreter to other threads, while it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { take_gil(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

/// Calls while holding the interpreter's lock, from any thread, as long as the interpreter lives.
template <class Call>
auto with_gil(Call call) {
  PyGILState_STATE state;
  ensure_gil(&state);
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      PyGILState_Release(state);
    } else {
      auto result = call();
      PyGILState_Release(state);
      return result;
    }
  } catch (...) {
    if (!std::current_exception()) stay();  // the thread exits while `call` wants the lock again
    PyGILState_Release(state);
    throw;
  }
}

/// Whether nanobind's std::shared_ptr of an object of Python owns the C++ object alone. Others own
/// the Python object, and want the interpreter's lock by themselves to drop it.
template <class T>
concept OwnedWithoutPython = requires(T object) { object.weak_from_this(); };

}  // namespace sirtaki
