// What perf/gate/ratios decides by: two ways to do the same in one process, stepped alternately A B B A, B A A B
// on all ranks, so that no absolute time of a machine is needed. Owns the table of ratios and the training that they
// are taken from. Writes raw samples as JSON, each the slowest rank's; statistics and decisions are the gate's. Every
// A/A series is two arms alike: what the job's own noise looks like. Results are checked: collectives element by
// element, trainings by their replicas.

#include "comm/execution/buffers_start.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/environment.hpp"
#include "comm/measurement/collective_contest.hpp"
#include "core/atomic_file.hpp"
#include "core/clock.hpp"
#include "core/cores.hpp"
#include "core/json_text.hpp"
#include "core/launch.hpp"
#include "deck/deck.hpp"
#include "kernels/gemm/library_threads.hpp"
#include "kernels/measurement/peaks.hpp"
#include "model/work.hpp"
#include "result/result.hpp"
#include "train/data/training_data.hpp"
#include "train/injected_delay.hpp"
#include "train/planned_trainer.hpp"
#include "train/verification/run_verification.hpp"

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace trainstone {

namespace {

using Keys = std::vector<std::string>;

/// Steps of some milliseconds whose gradients fill several buckets.
Keys const training_keys{"model.layers=2",       "model.heads=4",     "model.channels=192",
                         "model.context=128",    "model.vocab=509",   "data.source=synthetic",
                         "data.sequence=128",    "data.steps=100000", "batch.micro=1",
                         "batch.accumulation=1", "optimizer.lr=1e-4", "optimizer.schedule=constant",
                         "parallel.bucket=1 MiB"};
/// Slow enough that what overlap hides can be told from noise.
Keys const network_keys{"comm.emulated_network.latency=50 us", "comm.emulated_network.bandwidth=1 GB/s"};
constexpr int steps_per_sample = 2;      // of which the second one's forward covers what the first one's update gathers
constexpr int steps_per_gemm_sample = 4; // of which the shortest counts, as at the peak
constexpr double peak_seconds = 8e-3;
constexpr std::array<std::uint64_t, 3> sizes{64 << 10, 1 << 20, 4 << 20};

struct Arguments {
  std::string file;
  int pairs = 40;
  Keys overrides;
};

ResolvedRun resolved(Keys const& keys, Communicator const& world, ExecutionSpace const& exec) {
  RunConfig const config = resolve(read_deck({.path = "", .overrides = keys, .environment = ""}), world.size());
  return resolve_run(config, world.topology(), {.buffers = usual_buffers(world, exec)});
}

/// A training and everything that it refers to.
class Training {
public:
  Training(ExecutionSpace const& exec, Keys const& keys)
      : m_exec(exec),
        m_communicator(Communicator::world()),
        m_run(resolved(keys, m_communicator, exec)),
        m_data(m_run.config, ScanTokens::no),
        m_training(exec, on_network(), m_run, m_data.batches(), m_data.steps()) {}

  /// Seconds of some steps and all that they have begun, of the slowest rank. Collective.
  double run() {
    InjectedDelay const delay(m_run.config.faults, m_training.plan.rank);
    barrier(m_communicator);
    SteadyTime const start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps_per_sample; ++i) m_training.trainer.step(++m_step);
    m_training.trainer.finish();
    return control_all_reduce(m_exec, m_communicator, Operation::max, seconds_since(start));
  }

  /// Seconds of a step's matrix products: of the shortest of some steps, of the slowest rank. Collective.
  double gemm_seconds() {
    InjectedDelay const delay(m_run.config.faults, m_training.plan.rank);
    barrier(m_communicator);
    double shortest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < steps_per_gemm_sample; ++i) {
      double const before = counters().seconds[Phase::gemm];
      m_training.trainer.step(++m_step);
      shortest = std::min(shortest, counters().seconds[Phase::gemm] - before);
    }
    m_training.trainer.finish();
    return control_all_reduce(m_exec, m_communicator, Operation::max, shortest);
  }

  /// The time of a step's products at the rate of the model's largest one, measured now. Collective.
  double gemm_seconds_at_peak() {
    std::vector<GemmUse> const uses =
        forward_gemms(m_run.config.model, m_training.plan.shape, m_training.plan.storage());
    auto const flops = [](GemmUse const& use) { return use.shape.flops(); };
    std::array const largest{std::ranges::max_element(uses, {}, flops)->shape};
    barrier(m_communicator);
    double const mine = measure_gemm_peak(m_exec, m_training.plan.gemm.usual(), largest, peak_seconds).flops_per_second;
    double const rate = control_all_reduce(m_exec, m_communicator, Operation::min, mine);
    return static_cast<double>(m_training.plan.step_flops.gemm) / rate;
  }

  /// \throws CollectiveError if ranks differ or something is not finite
  void check() {
    for (Check const& check : {check_replicas(m_exec, m_communicator, m_training.trainer),
                               check_finite(m_exec, m_communicator, m_training.trainer)})
      if (!check.passed)
        throw CollectiveError(fmt::format("{}: {}", check.name, check.detail), ExitCode::verification_failed);
  }

  std::string gemm() const { return describe_gemm(m_training.plan.gemm, m_training.plan.storage().values); }
  bool is_emulated() const { return emulates_time(m_run.config); }

private:
  /// The communicator, before the trainer makes anything of it.
  Communicator& on_network() {
    m_communicator.emulate_network(m_run.config.comm.emulated_network());
    return m_communicator;
  }

  ExecutionSpace m_exec;
  Communicator m_communicator;
  ResolvedRun m_run;
  TrainingData m_data;
  PlannedTrainer m_training;
  std::int64_t m_step = 0;
};

