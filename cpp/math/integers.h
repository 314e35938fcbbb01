#pragma once

#include <cstdint>

#include "math/dtype.h"
#include "math/reduce.h"

namespace sirtaki {

/// value * factor, truncated toward zero and clamped to the type's range; 0 if the factor is NaN.
/// The product is computed in float64 where float64 represents all integers up to it and the value,
/// and exactly beyond.
int64_t scaled(int64_t value, double factor);
uint64_t scaled(uint64_t value, double factor);

/// A ReduceFn that averages integers: it scales them with `pre`, sums them in a type that holds
/// their sum, scales the sum with `post`, divides it by the number of sources, truncates toward
/// zero and clamps to the dtype's range. Scaled numbers are clamped to 64 bits before they are
/// summed. For integer dtypes only.
ReduceFn average_fn(Dtype dtype);

}  // namespace sirtaki
