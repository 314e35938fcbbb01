/* Times operations through the C interface; built by overheads.py. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "sirtaki.h"

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void count(void* user, sirtaki_operation* operation) {
  (void)operation;
  ++*(long*)user;
}

/* Sums `value` over all ranks, each time with a callback, and leaves the seconds of each in
 * `seconds`; returns how many callbacks were made. */
long time_submit(const sirtaki_table* table, float* value, double* seconds, long repeats) {
  sirtaki_world* world = table->current();
  long called = 0;
  const int64_t shape = 1;
  const sirtaki_tensor tensor = {value, value, &shape, 1};
  sirtaki_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.kind = SIRTAKI_ALLREDUCE;
  request.dtype = SIRTAKI_F32;
  request.reduce = SIRTAKI_SUM;
  request.prescale = request.postscale = 1.0;
  request.tensors = &tensor;
  request.tensor_count = 1;
  request.done = count;
  request.user = &called;
  for (long i = 0; i < repeats; ++i) {
    const double begun = now();
    sirtaki_operation* operation = table->submit(world, &request);
    table->wait(operation, -1);
    table->release(operation);
    seconds[i] = now() - begun;
  }
  table->release_world(world);
  return called;
}
