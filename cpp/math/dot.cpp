#include "math/dot.h"

#include <algorithm>
#include <vector>

#include "math/reduce_levels.h"

namespace sirtaki {
namespace {

constexpr size_t kBlock = 1024;  // elements; blocks of a few sources stay in the innermost cache

struct alignas(64) Block {
  double numbers[kBlock];
};

const void* at(const void* source, size_t bytes) {
  return static_cast<const unsigned char*>(source) + bytes;
}

void multiply_blocks(const DotKernels& kernels, double* gram, Dtype dtype, const void* const* srcs,
                     int n, size_t count) {
  std::vector<Block> widened(kernels.widen != nullptr ? static_cast<size_t>(n) : 0);
  std::vector<const void*> blocks(static_cast<size_t>(n));
  for (size_t done = 0; done < count; done += kBlock) {
    size_t elements = std::min(kBlock, count - done);
    for (size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = at(srcs[i], done * size_of(dtype));
      if (kernels.widen == nullptr) continue;
      kernels.widen(widened[i].numbers, blocks[i], elements);
      blocks[i] = widened[i].numbers;
    }
    if (kernels.widen != nullptr) {
      elements = (elements + kWidenedUnit - 1) / kWidenedUnit * kWidenedUnit;
    }
    for (int i = 0; i < n; ++i) {
      for (int j = i; j < n; ++j) {
        gram[i * n + j] +=
            kernels.dot(blocks[static_cast<size_t>(i)], blocks[static_cast<size_t>(j)], elements);
      }
    }
  }
}

}  // namespace

void add_gram_for_level(Level level, double* gram, Dtype dtype, const void* const* srcs, int n,
                        size_t count) {
  multiply_blocks(dot_kernels(level, dtype), gram, dtype, srcs, n, count);
}

void add_gram(double* gram, Dtype dtype, const void* const* srcs, int n, size_t count) {
  add_gram_for_level(best_level(), gram, dtype, srcs, n, count);
}

}  // namespace sirtaki
