#pragma once

// What one lane of a warp can do on tensor cores: the instructions that the kernels of this folder are written in. A
// kernel is a template over its lane, so that hosts can play a block of lanes (tests/support/played_block.hpp), and the
// device runs the instructions themselves. Sources: Parallel Thread Execution ISA, sections "Warp-level matrix
// instructions" and "Data movement and conversion instructions".

#include <cstdint>

#if defined(__CUDACC__)
#define TRAINSTONE_LANE __device__ __forceinline__
#define TRAINSTONE_UNROLLED _Pragma("unroll") ///< of loops over registers
#define TRAINSTONE_ROLLED _Pragma("unroll 1")
#else
#define TRAINSTONE_LANE inline
#define TRAINSTONE_UNROLLED
#define TRAINSTONE_ROLLED
#endif

namespace trainstone::Cuda {

/// Of a 16 x 16 matrix A: four registers of two 16-bit elements. With g = lane / 4 and t = lane % 4 they are the pairs
/// (g, 2 t), (g + 8, 2 t), (g, 2 t + 8), (g + 8, 2 t + 8): row, and first of two columns.
struct FragmentA {
  std::uint32_t r[4];
};

/// Of two 16 x 8 matrices B side by side, each two registers: the pairs (2 t, g), (2 t + 8, g): first of two rows, and
/// column.
struct FragmentB {
  std::uint32_t r[4];
};

/// Sums of a 16 x 8 matrix: (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).
struct FragmentC {
  float c[4];
};

/// How ldmatrix reads four 8 x 8 matrices: each lane names the begin of a row of one of them.
enum class Turn { none, transposed };

#if defined(__CUDACC__)

/// The lane of the calling thread.
class DeviceLane {
public:
  static constexpr int lanes = 32;

  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int warp() const { return thread() / 32; } ///< of the block
  __device__ __forceinline__ int block() const { return static_cast<int>(blockIdx.x); }

  /// 16 bytes from global to shared memory, while the lane goes on; zeros if there are none.
  __device__ __forceinline__ void copy(void* shared, void const* global, bool is_there) const {
    int const bytes = is_there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address(shared)), "l"(global), "r"(bytes)
                 : "memory");
  }
  /// The same of one number.
  __device__ __forceinline__ void copy(float* shared, float const* global, bool is_there) const {
    int const bytes = is_there ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(address(shared)), "l"(global), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void end_copies() const { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
  /// Until all copies of this lane but those of the last `pending` groups are there.
  template <int pending>
  __device__ __forceinline__ void wait_copies() const {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
  }
  __device__ __forceinline__ void block_barrier() const { __syncthreads(); }
  __device__ __forceinline__ void warp_barrier() const { __syncwarp(); }

  // What a lane of a warpgroup needs beyond that: products of a warp read what its lanes read, and are complete at
  // once.
  __device__ __forceinline__ void show_copies() const {}
  __device__ __forceinline__ void group_barrier() const { __syncwarp(); } ///< of the lanes that multiply together
  template <class... Sums>
  __device__ __forceinline__ void await_products(Sums&...) const {}

  template <Turn turn>
  __device__ __forceinline__ void load(std::uint32_t (&r)[4], void const* row) const {
    if constexpr (turn == Turn::none)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address(row))
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address(row))
                   : "memory");
  }

  /// c += a b, with half of b.
  template <class T>
  __device__ __forceinline__ void multiply(FragmentC& c, FragmentA const& a, std::uint32_t b0, std::uint32_t b1) const {
    if constexpr (T::is_bf16)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};\n"
          : "+f"(c.c[0]), "+f"(c.c[1]), "+f"(c.c[2]), "+f"(c.c[3])
          : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};\n"
          : "+f"(c.c[0]), "+f"(c.c[1]), "+f"(c.c[2]), "+f"(c.c[3])
          : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
  }

  /// Two sums, rounded to nearest; the first one in the lower half.
  template <class T>
  __device__ __forceinline__ std::uint32_t pack(float low, float high) const {
    std::uint32_t packed;
    if constexpr (T::is_bf16)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }

  /// The halves of a pair.
  template <class T>
  __device__ __forceinline__ float low(std::uint32_t pair) const {
    if constexpr (T::is_bf16) return __uint_as_float(pair << 16);
    float value;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }\n" : "=f"(value) : "r"(pair));
    return value;
  }
  template <class T>
  __device__ __forceinline__ float high(std::uint32_t pair) const {
    if constexpr (T::is_bf16) return __uint_as_float(pair & 0xFFFF0000U);
    return low<T>(pair >> 16);
  }

  template <class Value>
  __device__ __forceinline__ Value from_lane_beside(Value value, int difference) const {
    return __shfl_xor_sync(0xFFFFFFFFU, value, difference);
  }
  /// Whether it is so in any lane of the warp.
  __device__ __forceinline__ bool any(bool here) const { return __any_sync(0xFFFFFFFFU, here); }
  __device__ __forceinline__ float power_of_2(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ __forceinline__ float log2(float x) const { return __log2f(x); }

protected:
  static __device__ __forceinline__ std::uint32_t address(void const* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
};

#endif

} // namespace trainstone::Cuda
