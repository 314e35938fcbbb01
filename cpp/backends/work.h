#pragma once

#include <memory>

#include "base/awaited.h"
#include "base/frame_pool.h"
#include "transport/memory/doorbell.h"

namespace sirtaki {

/// An operation in progress. Destroying it before it is done abandons it.
class Work {
 public:
  virtual ~Work() = default;

  static void* operator new(size_t bytes) { return FramePool::take(bytes, nullptr); }
  static void* operator new(size_t bytes, FramePool& pool) { return FramePool::take(bytes, &pool); }
  static void operator delete(void* memory) noexcept { FramePool::give(memory); }
  static void operator delete(void* memory, FramePool&) noexcept { FramePool::give(memory); }

  /// Does what it can without waiting; true when the operation is done. Throws the operation's
  /// error.
  virtual bool advance() = 0;
  /// Whether `advance` would make progress; also moves bytes in transit.
  virtual bool is_ready() = 0;
  /// Adds the events that it waits for.
  virtual void prepare(Sleep& sleep) const = 0;
  /// Describes the wait for users.
  virtual Awaited awaited() const = 0;
};

using WorkPtr = std::unique_ptr<Work>;

/// Gives the work this thread until it is done.
inline void finish(Work& work, const Doorbell& doorbell) {
  const auto prepare = [&] {
    Sleep sleep;
    work.prepare(sleep);
    return sleep;
  };
  while (!work.advance()) doorbell.wait([&] { return work.is_ready(); }, prepare);
}

}  // namespace sirtaki
