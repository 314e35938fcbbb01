#define SIRTAKI_VECTOR_BYTES 16
#include "math/reduce_kernels.h"

namespace sirtaki {

constinit const Kernels kKernelsBaseline = SIRTAKI_KERNELS;

}  // namespace sirtaki
