#include "transport/memory/bells.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/machine.h"

namespace sirtaki {

Bells Bells::make(int ranks) {
  std::vector<Fd> descriptors;
  for (int place = 0; place < ranks; ++place) {
    descriptors.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (descriptors.back().get() >= 0) continue;
    throw Error(ErrorCode::kInternal, std::string("cannot create an eventfd: ") +
                                          std::strerror(errno) + "; raise `ulimit -n`");
  }
  return Bells(std::move(descriptors));
}

void Bells::ring(int place) const {
  if (descriptors_.empty()) return;
  machine::ring(descriptor(place));
}

void Bells::silence(int place) const {
  uint64_t times = 0;
  [[maybe_unused]] const ssize_t got = read(descriptor(place), &times, sizeof times);
}

}  // namespace sirtaki
