#if defined(__x86_64__)

#if !defined(__AVX512F__) || !defined(__AVX512BW__)
#error "compile this file with -mavx512f -mavx512bw"
#endif

#define SIRTAKI_VECTOR_BYTES 64
#include "math/reduce_kernels.h"

namespace sirtaki {

constinit const Kernels kKernelsV4 = SIRTAKI_KERNELS;

}  // namespace sirtaki

#endif
