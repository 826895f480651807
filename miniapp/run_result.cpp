#include "run_result.hpp"

#include "comm/execution/buffers_start.hpp"
#include "core/large_pages.hpp"
#include "git_version.hpp"
#include "kernels/gemm/library_threads.hpp"
#include "kernels/measurement/peaks.hpp"
#include "result/released_curves.hpp"
#include "result/stop_cost.hpp"
#include "run_pipeline.hpp"
#include "run_servers.hpp"
#include "train/plan/step_prediction.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

namespace trainstone {

namespace {

NamedAmounts named(CategoryBytes const& bytes) {
  NamedAmounts amounts;
  for (MemoryCategory category : memory_categories) amounts.emplace_back(to_string(category), bytes[category]);
  return amounts;
}

/// Not a number if there are no samples: a restart may leave none.
double median_of_any(std::vector<double> const& samples) {
  return samples.empty() ? std::numeric_limits<double>::quiet_NaN() : median(samples);
}

/// Of the steps that a rank makes: from the step before to its end, without communication, and communication.
struct OwnTimes {
  std::vector<double> seconds, busy, communication;
};

/// Of the pushes of a worker that others do not wait for, in this run. A worker that has none in the window, because it
/// is slow, is measured by all of them.
OwnTimes times_of_pushes(ServedTraining const& served, MeasuredWindow const& window, Rank worker) {
  OwnTimes times;
  std::vector<double> computed;
  double last = 0;
  Index pushes = 0;
  for (std::size_t i = 0; i < served.parts.size(); ++i)
    for (AppliedPush const& push : served.parts[i].pushes) {
      std::int64_t const step = 1 + pushes++ / served.policy.workers;
      if (i < served.before || push.worker != worker) continue;
      double const seconds = push.seconds - std::exchange(last, push.seconds);
      times.seconds.push_back(seconds);
      computed.push_back(push.computed);
      if (step < window.first || step > window.last) continue;
      times.busy.push_back(push.computed);
      times.communication.push_back(std::max(0.0, seconds - push.computed));
    }
  if (times.busy.empty()) times.busy = std::move(computed);
  return times;
}

/// Of a server whose workers do not wait for each other: what its kernels took, as a mean over steps.
OwnTimes times_of_server(Training const& training, OwnTimes steps) {
  PerPhase<double> const& seconds = training.counted.kernels.seconds;
  double kernels = 0;
  for (Phase const phase : phases)
    if (phase != Phase::communication) kernels += seconds[phase];
  double const mean = kernels / static_cast<double>(std::max<std::size_t>(1, steps.seconds.size()));
  for (std::size_t i = 0; i < steps.busy.size(); ++i) {
    steps.communication[i] += steps.busy[i] - mean;
    steps.busy[i] = mean;
  }
  return steps;
}

/// Replaces every step's time by the maximum over ranks, the exposed communication by the minimum over those that
/// compute, and returns each rank's own figures. A server only waits: its time would hide the others'.
std::vector<RankInfo> merge_times(Training& training, MeasuredWindow const& window, Mesh const& mesh,
                                  RankContext& context) {
  OwnTimes own;
  std::vector<double> exposed;
  for (StepReport const& sample : training.samples) {
    own.seconds.push_back(sample.seconds);
    exposed.push_back(sample.exposed_communication_seconds);
    if (sample.step < window.first || sample.step > window.last) continue;
    own.communication.push_back(sample.exposed_communication_seconds);
    own.busy.push_back(sample.seconds - own.communication.back());
  }
  std::vector<double> slowest = own.seconds;
  if (mesh.serves(context.communicator.rank())) exposed.assign(exposed.size(), std::numeric_limits<double>::infinity());
  control_all_reduce(context.exec, context.communicator, Operation::max, slowest);
  control_all_reduce(context.exec, context.communicator, Operation::min, exposed);
  for (std::size_t i = 0; i < slowest.size(); ++i) {
    training.samples[i].seconds = slowest[i];
    training.samples[i].exposed_communication_seconds = exposed[i];
  }

  if (training.served) // steps are those of all workers together
    own = mesh.serves(context.communicator.rank())
              ? times_of_server(training, std::move(own))
              : times_of_pushes(*training.served, window, context.communicator.rank());
  auto const medians = all_gather_values(context.communicator, median_of_any(own.seconds));
  auto const busy_medians = all_gather_values(context.communicator, median_of_any(own.busy));
  auto const sums =
      all_gather_values(context.communicator, std::accumulate(own.communication.begin(), own.communication.end(), 0.0));
  NodeMap const& nodes = context.communicator.nodes();
  std::vector<RankInfo> ranks;
  for (std::size_t rank = 0; rank < medians.size(); ++rank)
    ranks.push_back({static_cast<std::int64_t>(rank),
                     nodes.host_names.at(static_cast<std::size_t>(nodes.node_of_rank[rank])), medians[rank],
                     busy_medians[rank], sums[rank], mesh.serves(static_cast<Rank>(rank))});
  return ranks;
}

std::optional<GoldenSource> golden_source(PreparedRun const& run) {
  if (!run.golden && !run.compares_first_step()) return std::nullopt;
  return GoldenSource{run.golden_digest, run.reference_key,
                      run.golden ? run.golden->recorded_with : run.first_step->recorded_with,
                      is_released(run.golden_digest)};
}

std::optional<StartAmounts> start_amounts(Traffic const& start) {
  return start.messages > 0 ? std::optional(StartAmounts{start.bytes, start.messages}) : std::nullopt;
}

/// Of a step with its update. Nothing if the state lies with the kernels.
std::optional<OffloadAmounts> offload_amounts(RunPlan const& plan, StateMoves const& update,
                                              StateMoves const& gathers) {
  if (!plan.parallel.offload.moves()) return std::nullopt;
  return OffloadAmounts{update + gathers, plan.file_bytes};
}

WorkAmounts counted_amounts(PreparedRun const& run, Training const& training) {
  auto const steps = static_cast<std::uint64_t>(std::max<std::int64_t>(1, training.counted.steps));
  std::int64_t const updates = training.counted.steps - training.counted.skipped;
  return {named(training.counted.memory),
          training.step_sent.bytes / steps,
          training.step_sent.messages / steps,
          training.step_flops / steps,
          training.step_launches / steps,
          start_amounts(training.counted.start),
          offload_amounts(*run.plan,
                          training.counted.moves / static_cast<std::uint64_t>(std::max<std::int64_t>(1, updates)),
                          training.step_gathered / steps)};
}

std::vector<KernelRow> kernel_rows(KernelTable const& kernels, MeasuredWindow const& window) {
  auto const steps = static_cast<double>(window.last - window.first + 1);
  auto const mean = [steps](auto sum) { return static_cast<double>(sum) / steps; };
  std::vector<KernelRow> rows;
  if (window.empty()) return rows;
  for (auto const& [label, times] : kernels)
    rows.push_back({label, mean(times.launches), mean(times.seconds), mean(times.flops), mean(times.bytes)});
  std::ranges::stable_sort(rows, std::ranges::greater(), &KernelRow::seconds);
  return rows;
}

/// Resident now: the peak would show the measurement of the bandwidth, not the training.
std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;
  status >> total >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Of a step, by all stages that work on one micro-batch together.
std::uint64_t executed_flops(PreparedRun const& run) {
  if (!run.plan->parallel.pipeline.has_stages()) return run.plan->step_flops.total();
  std::uint64_t sum = 0;
  for (RunPlan const& plan : plan_stages(run.resolved)) sum += plan.step_flops.total();
  return sum;
}

std::map<std::string, double> metrics_of(Result const& result, PreparedRun const& run) {
  std::vector<double> seconds;
  double window_seconds = 0, exposed = 0;
  for (StepReport const& sample : result.samples) {
    if (sample.step < result.window.first || sample.step > result.window.last) continue;
    seconds.push_back(sample.seconds);
    window_seconds += sample.seconds;
    exposed += sample.exposed_communication_seconds;
  }
  auto const skipped = static_cast<double>(std::ranges::count_if(result.samples, &StepReport::skipped));
  auto const parameters = static_cast<double>(run.plan->table.model_parameters());
  if (seconds.empty()) return {{"model_parameters", parameters}, {"skipped_steps", skipped}};
  Mesh const& mesh = run.resolved.mesh;
  double const flops_of_step = static_cast<double>(executed_flops(run)) * mesh.data() * mesh.sharers();
  std::map<std::string, double> metrics{
      {"step_seconds_median", median(seconds)},
      {"executed_flops_per_second", flops_of_step * static_cast<double>(seconds.size()) / window_seconds},
      {"exposed_communication_share", exposed / window_seconds},
      {"model_parameters", parameters},
      {"skipped_steps", skipped}};
  ComputeRates const peaks{result.peaks.gemm_flops_per_second, result.peaks.bandwidth_bytes_per_second};
  double const least = run.one_worker ? std::numeric_limits<double>::quiet_NaN() // the plan is of one worker
                                      : floor_seconds(*run.plan, run.config().optimizer, peaks);
  if (std::isfinite(least)) {
    metrics["floor_seconds"] = least;
    metrics["floor_ratio"] = median(seconds) / least;
  }
  bool const is_whole = result.checkpoints.resumed_step == 0;
  if (auto const cost = cost_to(run.config().length.stop_loss, result.samples); cost && is_whole) {
    metrics["seconds_to_stop_loss"] = cost->seconds;
    metrics["tokens_to_stop_loss"] = cost->tokens;
    metrics["steps_to_stop_loss"] = static_cast<double>(cost->steps);
    metrics["flops_to_stop_loss"] = flops_of_step * static_cast<double>(cost->steps);
  }
  return metrics;
}

ServersInfo servers_of(PreparedRun const& run, ServedTraining const& served) {
  ServersInfo info = servers_info(served.policy, served.parts);
  info.order = run.config().parallel.server_order == ServerOrder::planned ? "planned" : "arrival";
  info.parameter_hash = fmt::format("{:016x}", served.hashes.front());
  return info;
}

/// What was run, and where.
Result describe_run(PreparedRun const& run, RankContext const& context) {
  Result result;
  result.parameters = resolved_parameters(run.deck, context.communicator.size());
  result.deck = deck_label(run.deck);
  result.deck_hash = deck_hash(run.deck);
  result.golden_key = run.golden_key;
  result.golden = golden_source(run);
  result.benchmark_class = run.judgement;
  result.code = code_info();
  result.machine = describe_machine();
  result.machine.mpi = context.mpi.implementation();
  result.machine.device = current_device().name;
  result.machine.cores = count_cores({run.places[static_cast<std::size_t>(context.communicator.rank())]});
  result.topology = {context.communicator.size(),          context.communicator.nodes().count,
                     context.exec.concurrency(),           std::string(to_string(run.resolved.buffers)),
                     run.config().comm.emulated_nodes > 0, run.config().comm.emulated_network()};
  result.topology.devices_per_node = run.devices_per_node;
  result.topology.places = run.places;
  result.topology.threads_of_libraries = library_threads(run.plan->gemm);
  for (GemmProvider const provider : run.plan->gemm.providers())
    result.providers.gemm.emplace_back(to_string(provider));
  result.providers.attention = describe_attention(run.config().model_options);
  result.chosen = run.chosen;
  result.peaks = run.peaks;
  result.predicted = predicted_amounts(*run.plan);
  return result;
}

} // namespace

Traffic total_sent(CommCounters const& counted) {
  return counted.total(Purpose::training) + counted.total(Purpose::control);
}

Traffic difference(Traffic const& later, Traffic const& earlier) {
  return {later.messages - earlier.messages, later.bytes - earlier.bytes, later.reduced - earlier.reduced};
}

FileReads reads_of_all(FileReads const& own, RankContext& context) {
  auto const bytes =
      control_all_reduce(context.exec, context.communicator, Operation::sum, static_cast<std::int64_t>(own.bytes));
  return {static_cast<std::uint64_t>(bytes),
          control_all_reduce(context.exec, context.communicator, Operation::max, own.seconds)};
}

WorkAmounts busiest_rank(WorkAmounts amounts, RankContext& context) {
  std::vector<std::int64_t> sent{static_cast<std::int64_t>(amounts.sent_bytes),
                                 static_cast<std::int64_t>(amounts.messages)};
  control_all_reduce(context.exec, context.communicator, Operation::max, sent);
  amounts.sent_bytes = static_cast<std::uint64_t>(sent[0]);
  amounts.messages = static_cast<std::uint64_t>(sent[1]);

  std::vector<std::uint64_t> const totals = all_gather_values(context.communicator, total(amounts.memory_bytes));
  bool const is_largest = std::ranges::max_element(totals) - totals.begin() == context.communicator.rank();
  std::vector<std::int64_t> bytes;
  for (auto const& entry : amounts.memory_bytes)
    bytes.push_back(is_largest ? static_cast<std::int64_t>(entry.second) : 0);
  control_all_reduce(context.exec, context.communicator, Operation::max, bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) amounts.memory_bytes[i].second = static_cast<std::uint64_t>(bytes[i]);
  return amounts;
}

CodeInfo code_info() { return {TRAINSTONE_VERSION, git_commit, git_dirty, describe_compiler(), kokkos_description()}; }

WorkAmounts predicted_amounts(RunPlan const& plan) {
  Traffic const sent = plan.step_sent() + plan.step_control();
  return {named(plan.memory_bytes()),
          sent.bytes,
          sent.messages,
          plan.step_flops.total(),
          plan.step_launches + plan.update_launches,
          start_amounts(plan.start_sent()),
          offload_amounts(plan, plan.update_moves, plan.gather_moves)};
}

PeakInfo sum_peaks(RankContext& context, GemmChoice const& gemm, ModelStorage const& storage, std::size_t sharing) {
  barrier(context.communicator);
  double flops = 0;
  for (GemmProvider const provider : gemm.providers()) {
    int const threads = std::max(context.exec.concurrency(), library_threads(provider));
    auto const shapes = gemm_peak_shapes(storage.values, storage.gradients, peak_extents(threads));
    flops = std::max(flops, measure_gemm_peak(context.exec, provider, shapes).flops_per_second);
  }
  barrier(context.communicator);
  double const bandwidth = measure_bandwidth_peak(context.exec, bandwidth_working_set / sharing).bytes_per_second;
  std::vector<double> sums{flops, bandwidth};
  control_all_reduce(context.exec, context.communicator, Operation::sum, sums);
  return {sums[0], sums[1]};
}

PeakInfo measure_peaks(RankContext& context, PreparedRun const& run) {
  std::int64_t const shares = shared_processors(run, context.exec).empty() ? 0 : 1;
  if (control_all_reduce(context.exec, context.communicator, Operation::max, shares) > 0) return {};
  return sum_peaks(context, run.plan->gemm, run.plan->storage(), run.neighbours.size());
}

Result make_result(PreparedRun const& run, Training training, RankContext& context) {
  Result result = describe_run(run, context);
  result.losses_before = run.checkpoints->start().losses;
  result.checkpoints = run.checkpoints->info();
  result.energy = training.energy;
  result.state_files = training.state_files;
  result.data = reads_of_all(run.data->reads(), context);
  result.window = run.window;
  result.window.last = std::min(result.window.last, training.counted.before + std::ssize(training.samples));
  result.ranks = merge_times(training, result.window, run.resolved.mesh, context);
  result.counted = counted_amounts(run, training);
  result.predicted.start = start_amounts(static_cast<std::uint64_t>(training.counted.starts) * run.plan->start_sent());
  result.pipeline = measured_pipeline(run, training.stages, context);
  if (training.served) {
    result.servers = servers_of(run, *training.served);
    Traffic const sent = predicted_traffic(run, *training.served);
    auto const pushes = static_cast<std::uint64_t>(std::max<std::int64_t>(1, training.counted.steps));
    result.predicted.sent_bytes = sent.bytes / pushes;
    result.predicted.messages = sent.messages / pushes;
  }
  result.kernels = kernel_rows(training.kernels, result.window);
  result.resident_bytes = resident_bytes();
  result.large_page_bytes = bytes_in_large_pages();
  result.samples = std::move(training.samples);
  result.early = std::move(training.early);
  result.tokens_per_second = rate_of_window(result);
  result.metrics = metrics_of(result, run);
  if (run.plan->parallel.offload.moves()) {
    auto const of_step = [&](double seconds) {
      return control_all_reduce(context.exec, context.communicator, Operation::max, seconds) /
             static_cast<double>(std::max<std::int64_t>(1, training.counted.steps));
    };
    result.metrics["exposed_offload_seconds"] = of_step(training.offload_seconds);
    result.metrics["file_seconds"] = of_step(training.file_seconds);
  }
  return result;
}

} // namespace trainstone
