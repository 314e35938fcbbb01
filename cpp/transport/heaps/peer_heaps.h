#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/fork_mark.h"
#include "transport/heaps/own_heap.h"

namespace sirtaki {

/// The file of a rank's heap, as that rank handed it over; without a file, it has no heap.
struct HeapMemory {
  Fd fd{};
  uint64_t bytes = 0;
};

/// The heaps of a host's ranks, seen from one of them: all others can read and write in place what
/// lies in one. Ranks are identified by their place on the host. Only the driver calls it, except
/// for the counts.
///
/// The other ranks' heaps are mapped on first use, and stay mapped. A heap never shrinks, so mapped
/// memory can be accessed even after its rank has died.
class PeerHeaps {
 public:
  /// `own`: this process's heap; null: none. `memory`: what the rank at each place handed over; for
  /// this rank, at `place`, the size alone.
  PeerHeaps(OwnHeap* own, int place, std::vector<HeapMemory> memory);
  /// For ranks that are threads of one process: all use its heap.
  static std::shared_ptr<PeerHeaps> in_process(OwnHeap* own, int place, int ranks);
  ~PeerHeaps();
  PeerHeaps(const PeerHeaps&) = delete;
  PeerHeaps& operator=(const PeerHeaps&) = delete;

  /// Whether the rank handed over a heap; all ranks of the host have the same answer.
  bool has(int place) const { return heap(place).bytes > 0; }
  uint64_t bytes(int place) const { return heap(place).bytes; }
  /// The heap's address in this process; null if it cannot be mapped.
  std::byte* base(int place);

  /// The offset of such memory in the own heap; none: it is not in it, or abandoned.
  std::optional<uint64_t> offset_of(const std::byte* data, size_t bytes) const;
  /// Peers may still write late to this memory of the own heap, so it is not reused.
  void abandon(const std::byte* data, size_t bytes) const { own_->abandon(data, bytes); }

  /// Counts another operation, or message, that moved these bytes directly.
  void count(uint64_t bytes);
  uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }
  uint64_t moved() const { return moved_.load(std::memory_order_relaxed); }

 private:
  struct Heap {
    Fd fd;
    uint64_t bytes;
    std::byte* base;
    bool refused;  ///< the system refused to map it
  };

  const Heap& heap(int place) const { return heaps_[static_cast<size_t>(place)]; }
  void map(Heap& heap) const;

  OwnHeap* own_;
  const int place_;
  const ForkMark mark_;
  std::vector<Heap> heaps_;
  std::atomic<uint64_t> operations_{0};
  std::atomic<uint64_t> moved_{0};
};

}  // namespace sirtaki
