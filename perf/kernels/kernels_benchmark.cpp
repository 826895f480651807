// Every kernel of a training step, and every matrix product of the models, as Google Benchmark sees them: beside each
// its plain Kokkos form, or the other providers. Checked before it is timed: against its reference on a small shape,
// products also at the extents that are timed. Rates are those of the work that the real kernel declares, and are shown
// as a share of what this process has just measured the machine to do.

#include "kernel_cases/cases.hpp"

#include "core/clock.hpp"
#include "core/counters.hpp"
#include "core/roofline.hpp"
#include "kernels/gemm/library_threads.hpp"
#include "kernels/measurement/peaks.hpp"

#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace trainstone {

namespace {

constexpr std::array storages{Storage::fp32, Storage::bf16};

/// FLOPs and bytes of a kernel, or what a machine does of them in a second.
struct Work {
  double flops = 0, bytes = 0;
};

/// A kernel at one shape, and the same kernel at the shape that it is checked at.
struct Measured {
  KernelCase timed, checked;
  Storage storage;
};

/// What is known of a benchmark before it is timed.
struct Prepared {
  std::string wrong; ///< what is; empty: nothing
  Work work;
};

/// What all benchmarks run on.
struct Stage {
  ExecutionSpace exec;
  std::map<Storage, Work> peaks = {};
  std::map<std::string, Prepared> prepared = {}; ///< by a benchmark's name: once for all repetitions
  bool all_right = true;
};

/// What differs from the reference, with the first element that does. Not every shape has all variants.
std::string check_against_reference(ExecutionSpace const& exec, KernelCase const& kernel, std::string const& name) {
  auto const found = std::ranges::find(kernel.variants, name);
  if (found == kernel.variants.end()) return fmt::format("no shape that is checked can be computed by {}", name);
  auto const variant = static_cast<std::size_t>(found - kernel.variants.begin());
  BenchmarkMemory const memory(exec, kernel.tensors);
  KernelCall const call = kernel.bind(exec, variant, memory);
  std::vector<std::vector<double>> const before = memory.values();
  std::vector<std::vector<double>> expected = before;
  kernel.reference(expected);
  call();
  std::vector<std::vector<double>> const actual = memory.values();
  for (std::size_t tensor = 0; tensor < actual.size(); ++tensor) {
    Bound const& bound = kernel.tensors[tensor].bound;
    std::vector<double> const& wanted = bound ? expected[tensor] : before[tensor];
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      double const error = std::abs(actual[tensor][i] - wanted[i]);
      if (!(error <= (bound ? bound(wanted[i]) : 0.0))) // of NaN, too
        return fmt::format("element {} of tensor {} is {:.9g}, not {:.9g}", i, tensor, actual[tensor][i], wanted[i]);
    }
  }
  return "";
}

std::string check_spots(ExecutionSpace const& exec, KernelCase const& kernel, std::size_t variant) {
  if (!kernel.check_spots) return "";
  BenchmarkMemory const memory(exec, kernel.tensors);
  kernel.bind(exec, variant, memory)();
  return kernel.check_spots(memory.values());
}

/// What the real kernel declares.
Work declared_work(ExecutionSpace const& exec, KernelCase const& kernel) {
  BenchmarkMemory const memory(exec, kernel.tensors);
  KernelCall const call = kernel.bind(exec, 0, memory);
  Counters const before = counters();
  call();
  exec.fence("trainstone::perf: its memory is freed");
  Work work;
  for (Phase const phase : phases) {
    work.flops += static_cast<double>(counters().flops[phase] - before.flops[phase]);
    work.bytes += static_cast<double>(counters().bytes[phase] - before.bytes[phase]);
  }
  return work;
}

/// Seconds of all iterations.
double time_calls(benchmark::State& state, ExecutionSpace const& exec, KernelCase const& kernel, std::size_t variant) {
  BenchmarkMemory const memory(exec, kernel.tensors);
  KernelCall const call = kernel.bind(exec, variant, memory);
  call();
  double total = 0;
  for (auto _ : state) {
    memory.restore();
    exec.fence("trainstone::perf: the clock is read");
    SteadyTime const start = std::chrono::steady_clock::now();
    call();
    exec.fence("trainstone::perf: the clock is read");
    double const seconds = seconds_since(start);
    state.SetIterationTime(seconds);
    total += seconds;
  }
  return total;
}

