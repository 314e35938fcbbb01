/* The engine's operations in plain C: for libraries in other languages, and for those that may link
 * neither the core nor Python. They get the table's address from Python, `sirtaki.ffi.address()`
 * or the capsule `sirtaki.ffi.capsule()`, and check `version` and `struct_size`.
 *
 * Every function may be called from any thread, none throws. */
#ifndef SIRTAKI_H_
#define SIRTAKI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something that exists changes its meaning; what is added at the ends of structures
 * only makes them larger. */
#define SIRTAKI_FFI_VERSION 1

/* Operations. */
enum {
  SIRTAKI_ALLREDUCE = 0,
  SIRTAKI_ALLGATHER = 1,
  SIRTAKI_BROADCAST = 2,
  SIRTAKI_ALLTOALL = 3,
  SIRTAKI_REDUCESCATTER = 4,
  SIRTAKI_BARRIER = 5,
  SIRTAKI_REDUCE = 6,
  SIRTAKI_GATHER = 7,
  SIRTAKI_JOIN = 9
};

/* Types of elements. */
enum {
  SIRTAKI_BOOL = 0,
  SIRTAKI_U8 = 1,
  SIRTAKI_I8 = 2,
  SIRTAKI_I16 = 3,
  SIRTAKI_I32 = 4,
  SIRTAKI_I64 = 5,
  SIRTAKI_F16 = 6,
  SIRTAKI_BF16 = 7,
  SIRTAKI_F32 = 8,
  SIRTAKI_F64 = 9,
  SIRTAKI_U16 = 10,
  SIRTAKI_U32 = 11,
  SIRTAKI_U64 = 12,
  SIRTAKI_C32 = 13, /* two float16 */
  SIRTAKI_C64 = 14,
  SIRTAKI_C128 = 15,
  SIRTAKI_F8E4M3FN = 16, /* this and the next ones are moved, but not reduced */
  SIRTAKI_F8E4M3FNUZ = 17,
  SIRTAKI_F8E5M2 = 18,
  SIRTAKI_F8E5M2FNUZ = 19,
  SIRTAKI_F8E8M0FNU = 20
};

/* Reductions. */
enum {
  SIRTAKI_AVERAGE = 0,
  SIRTAKI_SUM = 1,
  SIRTAKI_ADASUM = 2,
  SIRTAKI_MIN = 3, /* not of complex numbers, as the next one */
  SIRTAKI_MAX = 4,
  SIRTAKI_PRODUCT = 5,
  SIRTAKI_BIT_AND = 6, /* of integers and bools, as the next two */
  SIRTAKI_BIT_OR = 7,
  SIRTAKI_BIT_XOR = 8
};

/* What numbers are rounded to on their way; they are summed as float32. For an allreduce of
 * float32, but not SIRTAKI_ADASUM. */
enum {
  SIRTAKI_CODEC_OWN = 0,
  SIRTAKI_CODEC_F16 = 1,
  SIRTAKI_CODEC_BF16 = 2,
  SIRTAKI_CODEC_INT8 = 3 /* a scale for every 60 numbers of a tensor; sums and averages alone */
};

/* What became of an operation. */
enum {
  SIRTAKI_OK = 0,
  SIRTAKI_INTERNAL = 1,  /* it failed; the world may be over */
  SIRTAKI_PEER_LOST = 2, /* a rank died or does not answer */
  SIRTAKI_TIMEOUT = 3,   /* some ranks never submitted it */
  SIRTAKI_MISMATCH = 4,  /* ranks disagree on shape, dtype, operation or root */
  SIRTAKI_INVALID = 5    /* the request is wrong */
};

/* A world that a process is a rank of, and an operation in it. Both are counted: who is given one
 * releases it. An operation keeps its world. */
typedef struct sirtaki_world sirtaki_world;
typedef struct sirtaki_operation sirtaki_operation;

typedef struct sirtaki_tensor {
  const void* input;    /* where the kind reads one; stays as it is until the operation is done */
  void* output;         /* where the size of the result is known before; may be the input */
  const int64_t* shape; /* of the input, or of the output where there is no input */
  size_t dimensions;
} sirtaki_tensor;

/* A result whose size the ranks have agreed on. */
typedef struct sirtaki_result {
  const void* data;
  size_t bytes;
  const int64_t* shape;
  size_t dimensions;
} sirtaki_result;

typedef struct sirtaki_request {
  size_t struct_size; /* sizeof(sirtaki_request) */
  int32_t kind;       /* SIRTAKI_ALLREDUCE … */
  int32_t dtype;
  int32_t reduce;
  int32_t root;  /* rank of the world */
  int32_t set;   /* number of the process set; 0: the world */
  int32_t codec; /* SIRTAKI_CODEC_OWN … */
  double prescale;
  double postscale;
  const char* name; /* the same on all ranks; empty: matched by the order of submission */
  size_t name_bytes;
  const sirtaki_tensor* tensors; /* of one dtype */
  size_t tensor_count;
  const int64_t* splits; /* alltoall: rows for each member */
  size_t split_count;
  /* Memory for a result whose size the ranks agree on; NULL: the operation owns it. Must not use
   * the engine. Returning NULL fails this rank's operation, not the others'. */
  void* (*allocate)(void* user, size_t tensor, const int64_t* shape, size_t dimensions,
                    size_t bytes);
  /* Called once when the operation is done, well or not, maybe before `submit` returns; it may
   * submit and wait. `operation` lives until it returns, longer if retained. NULL: none. */
  void (*done)(void* user, sirtaki_operation* operation);
  void* user;
  /* How long `submit` may stay, unless the operation is done before, and make progress in the
   * thread that calls it: so what is small is done soonest. 0: not at all. A rank that is alone
   * always stays. */
  int64_t patience_ns;
} sirtaki_request;

