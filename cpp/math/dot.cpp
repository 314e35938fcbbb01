#include "math/dot.h"

#include <algorithm>

#include "math/reduce_levels.h"

namespace sirtaki {
namespace {

constexpr size_t kBlockBytes = 8 << 10;  // blocks of a few sources stay in the innermost cache

const void* at(const void* source, size_t bytes) {
  return static_cast<const unsigned char*>(source) + bytes;
}

}  // namespace

void add_gram(double* gram, Dtype dtype, const void* const* srcs, int n, size_t count) {
  const DotFn dot = dot_fn(dtype);
  const size_t block = kBlockBytes / size_of(dtype);
  for (size_t done = 0; done < count; done += block) {
    const size_t elements = std::min(block, count - done);
    const size_t bytes = done * size_of(dtype);
    for (int i = 0; i < n; ++i) {
      for (int j = i; j < n; ++j) {
        gram[i * n + j] += dot(at(srcs[i], bytes), at(srcs[j], bytes), elements);
      }
    }
  }
}

}  // namespace sirtaki
