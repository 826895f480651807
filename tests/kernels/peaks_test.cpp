// What the measurements promise besides their speed, which no test can know.

#include "kernels/measurement/peaks.hpp"

#include "core/counters.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace trainstone;

TEST_CASE("the GEMM peak is a rate of one of the given shapes, for every provider", "[peaks]") {
  ExecutionSpace const exec;
  GemmShape const shapes[] = {{1, 1, 1, Transpose::no, Transpose::no, Write::overwrite},
                              {37, 41, 131, Transpose::no, Transpose::yes, Write::overwrite},
                              {67, 1024, 29, Transpose::yes, Transpose::no, Write::add}};
  for (GemmProvider const provider : built_gemm_providers()) {
    GemmPeak const peak = measure_gemm_peak(exec, provider, shapes, 0.01);
    CHECK(std::isfinite(peak.flops_per_second));
    CHECK(peak.flops_per_second > 0);
    CHECK(std::ranges::count(shapes, peak.shape) == 1);
  }
}

TEST_CASE("the GEMM peak of 16-bit matrices is measured on them", "[peaks]") {
  for (Storage const values : {Storage::bf16, Storage::fp16}) {
    for (Storage const gradients : {values, Storage::fp32}) {
      auto shapes = gemm_peak_shapes(values, gradients);
      for (GemmShape& shape : shapes) shape.m = 37;
      GemmProvider const provider = resolve_gemm_provider(GemmProvider::automatic);
      GemmPeak const peak = measure_gemm_peak(ExecutionSpace(), provider, shapes, 0.01);
      CHECK(peak.flops_per_second > 0);
      CHECK(peak.shape.inputs == values);
      CHECK(std::ranges::count(shapes, peak.shape) == 1);
    }
  }
}

TEST_CASE("a product is checked and timed with its epilogue, in every type and by every provider", "[peaks]") {
  using Shapes = std::vector<GemmShape>;
  auto const of = [](Storage type) {
    GemmShape const forward{16, 24, 40, Transpose::no, Transpose::yes, Write::overwrite, type, type};
    GemmShape const weight{24, 40, 16, Transpose::yes, Transpose::no, Write::add, type, Storage::fp32};
    GemmShape bias = forward, gelu = forward, input = forward, gradient = weight;
    bias.epilogue = EpilogueKind::bias;
    gelu.epilogue = EpilogueKind::bias_gelu;
    input.b = Transpose::no;
    input.epilogue = EpilogueKind::gelu_gradient;
    gradient.epilogue = EpilogueKind::bias_gradient;
    return Shapes{bias, gelu, input, gradient};
  };
  for (GemmProvider const provider : built_gemm_providers())
    for (Storage const type : {Storage::fp32, Storage::bf16, Storage::fp16})
      for (GemmShape const& shape : of(type)) {
        std::uint64_t started = 0;
        DelayPoint::Scoped const counting(delay_point(), [&](char const*) { ++started; });
        CHECK(measure_gemm_peak(ExecutionSpace(), provider, {&shape, 1}, 0.0).flops_per_second > 0);
        CHECK(started ==
              6 + 4 * static_cast<std::uint64_t>(gemm_launches(provider, shape))); // filled and checked, timed
      }
}

TEST_CASE("the sums that are checked are exact in every type, on hosts and devices", "[peaks]") {
  constexpr Index largest_product = 9, fp16_limit = 65504; // fp32 is exact beyond that, up to 2^24
  std::vector<PeakExtents> all{device_peak_extents};
  for (int const threads : {1, 8, 100, 100'000}) all.push_back(host_peak_extents(threads));
  for (PeakExtents const& extents : all) {
    for (GemmShape const& shape : gemm_peak_shapes(Storage::fp16, Storage::fp16, extents)) {
      CHECK(largest_product * shape.k < fp16_limit);
      for (Index const extent : {shape.m, shape.n, shape.k}) CHECK(extent % 8 == 0); // as tensor cores demand
    }
  }
}

TEST_CASE("the largest product grows with the threads that compute it", "[peaks]") {
  CHECK(host_peak_extents(1).large == 1024);
  CHECK(host_peak_extents(7).large == 1024);
  CHECK(host_peak_extents(8).large == 2048);
  CHECK(host_peak_extents(64).large == 4096);
  CHECK(host_peak_extents(1000).large == 6144);
  for (int threads = 1; threads < 300; ++threads)
    CHECK(host_peak_extents(threads).large <= host_peak_extents(threads + 1).large);
}

TEST_CASE("the bandwidth peak is the rate of one of the three kernels", "[peaks]") {
  ExecutionSpace const exec;
  for (std::uint64_t const bytes : {std::uint64_t{256}, std::uint64_t{1000003}, std::uint64_t{16} << 20}) {
    BandwidthPeak const peak = measure_bandwidth_peak(exec, bytes, 0.01);
    CHECK(std::isfinite(peak.bytes_per_second));
    CHECK(peak.bytes_per_second > 0);
    CHECK((peak.kernel == "copy" || peak.kernel == "triad" || peak.kernel == "update"));
  }
  CHECK_THROWS_AS(measure_bandwidth_peak(exec, 255, 0.01), Error);
}

TEST_CASE("measuring leaves the counters as they were", "[peaks]") {
  ExecutionSpace const exec;
  counters() = {};
  counters().launches[Phase::gemm] = 7;
  counters().flops[Phase::gemm] = 11;
  Counters const before = counters();
  auto const shapes = gemm_peak_shapes();
  measure_gemm_peak(exec, GemmProvider::automatic, std::span(shapes).last(1), 0.001);
  measure_bandwidth_peak(exec, 1 << 16, 0.001);
  CHECK(counters().launches == before.launches);
  CHECK(counters().flops == before.flops);
  CHECK(counters().bytes == before.bytes);
  CHECK(counters().seconds == before.seconds);
}
