#define SIRTAKI_VECTOR_BYTES 16
#include "math/codec_kernels.h"

namespace sirtaki {

constinit const Kernels kKernelsBaseline = SIRTAKI_KERNELS;
constinit const Codec kCodecsBaseline[] = SIRTAKI_CODECS;

}  // namespace sirtaki
