#define SIRTAKI_VECTOR_BYTES 16
#include "math/wire_kernels.h"

namespace sirtaki {

constinit const Kernels kKernelsBaseline = SIRTAKI_KERNELS;
constinit const WireKernels kWiresBaseline[] = SIRTAKI_WIRE_KERNELS;

}  // namespace sirtaki