Prepared prepare(ExecutionSpace const& exec, Measured const& kernel, std::size_t variant) {
  Prepared result{check_against_reference(exec, kernel.checked, kernel.timed.variants[variant]), {}};
  if (result.wrong.empty()) result.wrong = check_spots(exec, kernel.timed, variant);
  if (result.wrong.empty()) result.work = declared_work(exec, kernel.timed);
  return result;
}

void measure(benchmark::State& state, Stage& stage, Measured const& kernel, std::size_t variant) {
  auto const [known, is_new] = stage.prepared.try_emplace(state.name());
  if (is_new) known->second = prepare(stage.exec, kernel, variant);
  auto const& [wrong, work] = known->second;
  if (!wrong.empty()) { // no rate for a wrong result
    stage.all_right = false;
    return state.SkipWithError(wrong);
  }
  Work const peak = stage.peaks[kernel.storage];
  double const seconds = time_calls(state, stage.exec, kernel.timed, variant) / static_cast<double>(state.iterations());
  auto const [least, bound_by] = bound_kernel(work.flops, work.bytes, peak.flops, peak.bytes);
  state.counters["GB/s"] = work.bytes / seconds / 1e9;
  state.counters["GF/s"] = work.flops / seconds / 1e9;
  state.counters["of_bound"] = 100 * least / seconds;
  state.SetLabel(bound_by);
}

void register_all(Stage& stage) {
  for (Storage const storage : storages) {
    std::map<std::string, KernelCase> checked;
    for (BenchmarkShape const& shape : checked_shapes())
      for (KernelCase const& kernel : kernel_cases(shape, storage)) {
        KernelCase& known = checked[kernel.name];
        if (known.variants.size() < kernel.variants.size()) known = kernel;
      }
    for (BenchmarkShape const& shape : benchmark_shapes()) {
      for (KernelCase const& kernel : kernel_cases(shape, storage)) {
        Measured const measured{kernel, checked.at(kernel.name), storage};
        for (std::size_t variant = 0; variant < kernel.variants.size(); ++variant)
          benchmark::RegisterBenchmark(
              fmt::format("{}/{}/{}/{}", kernel.name, shape.name, to_string(storage), kernel.variants[variant]),
              [&stage, measured, variant](benchmark::State& state) { measure(state, stage, measured, variant); })
              ->UseManualTime()
              ->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

/// Longer than a run does, which others may disturb, too: all shares depend on them.
constexpr double peak_seconds = 1;

void measure_peaks(Stage& stage) {
  BandwidthPeak const bandwidth = measure_bandwidth_peak(stage.exec, bandwidth_working_set, peak_seconds);
  benchmark::AddCustomContext("kokkos", fmt::format("{} {}", KOKKOS_VERSION, ExecutionSpace::name()));
  benchmark::AddCustomContext("threads", fmt::format("{}", stage.exec.concurrency()));
  benchmark::AddCustomContext("bandwidth", fmt::format("{:.4g} GB/s", bandwidth.bytes_per_second / 1e9));
  for (Storage const storage : storages) {
    GemmProvider const provider = resolve_gemm_provider(GemmProvider::automatic);
    int const threads = std::max(stage.exec.concurrency(), library_threads(provider));
    auto const shapes = gemm_peak_shapes(storage, storage, peak_extents(threads));
    GemmPeak const gemm = measure_gemm_peak(stage.exec, provider, shapes, peak_seconds);
    stage.peaks[storage] = {gemm.flops_per_second, bandwidth.bytes_per_second};
    benchmark::AddCustomContext(
        fmt::format("gemm_{}", to_string(storage)),
        fmt::format("{:.4g} GF/s, {}", gemm.flops_per_second / 1e9, describe_gemm(provider, storage)));
  }
}

int run_benchmarks() {
  Stage stage{ExecutionSpace()};
  register_all(stage);
  measure_peaks(stage);
  std::size_t const count = benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks(); // they hold the stage
  return count > 0 && stage.all_right ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace trainstone

int main(int argc, char** argv) {
  setenv("KOKKOS_DISABLE_WARNINGS", "true", 0);
  trainstone::match_library_threads_to_kernels();
  try {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
    return trainstone::run_benchmarks();
  } catch (std::exception const& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}
