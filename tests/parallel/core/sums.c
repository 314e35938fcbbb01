/* A library that calls the engine without linking it, from several threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sirtaki.h"

#define COUNT 200
#define ELEMENTS 300

static const sirtaki_table* table;
static sirtaki_world* world;
static atomic_int wrong;

struct task {
  int thread;
  int number;
  atomic_int called;
  float values[ELEMENTS];
};

static sirtaki_request request_of(int kind, const char* name, const sirtaki_tensor* tensor) {
  sirtaki_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.kind = kind;
  request.dtype = SIRTAKI_F32;
  request.reduce = SIRTAKI_SUM;
  request.prescale = request.postscale = 1.0;
  request.name = name;
  request.name_bytes = strlen(name);
  request.tensors = tensor;
  request.tensor_count = 1;
  return request;
}

static void summed(void* user, sirtaki_operation* operation) {
  struct task* task = user;
  const float ranks = (float)table->size(world);
  if (table->status(operation) != SIRTAKI_OK) wrong++;
  for (int i = 0; i < ELEMENTS; ++i) wrong += task->values[i] != ranks * (float)task->number;
  task->called++;
}

static void* run(void* argument) {
  struct task* task = malloc(sizeof *task);
  const int64_t shape = ELEMENTS;
  task->thread = (int)(intptr_t)argument;
  task->called = 0;
  for (task->number = 0; task->number < COUNT; ++task->number) {
    char name[32] = "c.";
    name[2] = (char)('a' + task->thread);
    for (int i = 0; i < ELEMENTS; ++i) task->values[i] = (float)task->number;
    const sirtaki_tensor tensor = {task->values, task->values, &shape, 1};
    sirtaki_request request = request_of(SIRTAKI_ALLREDUCE, name, &tensor);
    request.done = summed;
    request.user = task;
    sirtaki_operation* operation = table->submit(world, &request);
    wrong += table->wait(operation, -1) != 1 || table->poll(operation) != 1;
    /* The memory is used again: the callback, maybe another thread's, must have been made. */
    for (int tries = 0; task->called <= task->number && tries < 10000; ++tries) {
      const struct timespec pause = {0, 1000000};
      nanosleep(&pause, NULL);
    }
    table->release(operation);
  }
  wrong += task->called != COUNT;
  free(task);
  return NULL;
}

/* Returns how many things went wrong; -1: another version, -2: no world. */
int sum_from_threads(const void* address, int threads) {
  pthread_t started[16];
  table = address;
  if (table->version != SIRTAKI_FFI_VERSION || table->struct_size < sizeof *table) return -1;
  world = table->current();
  if (world == NULL) return -2;
  wrong = 0;
  for (int t = 0; t < threads; ++t) {
    pthread_create(&started[t], NULL, run, (void*)(intptr_t)t);
  }
  for (int t = 0; t < threads; ++t) pthread_join(started[t], NULL);
  table->release_world(world);
  return wrong;
}

static void* take(void* user, size_t tensor, const int64_t* shape, size_t dimensions,
                  size_t bytes) {
  (void)tensor;
  wrong += dimensions != 1 || shape[0] * (int64_t)sizeof(float) != (int64_t)bytes;
  return user;
}

/* Gathers rank + 1 elements from each rank into `memory`; returns what went wrong. */
int gather_into(const void* address, float* memory) {
  table = address;
  world = table->current();
  const int64_t rows = table->rank(world) + 1;
  float own[64];
  for (int64_t i = 0; i < rows; ++i) own[i] = (float)table->rank(world);
  const sirtaki_tensor tensor = {own, NULL, &rows, 1};
  sirtaki_request request = request_of(SIRTAKI_ALLGATHER, "c.parts", &tensor);
  request.allocate = take;
  request.user = memory;
  wrong = 0;
  sirtaki_operation* operation = table->submit(world, &request);
  table->wait(operation, -1);
  wrong += table->status(operation) != SIRTAKI_OK || table->result_count(operation) != 1;
  if (wrong == 0) wrong += table->result(operation, 0).data != memory;
  table->release(operation);
  table->release_world(world);
  return wrong;
}

