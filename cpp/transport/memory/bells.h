#pragma once

#include <vector>

#include "base/fd.h"

namespace sirtaki {

/// What ends a poll() of a rank of this host, which no futex does: a descriptor each, by place,
/// that all these ranks have. One thread of a rank at a time polls.
class Bells {
 public:
  /// None: no rank polls.
  Bells() = default;
  explicit Bells(std::vector<Fd> descriptors) : descriptors_(std::move(descriptors)) {}
  /// For ranks that are threads of this process.
  static Bells make(int ranks);

  int descriptor(int place) const { return descriptors_[static_cast<size_t>(place)].get(); }

  /// Ends the poll of the rank at `place`, or its next one.
  void ring(int place) const;
  /// What has rung ends no further poll.
  void silence(int place) const;

 private:
  std::vector<Fd> descriptors_;
};

}  // namespace sirtaki
