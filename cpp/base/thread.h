#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace sirtaki {

/// Throws Error if the system cannot start another thread.
template <class Run>
std::thread start_thread(Run run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kInternal, std::string("cannot start a thread: ") + error.what() +
                                          "; raise `ulimit -u` or its container's pids limit");
  }
}

}  // namespace sirtaki
