#pragma once

// What one lane of a warpgroup can do on tensor cores, beside what lane.hpp says: products whose sums lie in the
// registers of 128 lanes, and that go on while the lanes do other things (wgmma). Only devices of compute capability
// 9.0 have them. Source: Parallel Thread Execution ISA, section "Asynchronous warpgroup level matrix instructions".

#include "kernels/cuda/lane.hpp"

namespace trainstone::Cuda {

/// Says where a factor lies in shared memory. Its rows are 128 bytes of a panel, whose 16-byte chunks are swizzled:
/// chunk i of row r has the place i XOR r % 8. Panels begin at multiples of 1024 bytes.
struct Factor {
  std::uint64_t descriptor;
};

/// \param[in] address   of its first element, in shared memory
/// \param[in] leading   bytes from a panel to the next one, where a product goes over several of them
/// \param[in] stride    bytes from 8 rows to the next 8
TRAINSTONE_LANE Factor factor_at(std::uint32_t address, std::uint32_t leading, std::uint32_t stride) {
  constexpr std::uint64_t chunks_of_128_bytes = 1; // which swizzle
  return {std::uint64_t{(address & 0x3FFFFU) >> 4} | std::uint64_t{leading >> 4} << 16 |
          std::uint64_t{stride >> 4} << 32 | chunks_of_128_bytes << 62};
}

inline constexpr int rows_of_warpgroup = 64, lanes_of_warpgroup = 128;

#if defined(__CUDACC__)

// clang-format off
#define TRAINSTONE_REGISTERS_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7" \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TRAINSTONE_REGISTERS_32 TRAINSTONE_REGISTERS_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TRAINSTONE_REGISTERS_40 TRAINSTONE_REGISTERS_32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TRAINSTONE_REGISTERS_48 TRAINSTONE_REGISTERS_40 \
  ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TRAINSTONE_REGISTERS_64 TRAINSTONE_REGISTERS_48 \
  ", %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TRAINSTONE_SUM(i) "+f"(sums[i].c[0]), "+f"(sums[i].c[1]), "+f"(sums[i].c[2]), "+f"(sums[i].c[3])
#define TRAINSTONE_SUMS_16 \
  TRAINSTONE_SUM(0), TRAINSTONE_SUM(1), TRAINSTONE_SUM(2), TRAINSTONE_SUM(3)
#define TRAINSTONE_SUMS_32 TRAINSTONE_SUMS_16, \
  TRAINSTONE_SUM(4), TRAINSTONE_SUM(5), TRAINSTONE_SUM(6), TRAINSTONE_SUM(7)
#define TRAINSTONE_SUMS_40 TRAINSTONE_SUMS_32, \
  TRAINSTONE_SUM(8), TRAINSTONE_SUM(9)
#define TRAINSTONE_SUMS_48 TRAINSTONE_SUMS_40, \
  TRAINSTONE_SUM(10), TRAINSTONE_SUM(11)
#define TRAINSTONE_SUMS_64 TRAINSTONE_SUMS_48, \
  TRAINSTONE_SUM(12), TRAINSTONE_SUM(13), TRAINSTONE_SUM(14), TRAINSTONE_SUM(15)
// clang-format on

// The sums are `count` registers. The operands behind them have the next numbers.
#define TRAINSTONE_SHARED_PRODUCT(columns, count, left_, right_, adds_, types)                                         \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #adds_ ", 0; wgmma.mma_async.sync.aligned.m64n" #columns             \
               "k16.f32." types " {" TRAINSTONE_REGISTERS_##count "}, %" #left_ ", %" #right_ ", p, 1, 1, 0, 0; }\n"   \
               : TRAINSTONE_SUMS_##count                                                                               \
               : "l"(left.descriptor), "l"(right.descriptor), "r"(static_cast<int>(adds)))
#define TRAINSTONE_FRAGMENT_PRODUCT(columns, count, a0, a1, a2, a3, right_, types)                                     \
  asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." types      \
               " {" TRAINSTONE_REGISTERS_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #right_              \
                                                 ", p, 1, 1, 1; }\n"                                                   \
               : TRAINSTONE_SUMS_##count                                                                               \
               : "r"(left.r[0]), "r"(left.r[1]), "r"(left.r[2]), "r"(left.r[3]), "l"(right.descriptor))

