#pragma once

#include <string>

#include "heap/heap.h"

namespace sirtaki {

/// The shared heap of this process: the one given to `use_heap`, else the one that was preloaded;
/// null: there is none. It belongs to the process, as malloc does.
const sirtaki_heap* own_heap();

/// From now on `own_heap` is this one; null: the one that was preloaded, if any.
void use_heap(const sirtaki_heap* heap);

/// One line on it for the log. wanted: it was preloaded. failed: and it is not what its user
/// expects.
struct HeapLine {
  std::string text;
  bool wanted;
  bool failed;
};
HeapLine describe_heap();

}  // namespace sirtaki
