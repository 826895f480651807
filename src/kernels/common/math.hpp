#pragma once

// Elementary functions for the kernels' inner loops. Owns an exponential in fp32 without branches and without libm, so
// that a loop over it becomes vector code under -O3 without -ffast-math, and gives the same bits wherever the
// instruction set is the same (fused multiply-adds round once).

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace trainstone::Impl {

/// e^x within 1.5 ulp for |x| <= 87. Below -87 it is 0 (no subnormals: they trap into microcode), above 87 it stays at
/// e^87, so that 1 + exponential(x) and its inverse are normal numbers. NaN stays NaN.
/// Source: range reduction of Cody and Waite, polynomial of Cephes' expf.
KOKKOS_INLINE_FUNCTION float exponential(float x) {
  float const low = x < -87.0F ? -87.0F : x;
  float const clamped = low > 87.0F ? 87.0F : low;
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits.
  float const shifted = clamped * 1.44269504F + 0x1.8p23F;
  float const exponent = shifted - 0x1.8p23F;
  float const rest = (clamped - exponent * 0.693359375F) + exponent * 2.12194440e-4F;
  float polynomial = 1.9875691500e-4F;
  polynomial = polynomial * rest + 1.3981999507e-3F;
  polynomial = polynomial * rest + 8.3334519073e-3F;
  polynomial = polynomial * rest + 4.1665795894e-2F;
  polynomial = polynomial * rest + 1.6666665459e-1F;
  polynomial = polynomial * rest + 5.0000001201e-1F;
  float const mantissa = polynomial * (rest * rest) + rest + 1.0F;
  float const scale = Kokkos::bit_cast<float>((Kokkos::bit_cast<std::uint32_t>(shifted) + 127U) << 23);
  return x < -87.0F ? 0.0F : mantissa * scale;
}

/// e^x, as exact as numbers that are stored as T need it: for 16 bits, devices have an instruction that is within
/// 2^-16 of it for |x| <= 87.
template <class T>
KOKKOS_INLINE_FUNCTION float exponential_of(float x) {
  KOKKOS_IF_ON_HOST((return exponential(x);))
  KOKKOS_IF_ON_DEVICE((if constexpr (sizeof(T) == 2) return __expf(x); else return exponential(x);))
}

} // namespace trainstone::Impl
