/* A switch among TAP devices that passes every frame on a fixed time after it came; built by
 * small_sums.py.
 *
 * late_switch MICROSECONDS TAP TAP... ; prints "up" when the devices are there. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { kMostTaps = 64, kFrameBytes = 1600, kQueue = 4096, kAddress = 6 };

struct frame {
  long long due_ns;
  int from;
  ssize_t bytes;
  unsigned char data[kFrameBytes];
};

static struct frame queue[kQueue];
static struct pollfd taps[kMostTaps];
static unsigned char homes[kMostTaps][kAddress]; /* the address that was last seen behind each */

static long long now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int open_tap(const char* name) {
  struct ifreq request;
  memset(&request, 0, sizeof request);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) exit(1);
  return device;
}

/* To its home, or to all others where that is not known. */
static void pass_on(const struct frame* frame, int count) {
  int known = -1;
  for (int i = 0; i < count; ++i) {
    if (memcmp(frame->data, homes[i], kAddress) == 0) known = i;
  }
  for (int i = 0; i < count; ++i) {
    if (i == frame->from || (known >= 0 && i != known)) continue;
    if (write(taps[i].fd, frame->data, (size_t)frame->bytes) < 0) continue; /* lost */
  }
}

int main(int argc, char** argv) {
  const long long late_ns = atoll(argv[1]) * 1000;
  const int count = argc - 2;
  unsigned first = 0, last = 0;
  for (int i = 0; i < count; ++i) {
    taps[i].fd = open_tap(argv[i + 2]);
    taps[i].events = POLLIN;
  }
  prctl(PR_SET_TIMERSLACK, 1);
  puts("up");
  fflush(stdout);
  for (;;) {
    const long long left = first == last ? 1000000000LL : queue[first % kQueue].due_ns - now();
    const struct timespec limit = {left / 1000000000LL, left > 0 ? left % 1000000000LL : 0};
    if (left > 0) ppoll(taps, (nfds_t)count, &limit, NULL);
    for (int i = 0; i < count; ++i) {
      while (last - first < kQueue) {
        struct frame* frame = &queue[last % kQueue];
        frame->bytes = read(taps[i].fd, frame->data, kFrameBytes);
        if (frame->bytes <= kAddress) break;
        frame->from = i;
        frame->due_ns = now() + late_ns;
        memcpy(homes[i], frame->data + kAddress, kAddress);
        ++last;
      }
    }
    while (first != last && queue[first % kQueue].due_ns <= now()) {
      pass_on(&queue[first++ % kQueue], count);
    }
  }
}
