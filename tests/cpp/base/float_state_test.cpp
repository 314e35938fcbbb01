#include "base/float_state.h"

#include <cfenv>

#include "doctest/doctest.h"

namespace sirtaki {
namespace {

/// What rounding makes of a third, and whether a denormal number is kept.
struct Seen {
  float third;
  bool keeps;
  bool operator==(const Seen&) const = default;
};

Seen seen() {
  volatile float one = 1.0f;
  volatile float least = 1e-40f;
  volatile float three = 3.0f;
  volatile float sum = least + least;
  return {one / three, sum != 0.0f};
}

#if defined(__x86_64__)
void flush_to_zero(bool on) {
  uint32_t word;
  asm volatile("stmxcsr %0" : "=m"(word));
  word = on ? word | 0x8040u : word & ~0x8040u;
  asm volatile("ldmxcsr %0" : : "m"(word));
}
#else
void flush_to_zero(bool on) {
  uint64_t word;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  word = on ? word | uint64_t{1} << 24 : word & ~(uint64_t{1} << 24);
  asm volatile("msr fpcr, %0" : : "r"(word));
}
#endif

TEST_CASE(
    "whatever a thread has set, it rounds to nearest and keeps denormals, and then as before") {
  const Seen usual = seen();
  CHECK(usual.keeps);
  for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    for (const bool flushes : {false, true}) {
      std::fesetround(rounding);
      flush_to_zero(flushes);
      const Seen before = seen();
      Seen within;
      {
        const FloatState floats;
        within = seen();
      }
      const Seen after = seen();
      const int kept = std::fegetround();
      flush_to_zero(false);
      std::fesetround(FE_TONEAREST);
      CHECK(within == usual);
      CHECK(after == before);
      CHECK(before.keeps == !flushes);
      CHECK(kept == rounding);
    }
  }
}

}  // namespace
}  // namespace sirtaki
