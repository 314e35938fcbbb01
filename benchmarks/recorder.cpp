// So many operations written down as the engine does it, from being asked for to their end.
//
// recorder COUNT
#include "engine/observe/recorder.h"

#include <cstdlib>

#include "transport/memory/region.h"

int main(int argc, char** argv) {
  using namespace sirtaki;
  const long count = argc > 1 ? std::atol(argv[1]) : 0;
  const std::shared_ptr<Region> region = Region::anonymous(1);
  Recorder recorder(region->records(0));
  Request request;
  request.kind = Kind::kAllreduce;
  request.dtype = Dtype::kF32;
  request.name = "allreduce.layer.weight";
  request.shapes = {{1000}};
  for (long i = 0; i < count; ++i) {
    const Recorder::Number number = recorder.submitted(request, 0);
    recorder.agreed(number);
    recorder.begun(number);
    recorder.ended(number, true);
  }
}
