/* The shared heap in plain C: large blocks of memory that the other ranks of the host can map. The
 * library stands alone; who wants to know of it looks for `sirtaki_heap_v1` and checks `version`.
 *
 * Every function may be called from any thread, none throws. */
#ifndef SIRTAKI_HEAP_H_
#define SIRTAKI_HEAP_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something that exists changes its meaning. */
#define SIRTAKI_HEAP_VERSION 1u

/* What the heap holds, in bytes where nothing else is said. */
typedef struct sirtaki_heap_figures {
  uint64_t span;             /* room of the arena; 0: there is none */
  uint64_t live_bytes;       /* in blocks that somebody has */
  uint64_t kept_bytes;       /* free, and kept for the next blocks */
  uint64_t held_bytes;       /* freed, and kept as they are for forks that live */
  uint64_t returned_bytes;   /* given back to the system, all in all */
  uint64_t live_allocations; /* number of blocks that somebody has */
  uint64_t fallbacks;        /* number of blocks for which the arena had no room */
  uint32_t forked;           /* 1: this process is a fork, which allocates elsewhere */
  uint32_t huge_pages;       /* 1: the system gives the arena huge pages */
} sirtaki_heap_figures;

typedef struct sirtaki_heap {
  uint32_t version;
  /* The arena: its address and bytes in this process, and a descriptor of its memory, which stays
   * the heap's own (dup it to keep it). Nobody can change the size of that file. Whoever maps it
   * should keep it out of core dumps (MADV_DONTDUMP), as the heap does: a dump would touch it all.
   * 0: there is an arena, made by the first call; -1: there is
   * none, for the reason that `reason` gives. */
  int (*arena)(void** base, uint64_t* span, int* fd);
  /* 1: [p, p + bytes) lies whole in one live block of the arena that was not abandoned. */
  int (*holds)(const void* p, uint64_t bytes);
  /* Peers may still write into the blocks that [p, p + bytes) touches: they stay where they are,
   * are shared no more, and once freed their place in the arena is never used again. */
  void (*abandon)(const void* p, uint64_t bytes);
  /* A block of the arena, aligned to a page; null: there is no room, or no arena. */
  void* (*allocate)(uint64_t bytes);
  /* Frees what `allocate` gave; null is fine. */
  void (*release)(void* p);
  void (*figures)(sirtaki_heap_figures* out);
  /* One line: why there is no arena, why it serves no tensors, or which setting it did not
   * understand; "" where all is well. */
  const char* (*reason)(void);
} sirtaki_heap;

const sirtaki_heap* sirtaki_heap_v1(void);

#ifdef __cplusplus
}
#endif

#endif /* SIRTAKI_HEAP_H_ */
