#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sirtaki {

/// The numbers of operations that are done, from whichever thread finds them so, for a thread of
/// Python that tells who waits.
class Completions {
 public:
  void add(int64_t number);
  /// Those since the last call, once there are some; none after `close`.
  std::vector<int64_t> take();
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> numbers_;
  bool closed_ = false;
};

}  // namespace sirtaki
