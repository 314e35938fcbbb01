#pragma once

#include <pthread.h>

#include <mutex>

namespace sirtaki::heap {

/// A mutex of the C library alone: under every program's free there is no room for another one's
/// C++ library.
class Mutex {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// Holds a mutex for a scope.
using Lock = std::lock_guard<Mutex>;

}  // namespace sirtaki::heap
