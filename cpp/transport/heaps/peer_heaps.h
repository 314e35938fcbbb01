#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/fork_mark.h"
#include "heap/heap.h"

namespace sirtaki {

/// The memory of a rank's shared heap, as that rank handed it over; without one it has none.
struct HeapMemory {
  Fd fd{};
  uint64_t bytes = 0;
};

/// The shared heaps of a host's ranks, seen from one of them: what lies in one of them all others
/// can read and write where it is. Ranks are told by their place on the host. Only the driver calls
/// it, except for the counts.
///
/// The others' heaps are mapped when they are first needed, and stay so. A heap never shrinks, so
/// what has been mapped can be touched though its rank has died.
class PeerHeaps {
 public:
  /// `own`: this process's; null: none. `memory`: what the rank at each place has handed over; of
  /// this rank's, at `place`, the bytes alone.
  PeerHeaps(const sirtaki_heap* own, int place, std::vector<HeapMemory> memory);
  /// For ranks that are threads of one process: all have its heap.
  static std::shared_ptr<PeerHeaps> in_process(const sirtaki_heap* own, int place, int ranks);
  ~PeerHeaps();
  PeerHeaps(const PeerHeaps&) = delete;
  PeerHeaps& operator=(const PeerHeaps&) = delete;

  /// Whether the rank has handed one over; all ranks of the host know the same.
  bool has(int place) const { return heap(place).bytes > 0; }
  uint64_t bytes(int place) const { return heap(place).bytes; }
  /// Where it is in this process; null if it cannot be mapped.
  std::byte* base(int place);

  /// Where in the own heap such memory lies; none: it is not in it, or abandoned.
  std::optional<uint64_t> offset_of(const std::byte* data, size_t bytes) const;
  /// The others may write late to this memory of the own heap: it is used for nothing else.
  void abandon(const std::byte* data, size_t bytes) const { own_->abandon(data, bytes); }

  /// Another operation, or message, moved so many bytes directly.
  void count(uint64_t bytes);
  uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }
  uint64_t moved() const { return moved_.load(std::memory_order_relaxed); }

 private:
  struct Heap {
    Fd fd;
    uint64_t bytes;
    std::byte* base;
    bool refused;  ///< it could not be mapped
  };

  const Heap& heap(int place) const { return heaps_[static_cast<size_t>(place)]; }
  void map(Heap& heap) const;

  const sirtaki_heap* own_;
  const int place_;
  const ForkMark mark_;
  std::vector<Heap> heaps_;
  std::atomic<uint64_t> operations_{0};
  std::atomic<uint64_t> moved_{0};
};

}  // namespace sirtaki
