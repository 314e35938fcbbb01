// Compiled with -fno-exceptions: pthread_cleanup_push then runs its handler before any of our
// frames is unwound. To unwind one, the C++ library has to belong to the process's unwinder, and
// the one in the wheels does not.
#include "python/gil.h"

#include <pthread.h>
#include <unistd.h>

namespace sirtaki {

void stay() {
  for (;;) pause();
}

namespace {

void handler(void*) { stay(); }

}  // namespace

void take_gil(PyThreadState* state) {
  pthread_cleanup_push(handler, nullptr);
  PyEval_RestoreThread(state);
  pthread_cleanup_pop(0);
}

void ensure_gil(PyGILState_STATE* state) {
  pthread_cleanup_push(handler, nullptr);
  *state = PyGILState_Ensure();
  pthread_cleanup_pop(0);
}

}  // namespace sirtaki
