#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backends/backend.h"
#include "engine/handle.h"
#include "engine/process_sets.h"
#include "engine/request.h"

namespace sirtaki {

/// One operation of a batch; `entry` is empty on a joined rank.
struct Item {
  std::shared_ptr<const Response> response;
  uint64_t ordinal = 0;
  std::unique_ptr<Entry> entry;
};

/// Turns a batch of agreed operations into one call of the backend.
class Executor {
 public:
  /// Only `run` changes `sets`, and holds `sets_mutex` while it does.
  Executor(Backend& backend, ProcessSets& sets, std::mutex& sets_mutex, int rank);

  /// Runs a batch of operations that may be fused; afterwards the handles' results are set.
  void run(std::vector<Item>& batch);

 private:
  struct Work {
    Op op;
    Streams in;
    Streams out;
    std::vector<Buffer> zeros;  ///< what a joined rank contributes
  };

  void add_same_shape(Work& work, Item& item);
  void add_allgather(Work& work, Item& item);
  void add_alltoall(Work& work, Item& item);
  void add_reducescatter(Work& work, Item& item);
  void add_scatter(Work& work, Item& item);
  void find_longest(Work& work, const std::vector<Item>& batch) const;
  void change_sets(Item& item);

  Backend& backend_;
  ProcessSets& sets_;
  std::mutex& sets_mutex_;
  int rank_;
};

}  // namespace sirtaki
