#pragma once

#include <cstddef>

#include "math/dtype.h"

namespace sirtaki {

/// gram[i * n + j] += sum over elements of srcs[i][e] * srcs[j][e], for i <= j.
/// Products are summed in the elements' precision (16-bit floats: float32) over short runs, in
/// float64 over all of them, and not in the same order on each processor. Floating point dtypes
/// only: Error(kInvalid) otherwise.
void add_gram(double* gram, Dtype dtype, const void* const* srcs, int n, size_t count);

}  // namespace sirtaki