/// Two arms and what was measured of them, in the order of measurement. The ratio is B / A: above 1, B takes longer.
struct Series {
  std::string name;
  std::string spread; ///< name of the series of two arms alike; empty: this is one
  std::function<double()> a, b;
  std::string arms = {};
  std::vector<double> seconds = {};
};

/// A B B A, then B A A B: neither always comes first, where caches still hold what was measured before.
void measure(std::vector<Series>& all, int pairs) {
  for (int pair = 0; pair < pairs; pair += 2) {
    for (Series& series : all) {
      for (char const arm : std::string(pair % 4 == 0 ? "ABBA" : "BAAB")) {
        series.arms += arm;
        series.seconds.push_back(arm == 'A' ? series.a() : series.b());
      }
    }
  }
}

/// Ours, MPI's and ours again, interleaved by the contest itself.
void measure_all_reduce(ExecutionSpace const& exec, std::uint64_t bytes, int pairs, std::vector<Series>& all) {
  Communicator communicator = Communicator::world();
  communicator.use_buffers(usual_buffers(communicator, exec), exec);
  Problem const problem =
      even_problem(Collective::all_reduce, static_cast<Index>(bytes / sizeof(float)), communicator.topology());
  Contestant const ours{.algorithm = Algorithm::ring}; // messages, as MPI's: what carries them weighs on both
  std::array const contestants{ours, Contestant{}, ours};
  MemoryLedger ledger;
  MeasuredMemory const memory(
      exec, communicator, ledger, "ratios",
      contest_bytes(communicator.buffers(), problem, communicator.rank(), ElementType::float32, contestants), false);
  ContestOptions options;
  options.timing.samples = pairs;
  options.timing.sample_seconds = 8e-3; // as long as a step
  options.fresh = false;                // a ratio of differences would be noisier
  std::vector<ContestResult> const results = run_contest(exec, communicator, problem, Operation::sum,
                                                         ElementType::float32, contestants, memory.buffers(), options);
  for (ContestResult const& result : results)
    if (result.wrong > 0)
      throw CollectiveError(fmt::format("all_reduce of {} bytes: {} elements are wrong", bytes, result.wrong),
                            ExitCode::verification_failed);
  auto const add = [&](std::string const& name, std::string const& spread, std::size_t a) {
    Series series{name, spread, {}, {}};
    for (std::size_t pass = 0; pass < results[a].samples.seconds.size(); ++pass) {
      bool const b_first = pass % 2 == 0; // contestants take turns from the first one to the last, and back
      double const seconds_a = results[a].samples.seconds[pass], seconds_b = results[0].samples.seconds[pass];
      series.arms += b_first ? "BA" : "AB";
      series.seconds.insert(series.seconds.end(), {b_first ? seconds_b : seconds_a, b_first ? seconds_a : seconds_b});
    }
    all.push_back(series);
  };
  std::string const name = fmt::format("all_reduce {} KiB, {}", bytes >> 10, to_string(ours));
  add(name + "/mpi", "A/A " + name, 1);
  add("A/A " + name, "", 2);
}

