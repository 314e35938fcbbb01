#pragma once

#include <cstddef>

#include "math/dtype.h"

namespace sirtaki {

/// gram[i * n + j] += sum over elements of srcs[i][e] * srcs[j][e], for i <= j.
/// Products are made and summed in float64, where those of the other dtypes neither overflow nor
/// vanish, and not in the same order on each processor. Floating point dtypes only: Error(kInvalid)
/// otherwise.
void add_gram(double* gram, Dtype dtype, const void* const* srcs, int n, size_t count);

}  // namespace sirtaki
