#pragma once

namespace sirtaki {

// Conversions between float32 and the two 16-bit float formats on raw bits, written once for
// scalars and for GCC vectors: U is uint32_t or a vector of it, S and F are int32_t and float or
// vectors of as many.
//
// Everything is always_inline because this header is also compiled for newer instruction sets: the
// linker could keep an out-of-line copy from there for the whole library.
template <typename U, typename S, typename F>
struct HalfBits {
  // float16 in the low half of each lane -> float32. Signalling NaNs become quiet.
  [[gnu::always_inline]] static constexpr U f16_to_f32(U half) {
    const U zero = half & 0u;
    const U exponent = half & 0x7c00u;
    const U shifted = (half & 0x7fffu) << 13;
    const U normal = shifted + (112u << 23);
    // An exponent of 1 makes a subnormal mantissa a normal float; subtracting what that added
    // normalises it. This works under flush-to-zero: every float16 is a normal float32.
    const U offset = shifted + (113u << 23);
    const U added = zero + (113u << 23);
    const U subnormal =
        __builtin_bit_cast(U, __builtin_bit_cast(F, offset) - __builtin_bit_cast(F, added));
    const U quiet = (half & 0x03ffu) != 0u ? zero + 0x00400000u : zero;
    const U special = (shifted + (224u << 23)) | quiet;
    const U finite = exponent == 0u ? subnormal : normal;
    return (exponent == 0x7c00u ? special : finite) | ((half & 0x8000u) << 16);
  }

  // float32 -> nearest float16 in the low half of each lane, ties to even. NaNs become quiet.
  [[gnu::always_inline]] static constexpr U f32_to_f16(U bits) {
    const U zero = bits & 0u;
    const U sign = bits & 0x80000000u;
    const U magnitude = bits ^ sign;
    // Rounding up may carry into the exponent, and from there to infinity; both are correct.
    const U odd = (magnitude >> 13) & 1u;
    const U normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
    // Adding 0.5 aligns the mantissa so that the processor's own rounding cuts it where needed.
    const U half = zero + (126u << 23);
    const U subnormal =
        __builtin_bit_cast(U, __builtin_bit_cast(F, magnitude) + __builtin_bit_cast(F, half)) -
        half;
    const U nan = ((magnitude >> 13) & 0x03ffu) | 0x7e00u;
    // SSE2 has only signed comparisons, and the sign bit is cleared.
    const S order = __builtin_bit_cast(S, magnitude);
    const U special = order > 0x7f800000 ? nan : zero + 0x7c00u;
    const U finite = order < (113 << 23) ? subnormal : normal;
    return (order >= (143 << 23) ? special : finite) | (sign >> 16);
  }

  // float32 -> float32 whose upper half is the nearest bfloat16, ties to even; the lower half is
  // undefined. A NaN must have zeros in its lower half, or it may become infinity or zero. All NaNs
  // from bfloat16 numbers have: a propagated NaN keeps its source's payload, and one that the
  // processor generates has none.
  [[gnu::always_inline]] static constexpr U round_to_bf16(U bits) {
    return bits + (((bits >> 16) & 1u) + 0x7fffu);
  }

  // The same, but all NaNs become quiet ones.
  [[gnu::always_inline]] static constexpr U f32_to_bf16(U bits) {
    const S order = __builtin_bit_cast(S, bits & 0x7fffffffu);
    return order > 0x7f800000 ? bits | 0x00400000u : round_to_bf16(bits);
  }
};

}  // namespace sirtaki