std::vector<Series> measure_all(ExecutionSpace const& exec, Arguments const& arguments, nlohmann::json& about) {
  std::vector<std::unique_ptr<Training>> kept;
  auto const training = [&](std::vector<Keys> const& more) {
    Keys keys = training_keys;
    for (Keys const& some : more) keys.insert(keys.end(), some.begin(), some.end());
    keys.insert(keys.end(), arguments.overrides.begin(), arguments.overrides.end());
    kept.push_back(std::make_unique<Training>(exec, keys));
    return kept.back().get();
  };
  auto const step = [](Training* one) { return [one] { return one->run(); }; };
  auto const gemm = [](Training* one) { return [one] { return one->gemm_seconds(); }; };
  Keys const ddp{"parallel.strategy=ddp"}, without{"parallel.overlap=false"};
  Training *const plain = training({ddp}), *const twin = training({ddp});
  Training *const exposed = training({ddp, network_keys, without}), *const other =
                                                                        training({ddp, network_keys, without});
  std::vector<Series> all{{"overlap/no overlap", "A/A no overlap", step(exposed), step(training({ddp, network_keys}))},
                          {"A/A no overlap", "", step(exposed), step(other)},
                          {"A/A ddp", "", step(plain), step(twin)}};
  if constexpr (launches_wait) { // else phases are not timed
    all.push_back({"gemm/peak", "A/A gemm", [plain] { return plain->gemm_seconds_at_peak(); }, gemm(plain)});
    all.push_back({"A/A gemm", "", gemm(plain), gemm(twin)});
  }
  for (int const stage : {1, 2, 3})
    all.push_back({fmt::format("zero{}/ddp", stage), "A/A ddp", step(plain),
                   step(training({{"parallel.strategy=zero", fmt::format("parallel.zero_stage={}", stage)}}))});
  for (auto const& one : kept)
    for (int i = 0; i < 3; ++i) one->run();
  measure(all, arguments.pairs);
  for (auto const& one : kept) one->check();
  for (std::uint64_t const bytes : sizes) measure_all_reduce(exec, bytes, arguments.pairs, all);
  about["gemm"] = plain->gemm();
  about["emulated"] = plain->is_emulated();
  return all;
}

int measure_and_write(MpiEnvironment const& mpi, Arguments const& arguments) {
  bool const first = mpi.world_rank() == 0;
  if (mpi.world_size() < 2) throw CollectiveError("ratios of collectives need two ranks or more", ExitCode::usage);
  if (first) require_writable(arguments.file);
  ExecutionSpace const exec;
  MachineInfo const machine = describe_machine();
  nlohmann::json about{{"cpu", machine.cpu},
                       {"cores", cores_of_threads(Kokkos::DefaultHostExecutionSpace()).size()},
                       {"kokkos", fmt::format("{} {}", KOKKOS_VERSION, ExecutionSpace::name())},
                       {"threads", exec.concurrency()},
                       {"mpi", mpi.implementation()},
                       {"ranks", mpi.world_size()},
                       {"compiler", describe_compiler()}};
  std::vector<Series> const all = measure_all(exec, arguments, about);
  if (!first) return EXIT_SUCCESS;
  nlohmann::json series = nlohmann::json::array();
  for (Series const& one : all)
    series.push_back({{"name", one.name}, {"spread", one.spread}, {"arms", one.arms}, {"seconds", one.seconds}});
  write_file_atomically(arguments.file, json_text(nlohmann::json{{"about", about}, {"series", series}}));
  return EXIT_SUCCESS;
}

} // namespace
} // namespace trainstone

int main(int argc, char** argv) {
  using namespace trainstone;
  Arguments arguments;
  CLI::App app("Measures ratios of ways to do the same, interleaved.", "perf_ratios");
  app.add_option("FILE", arguments.file, "JSON to write")->required();
  app.add_option("--pairs", arguments.pairs, "of samples, of each ratio; even")->check(CLI::Range(2, 100000));
  app.add_option("--set", arguments.overrides, "key=value of all trainings")->take_all()->allow_extra_args(false);
  CLI11_PARSE(app, argc, argv);
  arguments.pairs += arguments.pairs % 2;
  setenv("KOKKOS_DISABLE_WARNINGS", "true", 0);
  match_library_threads_to_kernels();
  MpiEnvironment const mpi(argc, argv);
  try {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    return measure_and_write(mpi, arguments);
  } catch (Error const& error) {
    fmt::print(stderr, "rank {}: {}\n", mpi.world_rank(), error.what());
    mpi.abort(static_cast<int>(error.code()));
  } catch (std::exception const& error) {
    fmt::print(stderr, "rank {}: {}\n", mpi.world_rank(), error.what());
    mpi.abort(EXIT_FAILURE);
  }
}
