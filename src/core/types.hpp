#pragma once

// Storage types. Owns the 2-byte bf16 and fp16 and their conversions; arithmetic is done in fp32.
// Own types because Kokkos' bhalf_t is a 4-byte float where no GPU back end is built. Bit patterns only:
// no operators, so that no kernel adds up in 16 bits by accident.

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace trainstone {

/// bfloat16: the upper half of an IEEE float (1 sign, 8 exponent, 7 mantissa bits).
struct bf16 {
  std::uint16_t bits;
};

/// IEEE half precision (1 sign, 5 exponent, 10 mantissa bits).
struct fp16 {
  std::uint16_t bits;
};

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

#if defined(__CUDACC__)
namespace Impl {
/// A device's own conversions, which are one instruction. Every NaN becomes the same NaN.
__device__ __forceinline__ float widened(fp16 value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
__device__ __forceinline__ bf16 rounded(float value, bf16) {
  bf16 narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
}
__device__ __forceinline__ fp16 rounded(float value, fp16) {
  fp16 narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
}
} // namespace Impl
#endif

KOKKOS_INLINE_FUNCTION float to_float(float value) { return value; }

KOKKOS_INLINE_FUNCTION float to_float(bf16 value) {
  return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Exact. Subnormal halves are normal floats: scaled by a multiplication instead of a loop.
KOKKOS_INLINE_FUNCTION float to_float(fp16 value) {
#if defined(__CUDA_ARCH__)
  return Impl::widened(value);
#else
  std::uint32_t const sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  std::uint32_t const rest = value.bits & 0x7fffu;
  if (rest >= 0x7c00u) return Kokkos::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13)); // inf, NaN
  float const magnitude = rest < 0x0400u ? static_cast<float>(rest) * 0x1p-24f
                                         : Kokkos::bit_cast<float>((rest << 13) + ((127u - 15u) << 23));
  return Kokkos::bit_cast<float>(Kokkos::bit_cast<std::uint32_t>(magnitude) | sign);
#endif
}

/// Converts from fp32 to the storage type, rounding to nearest, ties to even; NaN stays NaN (quiet). bf16 chooses in 32
/// bits and narrows once: narrowing both possible results makes vector code half as slow again.
template <class T>
KOKKOS_INLINE_FUNCTION T from_float(float value);

template <>
KOKKOS_INLINE_FUNCTION float from_float<float>(float value) {
  return value;
}

template <>
KOKKOS_INLINE_FUNCTION bf16 from_float<bf16>(float value) {
#if defined(__CUDA_ARCH__)
  return Impl::rounded(value, bf16());
#else
  std::uint32_t const bits = Kokkos::bit_cast<std::uint32_t>(value);
  std::uint32_t const rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  std::uint32_t const kept = value != value ? bits | 0x400000u : rounded;
  return bf16{static_cast<std::uint16_t>(kept >> 16)};
#endif
}

template <>
KOKKOS_INLINE_FUNCTION fp16 from_float<fp16>(float value) {
#if defined(__CUDA_ARCH__)
  return Impl::rounded(value, fp16());
#else
  std::uint32_t const bits = Kokkos::bit_cast<std::uint32_t>(value);
  std::uint32_t const sign = (bits >> 16) & 0x8000u;
  std::uint32_t const rest = bits & 0x7fffffffu;
  std::uint32_t half;
  if (rest > 0x7f800000u) {
    half = 0x7e00u | ((rest >> 13) & 0x3ffu); // NaN keeps its upper payload
  } else if (rest >= 0x47800000u) {
    half = 0x7c00u; // at least 2^16: infinity
  } else if (rest >= 0x38800000u) {
    // normal half: may carry into the exponent, and from 65520 on into infinity, as it should
    half = (rest - ((127u - 15u) << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
  } else {
    // subnormal half: adding 0.5 puts the half's last bit at the float's last bit, so the FPU does the rounding
    float const shifted = Kokkos::bit_cast<float>(rest) + 0.5f;
    half = Kokkos::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  }
  return fp16{static_cast<std::uint16_t>(sign | half)};
#endif
}

} // namespace trainstone
