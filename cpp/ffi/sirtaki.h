/* The engine's operations in plain C: for libraries in other languages, and for those that may link
 * neither the core nor Python. They get the table's address from Python, by `sirtaki.ffi.address()`
 * or the capsule `sirtaki.ffi.capsule()`, and check `version` and `struct_size`.
 *
 * Every function may be called from any thread, and none throws. */
#ifndef SIRTAKI_H_
#define SIRTAKI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented when an existing item changes its meaning; additions at the ends of structures only
 * make them larger. */
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
  SIRTAKI_F8E8M0FNU = 20,
  SIRTAKI_F4E2M1FN_X2 = 21, /* two in a byte */
  SIRTAKI_F8E3M4 = 22,
  SIRTAKI_F8E4M3 = 23,
  SIRTAKI_F8E4M3B11FNUZ = 24,
  SIRTAKI_F6E2M3FN = 25,
  SIRTAKI_F6E3M2FN = 26,
  SIRTAKI_F4E2M1FN = 27,
  SIRTAKI_I1 = 28, /* this and the next five: a byte each */
  SIRTAKI_I2 = 29,
  SIRTAKI_I4 = 30,
  SIRTAKI_U1 = 31,
  SIRTAKI_U2 = 32,
  SIRTAKI_U4 = 33,
  SIRTAKI_BC32 = 34 /* two bfloat16 */
};

/* Reductions. */
enum {
  SIRTAKI_AVERAGE = 0,
  SIRTAKI_SUM = 1,
  SIRTAKI_ADASUM = 2,
  SIRTAKI_MIN = 3, /* this and the next: not for complex numbers */
  SIRTAKI_MAX = 4,
  SIRTAKI_PRODUCT = 5,
  SIRTAKI_BIT_AND = 6, /* this and the next two: integers and bools only */
  SIRTAKI_BIT_OR = 7,
  SIRTAKI_BIT_XOR = 8
};

/* The format in which numbers travel; they are summed as float32. For an allreduce of float32, but
 * not SIRTAKI_ADASUM. */
enum {
  SIRTAKI_CODEC_OWN = 0,
  SIRTAKI_CODEC_F16 = 1,
  SIRTAKI_CODEC_BF16 = 2,
  SIRTAKI_CODEC_INT8 = 3, /* a scale for every 60 numbers of a tensor; only sums and averages */
  SIRTAKI_CODEC_INT4 = 4  /* the same with half the bits */
};

/* The outcome of an operation. */
enum {
  SIRTAKI_OK = 0,
  SIRTAKI_INTERNAL = 1,  /* it failed; the world may be over */
  SIRTAKI_PEER_LOST = 2, /* a rank died or does not answer */
  SIRTAKI_TIMEOUT = 3,   /* some ranks never submitted it */
  SIRTAKI_MISMATCH = 4,  /* ranks disagree on shape, dtype, operation or root */
  SIRTAKI_INVALID = 5    /* the request is wrong */
};

/* A world in which the process is a rank, and an operation in it. Both are counted: a caller that
 * receives one must release it. An operation keeps its world. */
typedef struct sirtaki_world sirtaki_world;
typedef struct sirtaki_operation sirtaki_operation;

typedef struct sirtaki_tensor {
  const void* input;    /* if the kind reads one; must not change until the operation is done */
  void* output;         /* if the size of the result is known in advance; may be the input. NULL on
                           the root of a broadcast and on the other ranks of a reduce */
  const int64_t* shape; /* of the input, or of the output if there is no input */
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
  /* Called once when the operation is done or has failed, maybe before `submit` returns; it may
   * submit and wait. `operation` lives until it returns, longer if retained. NULL: none. */
  void (*done)(void* user, sirtaki_operation* operation);
  void* user;
  /* How long `submit` may stay in the calling thread to make progress, unless the operation is done
   * earlier: this is the fastest way for small operations. 0: not at all. A rank that is alone
   * always stays. */
  int64_t patience_ns;
} sirtaki_request;

/* Stands for the rank that a message comes from. */
#define SIRTAKI_ANY_SOURCE (-1)

/* A message to or from one other rank. */
typedef struct sirtaki_message {
  size_t struct_size; /* sizeof(sirtaki_message) */
  void* data;         /* must stay in place until the operation is done; a send does not write it */
  size_t bytes;       /* for a receive: at most */
  int32_t rank;       /* of the world; for a receive, SIRTAKI_ANY_SOURCE too */
  int32_t set;        /* number of the process set; 0: the world */
  int64_t tag;        /* not negative */
  /* Memory for a received message of any size, instead of `data`; NULL: `data`. Must not use the
   * engine. Returning NULL fails this receive, not the send. */
  void* (*allocate)(void* user, size_t bytes);
  /* As in sirtaki_request. */
  void (*done)(void* user, sirtaki_operation* operation);
  void* user;
} sirtaki_message;

/* A received message, without its data. */
typedef struct sirtaki_received {
  size_t bytes;
  int64_t tag;
  int32_t source;
} sirtaki_received;

/* An operation, for a hook; texts live until the hook returns. */
typedef struct sirtaki_event {
  int32_t kind; /* SIRTAKI_ALLREDUCE …, or one of the engine's own */
  int32_t dtype;
  int32_t set;
  int32_t status; /* SIRTAKI_OK, or why it failed */
  int64_t bytes;  /* of this rank's tensors */
  const char* name;
  const char* message; /* of the error; "" */
} sirtaki_event;

/* Functions to call for every operation of this rank: before it begins, in the submitting thread;
 * when it is done; and when it has failed. Any thread may call the last two, also after `wait` has
 * returned. NULL: not wanted. Each gets `user`. */
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
  /* The number of members of a process set, of which the first `capacity` are written to `ranks`;
   * -1: there is no such set. */
  int64_t (*members)(sirtaki_world*, int32_t set, int32_t* ranks, size_t capacity);

  /* Never NULL: an operation that cannot be begun is done, with its error. */
  sirtaki_operation* (*submit)(sirtaki_world*, const sirtaki_request*);
  int32_t (*poll)(const sirtaki_operation*); /* 1: done */
  /* 1: done; 0: not within `timeout_ns` (negative: no limit). */
  int32_t (*wait)(sirtaki_operation*, int64_t timeout_ns);
  void (*retain)(sirtaki_operation*);
  void (*release)(sirtaki_operation*);

  /* For finished operations. Texts and results live as long as the operation. */
  int32_t (*status)(const sirtaki_operation*);
  const char* (*message)(const sirtaki_operation*); /* of the error; "" */
  size_t (*result_count)(const sirtaki_operation*);
  sirtaki_result (*result)(const sirtaki_operation*, size_t tensor);
  /* alltoall, allgather: rows from each member, for each tensor in turn. */
  const int64_t* (*received_splits)(const sirtaki_operation*, size_t* count);
  int32_t (*value)(const sirtaki_operation*); /* join: the last rank */

  /* Like `submit`. */
  sirtaki_operation* (*send)(sirtaki_world*, const sirtaki_message*);
  sirtaki_operation* (*receive)(sirtaki_world*, const sirtaki_message*);
  /* For finished receives. */
  sirtaki_received (*received)(const sirtaki_operation*);

  /* Returns a number for `remove_hooks`; 0: they have another version. */
  int64_t (*add_hooks)(sirtaki_world*, const sirtaki_hooks*);
  /* A hook that is being called may return later than this. */
  void (*remove_hooks)(sirtaki_world*, int64_t number);
} sirtaki_table;

#ifdef __cplusplus
}
#endif

#endif /* SIRTAKI_H_ */
