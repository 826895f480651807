// Every collective by every algorithm, and the kernels under them, as Google Benchmark sees them: filters, formats and
// comparison tools are its own. Run by mpiexec on the ranks to be measured; times are the slowest rank's, checked
// before and after; rank 0 alone reports. `trainstone commbench` measures algorithms against each other instead.

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers_start.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/environment.hpp"
#include "comm/execution/reduce.hpp"
#include "comm/measurement/collective_contest.hpp"
#include "comm/measurement/mpi_collective.hpp"
#include "core/host_copy.hpp"

#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <vector>

namespace trainstone {

namespace {

using Element = float;

constexpr std::array<std::uint64_t, 4> sizes{1024, 64 << 10, 1 << 20, 16 << 20};
constexpr int samples = 10; // even; each of some calls

/// What all benchmarks run on.
struct Stage {
  ExecutionSpace exec;
  Communicator communicator = Communicator::world();
  MemoryLedger ledger = {};
  bool all_right = true;

  bool has_shared_memory() const { return communicator.topology().nodes() == 1 && communicator.reaches_neighbours(); }
};

/// No rate for a wrong result.
void report_wrong(benchmark::State& state, Stage& stage, Index wrong) {
  stage.all_right = false;
  state.SkipWithError(fmt::format("{} elements are wrong", wrong));
}

void report(benchmark::State& state, std::vector<double> const& seconds, double bytes, double factor) {
  std::size_t next = 0;
  for (auto _ : state) state.SetIterationTime(seconds[next++]);
  state.counters["algbw"] = benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["busbw"] = benchmark::Counter(bytes * factor, benchmark::Counter::kIsIterationInvariantRate);
}

void measure_collective(benchmark::State& state, Stage& stage, Problem const& problem, Contestant const& contestant) {
  std::array const only{contestant};
  auto const bytes = static_cast<std::uint64_t>(problem.message_elements()) * sizeof(Element);
  MeasuredMemory const memory(
      stage.exec, stage.communicator, stage.ledger, "benchmark",
      contest_bytes(stage.communicator.buffers(), problem, stage.communicator.rank(), ElementType::float32, only),
      problem.shared_memory);
  ContestOptions options;
  options.timing.samples = samples;
  ContestResult const result = run_contest(stage.exec, stage.communicator, problem, Operation::sum,
                                           ElementType::float32, only, memory.buffers(), options)
                                   .front();
  if (result.wrong > 0) return report_wrong(state, stage, result.wrong);
  report(state, result.samples.seconds, static_cast<double>(bytes), bus_factor(problem.collective, problem.ranks()));
}

void register_collective(Stage& stage, Collective collective, std::uint64_t bytes) {
  if (has_servers(collective) && stage.communicator.size() < 2) return;
  auto const elements = static_cast<Index>(bytes / sizeof(Element));
  Problem problem = problem_of_size(collective, elements, stage.communicator.topology(), 0, 1);
  problem.shared_memory = stage.has_shared_memory();
  std::vector<Contestant> contestants;
  for (Algorithm const algorithm : algorithms_of(collective))
    if (refusal(problem, algorithm).empty()) contestants.push_back({.algorithm = algorithm});
  if (mpi_refusal(problem, ElementType::float32).empty())
    for (MpiForm const form : mpi_forms(problem)) contestants.push_back({.algorithm = {}, .form = form});
  for (Contestant const& contestant : contestants) {
    std::string const name = fmt::format("{}/{}/bytes:{}", to_string(collective), to_string(contestant), bytes);
    benchmark::RegisterBenchmark(name,
                                 [&stage, problem, contestant](benchmark::State& state) {
                                   measure_collective(state, stage, problem, contestant);
                                 })
        ->UseManualTime()
        ->Iterations(samples)
        ->Unit(benchmark::kMicrosecond);
  }
}

/// What a kernel does to its vectors, and what element i must be afterwards. Vector v holds v + i % 1021 at the start.
struct KernelCase {
  char const* name;
  std::size_t vectors;
  double moved; ///< read and written, times the size of a vector
  void (*run)(ExecutionSpace const& exec, std::vector<Vector<Element>> const& vectors);
  std::size_t result; ///< which vector is checked
  Element (*expected)(Element i);
};

template <std::size_t Parts, std::size_t Targets>
void combine_to(ExecutionSpace const& exec, std::vector<Vector<Element>> const& vectors) {
  std::array<Element const*, Parts> parts;
  std::array<Element*, Targets> targets;
  for (std::size_t i = 0; i < Parts; ++i) parts[i] = vectors[i].data();
  for (std::size_t i = 0; i < Targets; ++i) targets[i] = vectors[Parts + i].data();
  combine<Element>(exec, Operation::sum, parts, static_cast<Index>(vectors[0].extent(0)), targets);
}

constexpr std::array kernels{
    KernelCase{"copy", 2, 2, [](auto const& exec, auto const& v) { copy<Element>(exec, v[0], v[1]); }, 1,
               [](Element i) { return i; }},
    KernelCase{"reduce", 2, 3,
               [](auto const& exec, auto const& v) { reduce<Element>(exec, Operation::max, v[0], v[1]); }, 1,
               [](Element i) { return i + 1; }},
    KernelCase{"combine_2_to_2", 4, 4, combine_to<2, 2>, 3, [](Element i) { return 2 * i + 1; }},
    KernelCase{"combine_4_to_1", 5, 5, combine_to<4, 1>, 4, [](Element i) { return 4 * i + 6; }},
    KernelCase{"combine_8_to_1", 9, 9, combine_to<8, 1>, 8, [](Element i) { return 8 * i + 28; }},
};

void measure_kernel(benchmark::State& state, Stage& stage, KernelCase const& kernel, std::uint64_t bytes) {
  std::size_t const count = bytes / sizeof(Element);
  Allocation const memory(stage.ledger, MemoryCategory::buffers, "benchmark", kernel.vectors * memory_footprint(bytes));
  Arena arena(memory.bytes());
  std::vector<Vector<Element>> vectors;
  std::vector<Element> values(count);
  for (std::size_t v = 0; v < kernel.vectors; ++v) {
    vectors.push_back(arena.vector<Element>("vector", static_cast<Index>(count)));
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<Element>(v + i % 1021);
    copy_from_host<Element>(stage.exec, values, vectors[v], "trainstone::perf: kernels read the values");
  }
  std::array const calls{TimedCall([&] {
    kernel.run(stage.exec, vectors);
    stage.exec.fence("trainstone::perf: the clock is read");
  })};
  TimingOptions timing;
  timing.samples = samples;
  std::vector<double> const seconds = time_interleaved(stage.communicator, calls, timing).front().seconds;
  copy_to_host<Element>(stage.exec, vectors[kernel.result], values, "trainstone::perf: the host checks the result");
  Index wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += values[i] != kernel.expected(static_cast<Element>(i % 1021)) ? 1 : 0;
  std::vector<Index> const all = all_gather_values(stage.communicator, wrong);
  if (std::ranges::max(all) > 0) return report_wrong(state, stage, std::ranges::max(all));
  report(state, seconds, kernel.moved * static_cast<double>(bytes), 1);
}

void register_all(Stage& stage) {
  for (Collective const collective : collectives) {
    for (std::uint64_t const bytes : sizes) {
      register_collective(stage, collective, bytes);
      if (!has_data(collective)) break;
    }
  }
  for (KernelCase const& kernel : kernels) {
    for (std::uint64_t const bytes : sizes) {
      benchmark::RegisterBenchmark(
          fmt::format("kernel/{}/bytes:{}", kernel.name, bytes),
          [&stage, &kernel, bytes](benchmark::State& state) { measure_kernel(state, stage, kernel, bytes); })
          ->UseManualTime()
          ->Iterations(samples)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

/// Of all ranks but the first.
class Silence : public benchmark::BenchmarkReporter {
  bool ReportContext(Context const&) override { return true; }
  void ReportRuns(std::vector<Run> const&) override {}
};

int run_benchmarks(MpiEnvironment const& mpi) {
  Stage stage{ExecutionSpace(), Communicator::world()};
  stage.communicator.use_buffers(usual_buffers(stage.communicator, stage.exec), stage.exec);
  stage.communicator.use_neighbours_memory(prove_neighbour_memory(stage.communicator, stage.exec).proved);
  register_all(stage);
  Silence silence;
  bool const first = mpi.world_rank() == 0;
  std::size_t const count = first ? benchmark::RunSpecifiedBenchmarks() : benchmark::RunSpecifiedBenchmarks(&silence);
  benchmark::ClearRegisteredBenchmarks(); // they hold the stage
  return count > 0 && stage.all_right ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace trainstone

int main(int argc, char** argv) {
  setenv("KOKKOS_DISABLE_WARNINGS", "true", 0);
  trainstone::MpiEnvironment const mpi(argc, argv);
  try {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
    return trainstone::run_benchmarks(mpi);
  } catch (std::exception const& error) {
    fmt::print(stderr, "rank {}: {}\n", mpi.world_rank(), error.what());
    mpi.abort(EXIT_FAILURE);
  }
}
