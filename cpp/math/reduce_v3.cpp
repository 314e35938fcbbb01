#if defined(__x86_64__)

#if !defined(__AVX2__) || !defined(__F16C__)
#error "compile this file with -mavx2 -mf16c"
#endif

#define SIRTAKI_VECTOR_BYTES 32
#include "math/reduce_kernels.h"

namespace sirtaki {

constinit const Kernels kKernelsV3 = SIRTAKI_KERNELS;

}  // namespace sirtaki

#endif