/* Asks for what cannot be; returns the status and leaves the text in `text`. */
int ask_for_nonsense(const void* address, int set, size_t struct_size, char* text, size_t bytes) {
  table = address;
  world = table->current();
  const int64_t rows = 1;
  float value = 1;
  const sirtaki_tensor tensor = {&value, &value, &rows, 1};
  sirtaki_request request = request_of(SIRTAKI_ALLREDUCE, "c.nonsense", &tensor);
  request.set = set;
  request.struct_size = struct_size;
  sirtaki_operation* operation = table->submit(world, &request);
  const int status = table->poll(operation) ? table->status(operation) : -1;
  strncpy(text, table->message(operation), bytes - 1);
  table->release(operation);
  table->release_world(world);
  return status;
}

static void got(void* user, sirtaki_operation* operation) {
  wrong += table->status(operation) != SIRTAKI_OK;
  ++*(atomic_int*)user;
}

static void* into(void* user, size_t bytes) {
  wrong += bytes != 3 * sizeof(float);
  return user;
}

static sirtaki_message message_of(int rank, void* data, size_t bytes) {
  sirtaki_message message;
  memset(&message, 0, sizeof message);
  message.struct_size = sizeof message;
  message.rank = rank;
  message.tag = 77;
  message.data = data;
  message.bytes = bytes;
  return message;
}

/* Sends three elements around the ranks, the first time into memory of the caller's and with a
 * callback, then where an allocator says; returns what went wrong. */
int pass_around(const void* address) {
  table = address;
  world = table->current();
  wrong = 0;
  const int rank = table->rank(world), size = table->size(world);
  for (int round = 0; round < 2; ++round) {
    float own[3] = {(float)rank, 1, 2}, others[3] = {-1, -1, -1};
    atomic_int calls = 0;
    sirtaki_message in = message_of(round ? SIRTAKI_ANY_SOURCE : (rank + size - 1) % size, others,
                                    sizeof others);
    if (round) {
      in.allocate = into;
      in.data = NULL;
      in.user = others;
    } else {
      in.done = got;
      in.user = &calls;
    }
    const sirtaki_message out = message_of((rank + 1) % size, own, sizeof own);
    sirtaki_operation* receive = table->receive(world, &in);
    sirtaki_operation* send = table->send(world, &out);
    wrong += table->wait(send, -1) != 1 || table->wait(receive, -1) != 1;
    for (int tries = 0; !round && calls == 0 && tries < 10000; ++tries) {
      const struct timespec pause = {0, 1000000};
      nanosleep(&pause, NULL);
    }
    const sirtaki_received what = table->received(receive);
    wrong += what.source != (rank + size - 1) % size || what.tag != 77;
    wrong += what.bytes != sizeof own || others[0] != (float)what.source || others[2] != 2;
    wrong += calls != !round;
    table->release(send);
    table->release(receive);
  }
  table->release_world(world);
  return wrong;
}

/* Sends to a rank that is not; returns the status and leaves the text in `text`. */
int send_nowhere(const void* address, size_t struct_size, char* text, size_t bytes) {
  table = address;
  world = table->current();
  sirtaki_message message = message_of(table->size(world), text, 0);
  message.struct_size = struct_size;
  sirtaki_operation* operation = table->send(world, &message);
  const int status = table->poll(operation) ? table->status(operation) : -1;
  strncpy(text, table->message(operation), bytes - 1);
  table->release(operation);
  table->release_world(world);
  return status;
}

size_t message_bytes(void) { return sizeof(sirtaki_message); }

/* Whether an operation is done once a patient `submit` returns; -1: it is done and wrong. */
int sum_with_patience(const void* address, int64_t patience_ns, void (*then)(void)) {
  table = address;
  world = table->current();
  float value = 1;
  const sirtaki_tensor tensor = {&value, &value, NULL, 0};
  sirtaki_request request = request_of(SIRTAKI_ALLREDUCE, "c.patience", &tensor);
  request.patience_ns = patience_ns;
  sirtaki_operation* operation = table->submit(world, &request);
  int done = table->poll(operation);
  then();
  table->wait(operation, -1);
  if (table->status(operation) != SIRTAKI_OK || value != (float)table->size(world)) done = -1;
  table->release(operation);
  table->release_world(world);
  return done;
}

size_t request_bytes(void) { return sizeof(sirtaki_request); }
