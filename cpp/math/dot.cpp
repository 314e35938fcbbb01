#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "math/reduce_levels.h"

namespace sirtaki {
namespace {

/// Blocks of the sources, one after another; 16-bit floats are converted to float32.
class Blocks {
 public:
  static constexpr size_t kCount = 1024;  // blocks of a few sources stay in the innermost cache

  Blocks(const Kernels& kernels, Dtype dtype, const void* const* srcs, int n)
      : size_(size_of(dtype)), srcs_(srcs, srcs + n), at_(srcs_) {
    if (!is_half(dtype)) return;
    const CodecId id = dtype == Dtype::kF16 ? CodecId::kF16 : CodecId::kBF16;
    widen_ = decode_fn(*find_codec(kernels, id), ReduceOp::kSum);
    widened_.resize(srcs_.size());
  }

  void move_to(size_t element, size_t count) {
    for (size_t k = 0; k < srcs_.size(); ++k) {
      at_[k] = static_cast<const unsigned char*>(srcs_[k]) + element * size_;
      if (widen_ == nullptr) continue;
      widen_(widened_[k].numbers, nullptr, &at_[k], 1, count, {});
      at_[k] = widened_[k].numbers;
    }
  }

  const void* operator[](int source) const { return at_[static_cast<size_t>(source)]; }

 private:
  struct alignas(64) Floats {
    float numbers[kCount];
  };

  size_t size_;
  std::vector<const void*> srcs_;
  std::vector<const void*> at_;
  ReduceFn widen_ = nullptr;
  std::vector<Floats> widened_;
};

/// Adds the products of sources i and i + 1 with sources j and j + 1, as far as these exist.
void add_tile(const TileKernels& kernels, double* gram, const Blocks& blocks, int n, int i, int j,
              size_t count) {
  const auto beside = [n](int source) { return std::min(source + 1, n - 1); };
  const void* const at[] = {blocks[i], blocks[beside(i)], blocks[j], blocks[beside(j)]};
  double products[4];
  (i == j ? kernels.same : kernels.any)(products, at, count);
  for (int k = 0; k < 4; ++k) {
    const int row = i + k / 2;
    const int column = j + k % 2;
    if (row <= column && column < n) gram[row * n + column] += products[k];
  }
}

}  // namespace

void add_gram(const Kernels& kernels, double* gram, Dtype dtype, const void* const* srcs, int n,
              size_t count) {
  if (!is_floating(dtype)) {
    throw Error(ErrorCode::kInvalid,
                std::string("Adasum needs floating point tensors, not ") + name(dtype),
                Scope::kAllMembers);
  }
  const TileKernels& products = kernels.products[dtype == Dtype::kF64 ? 1 : 0];
  Blocks blocks(kernels, dtype, srcs, n);
  for (size_t done = 0; done < count; done += Blocks::kCount) {
    const size_t elements = std::min(Blocks::kCount, count - done);
    blocks.move_to(done, elements);
    for (int i = 0; i < n; i += 2) {
      for (int j = i; j < n; j += 2) add_tile(products, gram, blocks, n, i, j, elements);
    }
  }
}

void add_gram(double* gram, Dtype dtype, const void* const* srcs, int n, size_t count) {
  add_gram(best_kernels(), gram, dtype, srcs, n, count);
}

}  // namespace sirtaki
