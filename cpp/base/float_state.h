#pragma once

#include <cstdint>

namespace sirtaki {

/// While this lives, its thread rounds to nearest and keeps denormal numbers; its end restores the
/// thread's mode. XLA, TensorFlow and `torch.set_flush_denormal` change the mode of threads in
/// which ranks compute, but all ranks must compute the same bits.
class FloatState {
 public:
  FloatState() : before_(read()), changes_((before_ & kControl) != kDefault) {
    if (changes_) write(kDefault);
  }
  ~FloatState() {
    if (changes_) write(before_);
  }
  FloatState(const FloatState&) = delete;
  FloatState& operator=(const FloatState&) = delete;

 private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kControl = 0xffc0;  // without the exception flags
  static constexpr Word kDefault = 0x1f80;

  static Word read() {
    Word word;
    asm volatile("stmxcsr %0" : "=m"(word) : : "memory");
    return word;
  }
  static void write(Word word) { asm volatile("ldmxcsr %0" : : "m"(word) : "memory"); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kControl = ~Word{0};
  static constexpr Word kDefault = 0;

  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
#error "say how this processor is told to round to nearest and to keep denormal numbers"
#endif

  const Word before_;
  const bool changes_;
};

}  // namespace sirtaki
