#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/machine.h"

namespace sirtaki {

/// Event descriptors, one per place, that end a poll() of a rank of this host, which no futex can.
/// All these ranks have them. Only one thread of a rank polls at a time.
class EventDescriptors {
 public:
  /// No descriptors: no rank polls.
  EventDescriptors() = default;
  explicit EventDescriptors(std::vector<Fd> descriptors) : descriptors_(std::move(descriptors)) {}
  /// For ranks that are threads of this process.
  static EventDescriptors make(int ranks) {
    std::vector<Fd> descriptors;
    for (int place = 0; place < ranks; ++place) {
      descriptors.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (descriptors.back().get() >= 0) continue;
      throw Error(ErrorCode::kInternal, std::string("cannot create an eventfd: ") +
                                            std::strerror(errno) + "; raise `ulimit -n`");
    }
    return EventDescriptors(std::move(descriptors));
  }

  int descriptor(int place) const { return descriptors_[static_cast<size_t>(place)].get(); }

  /// Ends the poll of the rank at `place`, or its next one.
  void ring(int place) const {
    if (!descriptors_.empty()) machine::ring(descriptor(place));
  }
  /// Clears past rings, so that they end no further poll.
  void silence(int place) const {
    uint64_t times = 0;
    [[maybe_unused]] const ssize_t got = read(descriptor(place), &times, sizeof times);
  }

 private:
  std::vector<Fd> descriptors_;
};

}  // namespace sirtaki
