#pragma once

// The two rates of this machine that a speed floor needs: matrix products and memory bandwidth, measured in about a
// second with the kernels and libraries that the run itself uses. Promises: results are checked before anything is
// timed; each rate is the best of the repetitions. Works in memory of its own, entered in a ledger of its own and freed
// on return, so that the predictions of the run are untouched: call it before the run allocates. Leaves counters() as
// it found them. Knows no other ranks: let all ranks of a node measure at once (barrier before), for they share its
// memory.

#include "core/views.hpp"
#include "core/write.hpp"
#include "kernels/gemm/gemm_shape.hpp"

#include <array>
#include <span>
#include <string_view>

namespace trainstone {

struct GemmPeak {
  double flops_per_second = 0;
  GemmShape shape; ///< where it was reached
};

/// Sizes of the products that are measured.
struct PeakExtents {
  Index large, rows, width, wide;
};
/// The large product has as much work for every thread, rounded down to multiples of 1024, as long as sums in fp16
/// allow it: what keeps one core busy is little for fifty.
constexpr PeakExtents host_peak_extents(int threads) {
  Index factor = 1;
  while (factor < 6 && (factor + 1) * (factor + 1) * (factor + 1) <= threads) ++factor;
  return {.large = factor * 1024, .rows = 256, .width = 768, .wide = 2304};
}
/// Waves of tiles for all multiprocessors. Sums of small numbers' products, at most 9 x 6144, stay in fp16's range.
inline constexpr PeakExtents device_peak_extents{.large = 6144, .rows = 4096, .width = 2048, .wide = 6144};

/// The sizes for products that a number of threads of the host computes, or a device.
constexpr PeakExtents peak_extents(int threads) {
  return host_reaches_memory ? host_peak_extents(threads) : device_peak_extents;
}

/// A large product, and the three forms that a training step has: forward, gradient of the input, of the weight.
constexpr std::array<GemmShape, 4> gemm_peak_shapes(Storage values = Storage::fp32, Storage gradients = Storage::fp32,
                                                    PeakExtents const& extents = peak_extents(1)) {
  auto const [large, rows, width, wide] = extents;
  return {{
      {large, large, large, Transpose::no, Transpose::yes, Write::overwrite, values, values},
      {rows, wide, width, Transpose::no, Transpose::yes, Write::overwrite, values, values},
      {rows, width, wide, Transpose::no, Transpose::no, Write::overwrite, values, values},
      {width, width, rows, Transpose::yes, Transpose::no, Write::add, values, gradients},
  }};
}

/// The best rate of `method` over `shapes`, with their epilogues, and with conversions where it converts 16-bit
/// matrices. The FLOPs counted are those of the product alone.
/// \param[in] exec     fenced before and after each repetition; complete on return
/// \param[in] seconds  about how long to measure in all; each shape runs at least three times
/// \throws Error       if a product is wrong
GemmPeak measure_gemm_peak(ExecutionSpace const& exec, GemmMethod const& method,
                           std::span<GemmShape const> shapes = gemm_peak_shapes(), double seconds = 0.4);

struct BandwidthPeak {
  double bytes_per_second = 0;
  std::string_view kernel; ///< where it was reached: copy, triad or update
};

/// Exceeds the last-level caches of today's processors: with 128 MiB a cache of 300 MiB gave twice the bandwidth.
inline constexpr std::uint64_t bandwidth_working_set = std::uint64_t{512} << 20;

/// The best rate of copy (y = 2 x), triad (z = x + 2 y) and an update in place as Adam's (reads 4 arrays, writes 3 of
/// them). The bytes counted are those read and written, and on hosts also those that a write of an array not yet in
/// the cache reads first: 12, 16 and 28 bytes per element (on devices 8, 12 and 28). So hosts are taken to read before
/// they write. Processors that notice whole lines being written and do not read them (Intel's SpecI2M, from Ice Lake
/// on) move less than is counted: there copy may be told 1.5 times as fast as it is, triad 1.33 times. The update reads
/// all that it writes, and is right everywhere.
/// \param[in] exec     fenced before and after each repetition; complete on return
/// \param[in] bytes    memory to work on: divided into 2, 3 or 4 arrays. Ranks that share a cache may share the default
/// \param[in] seconds  about how long to measure in all; each kernel runs at least three times
/// \throws Error       if a result is wrong
BandwidthPeak measure_bandwidth_peak(ExecutionSpace const& exec, std::uint64_t bytes = bandwidth_working_set,
                                     double seconds = 0.3);

} // namespace trainstone