/// The lane of the calling thread.
class DeviceWarpgroupLane : public DeviceLane {
public:
  /// Known to be the same for all lanes of a warp, so that descriptors are, too.
  __device__ __forceinline__ int warp() const { return __shfl_sync(0xFFFFFFFFU, thread() / 32, 0); }

  /// Products read what this lane's copies have brought, once all lanes are behind a barrier.
  __device__ __forceinline__ void show_copies() const { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }
  __device__ __forceinline__ void group_barrier() const {
    asm volatile("bar.sync %0, %1;\n" ::"r"(1 + warp() / 4), "n"(lanes_of_warpgroup) : "memory");
  }

  __device__ __forceinline__ Factor factor(void const* first, int leading, int stride) const {
    return factor_at(address(first), static_cast<std::uint32_t>(leading), static_cast<std::uint32_t>(stride));
  }

  /// Before the first product that uses registers which something else has written.
  __device__ __forceinline__ void begin_products() const { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
  __device__ __forceinline__ void end_products() const {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
  }
  /// Until all products are complete, whose sums these are.
  template <int... counts>
  __device__ __forceinline__ void await_products(FragmentC (&... sums)[1][counts]) const {
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
    (hold(sums[0]), ...);
  }

  /// sums = left right^T, or += : 64 rows of 16 columns, times 8 `fragments` rows of 16 columns.
  template <class T, int fragments>
  __device__ __forceinline__ void multiply_rows(FragmentC (&sums)[fragments], Factor left, Factor right,
                                                bool adds) const {
    static_assert(fragments == 4 || fragments == 8);
    if constexpr (T::is_bf16 && fragments == 4) TRAINSTONE_SHARED_PRODUCT(32, 16, 16, 17, 18, "bf16.bf16");
    if constexpr (T::is_bf16 && fragments == 8) TRAINSTONE_SHARED_PRODUCT(64, 32, 32, 33, 34, "bf16.bf16");
    if constexpr (!T::is_bf16 && fragments == 4) TRAINSTONE_SHARED_PRODUCT(32, 16, 16, 17, 18, "f16.f16");
    if constexpr (!T::is_bf16 && fragments == 8) TRAINSTONE_SHARED_PRODUCT(64, 32, 32, 33, 34, "f16.f16");
  }

  /// sums += left right: this lane's part of 64 rows of 16 columns, times 16 rows of 8 `fragments` columns.
  template <class T, int fragments>
  __device__ __forceinline__ void multiply_fragments(FragmentC (&sums)[fragments], FragmentA const& left,
                                                     Factor right) const {
    static_assert(fragments == 8 || fragments == 10 || fragments == 12 || fragments == 16);
    if constexpr (T::is_bf16) {
      if constexpr (fragments == 8) TRAINSTONE_FRAGMENT_PRODUCT(64, 32, 32, 33, 34, 35, 36, "bf16.bf16");
      if constexpr (fragments == 10) TRAINSTONE_FRAGMENT_PRODUCT(80, 40, 40, 41, 42, 43, 44, "bf16.bf16");
      if constexpr (fragments == 12) TRAINSTONE_FRAGMENT_PRODUCT(96, 48, 48, 49, 50, 51, 52, "bf16.bf16");
      if constexpr (fragments == 16) TRAINSTONE_FRAGMENT_PRODUCT(128, 64, 64, 65, 66, 67, 68, "bf16.bf16");
    } else {
      if constexpr (fragments == 8) TRAINSTONE_FRAGMENT_PRODUCT(64, 32, 32, 33, 34, 35, 36, "f16.f16");
      if constexpr (fragments == 10) TRAINSTONE_FRAGMENT_PRODUCT(80, 40, 40, 41, 42, 43, 44, "f16.f16");
      if constexpr (fragments == 12) TRAINSTONE_FRAGMENT_PRODUCT(96, 48, 48, 49, 50, 51, 52, "f16.f16");
      if constexpr (fragments == 16) TRAINSTONE_FRAGMENT_PRODUCT(128, 64, 64, 65, 66, 67, 68, "f16.f16");
    }
  }

private:
  /// Nothing that reads sums is moved before this.
  template <int fragments>
  static __device__ __forceinline__ void hold(FragmentC (&sums)[fragments]) {
    TRAINSTONE_UNROLLED
    for (int i = 0; i < fragments; ++i)
      asm volatile("" : "+f"(sums[i].c[0]), "+f"(sums[i].c[1]), "+f"(sums[i].c[2]), "+f"(sums[i].c[3])::"memory");
  }
};

#endif

} // namespace trainstone::Cuda
