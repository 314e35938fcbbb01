#include <doctest/doctest.h>

#include "math/reduce_levels.h"

namespace sirtaki {

#if defined(__x86_64__)
TEST_CASE("the highest level is used that the compiler's own library says the processor has") {
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") != 0;
  const bool v4 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  CHECK((find_kernels(Level::kV3) != nullptr) == v3);
  CHECK((find_kernels(Level::kV4) != nullptr) == (v3 && v4));
}
#endif

}  // namespace sirtaki