/* In place of the rank that a message comes from. */
#define SIRTAKI_ANY_SOURCE (-1)

/* A message to or from one other rank. */
typedef struct sirtaki_message {
  size_t struct_size; /* sizeof(sirtaki_message) */
  void* data;         /* stays where it is until the operation is done; not written by a send */
  size_t bytes;       /* of a receive: at most */
  int32_t rank;       /* of the world; of a receive SIRTAKI_ANY_SOURCE too */
  int32_t set;        /* number of the process set; 0: the world */
  int64_t tag;        /* not negative */
  /* Memory for a message that is received, of whatever size, in place of `data`; NULL: `data`. Must
   * not use the engine. Returning NULL fails this receive, not the send. */
  void* (*allocate)(void* user, size_t bytes);
  /* As in sirtaki_request. */
  void (*done)(void* user, sirtaki_operation* operation);
  void* user;
} sirtaki_message;

/* What a receive has got. */
typedef struct sirtaki_received {
  size_t bytes;
  int64_t tag;
  int32_t source;
} sirtaki_received;

/* An operation, for who hears of it; texts live until the hook returns. */
typedef struct sirtaki_event {
  int32_t kind; /* SIRTAKI_ALLREDUCE …, or one of the engine's own */
  int32_t dtype;
  int32_t set;
  int32_t status; /* SIRTAKI_OK, or what it has failed with */
  int64_t bytes;  /* of this rank's tensors */
  const char* name;
  const char* message; /* of what failed it; "" */
} sirtaki_event;

/* Who hears of every operation of this rank: before it begins, in the thread that asks for it; when
 * it is done; and when it has failed. The last two may be called by any thread, after `wait` has
 * returned too. NULL: not wanted. `user` is given to each. */
typedef struct sirtaki_hooks {
  size_t struct_size; /* sizeof(sirtaki_hooks) */
  void (*before)(void* user, const sirtaki_event*);
  void (*after)(void* user, const sirtaki_event*);
  void (*abort)(void* user, const sirtaki_event*);
  void* user;
} sirtaki_hooks;

typedef struct sirtaki_table {
  size_t struct_size;
  uint32_t version;

  /* The world of init(), retained; NULL: there is none. */
  sirtaki_world* (*current)(void);
  void (*retain_world)(sirtaki_world*);
  void (*release_world)(sirtaki_world*);
  int32_t (*rank)(const sirtaki_world*);
  int32_t (*size)(const sirtaki_world*);
  /* Number of members of a process set, of which the first `capacity` go to `ranks`; -1: there is
   * no such set. */
  int64_t (*members)(sirtaki_world*, int32_t set, int32_t* ranks, size_t capacity);

  /* Never NULL: an operation that cannot be begun is done, with its error. */
  sirtaki_operation* (*submit)(sirtaki_world*, const sirtaki_request*);
  int32_t (*poll)(const sirtaki_operation*); /* 1: done */
  /* 1: done; 0: not within `timeout_ns` (negative: no limit). */
  int32_t (*wait)(sirtaki_operation*, int64_t timeout_ns);
  void (*retain)(sirtaki_operation*);
  void (*release)(sirtaki_operation*);

  /* Of operations that are done. Texts and results live as long as the operation. */
  int32_t (*status)(const sirtaki_operation*);
  const char* (*message)(const sirtaki_operation*); /* of what failed it; "" */
  size_t (*result_count)(const sirtaki_operation*);
  sirtaki_result (*result)(const sirtaki_operation*, size_t tensor);
  /* alltoall, allgather: rows from each member, of each tensor in turn. */
  const int64_t* (*received_splits)(const sirtaki_operation*, size_t* count);
  int32_t (*value)(const sirtaki_operation*); /* join: the last rank */

  /* As `submit`. */
  sirtaki_operation* (*send)(sirtaki_world*, const sirtaki_message*);
  sirtaki_operation* (*receive)(sirtaki_world*, const sirtaki_message*);
  /* Of receives that are done. */
  sirtaki_received (*received)(const sirtaki_operation*);

  /* Returns a number for `remove_hooks`; 0: they are of another version. */
  int64_t (*add_hooks)(sirtaki_world*, const sirtaki_hooks*);
  /* One that is being called may return later. */
  void (*remove_hooks)(sirtaki_world*, int64_t number);
} sirtaki_table;

#ifdef __cplusplus
}
#endif

#endif /* SIRTAKI_H_ */
