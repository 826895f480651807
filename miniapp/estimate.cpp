// trainstone estimate: what a run would need per rank, item by item, without running or launching anything.

#include "commands.hpp"

#include "advice/largest_fit.hpp"
#include "core/atomic_file.hpp"
#include "core/plural.hpp"
#include "lectures/lecture_models.hpp"
#include "report/bounds_table.hpp"
#include "report/machine_source.hpp"
#include "report/output.hpp"
#include "report/timeline_text.hpp"
#include "run_result.hpp"
#include "stages_table.hpp"
#include "train/pace.hpp"
#include "train/plan/extreme_plans.hpp"
#include "train/plan/pipeline_prediction.hpp"
#include "train/plan/served_run.hpp"
#include "train/plan/step_prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

/// Where not all of it lies with the kernels.
void print_residences(RunPlan const& plan) {
  std::uint64_t const total = plan.memory_bytes().total(), kernels = plan.kernel_memory();
  if (kernels == total && plan.file_bytes == 0) return;
  auto const print = [](char const* where, std::uint64_t bytes) {
    fmt::print("    {:<34} {:>16}  ({})\n", where, bytes, mebibytes(bytes));
  };
  print("where kernels work", kernels);
  print("on the host", total - kernels);
  if (plan.file_bytes > 0)
    fmt::print("  {:<36} {:>16}  ({})\n", "in files, beside it", plan.file_bytes, mebibytes(plan.file_bytes));
}

void print_memory(RunPlan const& plan, std::string_view note) {
  fmt::print("bytes of memory on rank {}{}\n", plan.rank, note);
  for (MemoryCategory category : memory_categories) {
    fmt::print("  {:<36} {:>16}\n", to_string(category), plan.memory_bytes()[category]);
    for (MemoryItem const& item : plan.memory)
      if (item.category == category && item.name != to_string(category))
        fmt::print("    {:<34} {:>16}\n", item.name, item.bytes);
  }
  fmt::print("  {:<36} {:>16}  ({})\n", "total", plan.memory_bytes().total(), mebibytes(plan.memory_bytes().total()));
  print_residences(plan);
}

/// Of the whole model.
void print_parameters(ParameterTable const& table, Rank stages) {
  std::int64_t const padded = table.size();
  char const* const together = stages > 1 ? " by all stages together" : "";
  if (table.slices().have_sharers())
    fmt::print("parameters {} of the model, {} in a tensor rank's share{}, with padding of vocabulary and groups\n",
               table.model_parameters(), padded, stages > 1 ? " of all stages" : "");
  else
    fmt::print("parameters {} of the model, {} stored{} ({} for padding of vocabulary and groups)\n",
               table.model_parameters(), padded, together, padded - table.model_parameters());
  for (ParameterGroup const& group : table.groups())
    fmt::print("  {:<36} {:>16}  padded to {}\n", group.name, group.size, group.padded);
}

void print_sent(std::string_view name, Traffic const& sent, std::string const& when) {
  fmt::print("  {:<60} {:>14} bytes in {}{}\n", name, sent.bytes, plural(static_cast<Index>(sent.messages), "message"),
             when);
}

void print_sent_by(RunPlan const& plan, std::string_view note) {
  fmt::print("sent per step by rank {}{}\n", plan.rank, note);
  for (auto const* rows : {&plan.sent, &plan.control})
    for (TrafficRow const& row : *rows) print_sent(row.name, row.traffic, "");
  for (TrafficRow const& row : plan.start) print_sent(row.name, row.traffic, ", once");
  if (plan.replica_check_every > 0)
    print_sent("control: hash of all parameters", plan.replica_check,
               fmt::format(", every {}", plural(plan.replica_check_every, "step")));
}

void print_moves(char const* by, Rank rank, StateMoves const& moves) {
  fmt::print("bytes moved by {} on rank {}\n", by, rank);
  fmt::print("  {:<36} {:>16}\n", "to the host", moves.to_host);
  fmt::print("  {:<36} {:>16}\n", "to the kernels", moves.to_kernels);
  if (moves.requests == 0) return;
  fmt::print("  {:<36} {:>16}\n", "read from files", moves.read);
  fmt::print("  {:<36} {:>16}  in {} reads and writes\n", "written to files", moves.written, moves.requests);
}

/// Of state that does not lie with the kernels.
void print_moves(RunPlan const& plan) {
  OffloadPlan const& offload = plan.parallel.offload;
  if (offload.moves()) print_moves("an update", plan.rank, plan.update_moves);
  if (offload.moves_parameters()) print_moves("the gathers of a step", plan.rank, plan.gather_moves);
}

void print_work(RunPlan const& plan) {
  fmt::print("FLOP per step and rank\n");
  fmt::print("  {:<36} {:>16}\n", "GEMM", plan.step_flops.gemm);
  fmt::print("  {:<36} {:>16}\n", "attention", plan.step_flops.attention);
  double const tokens = static_cast<double>(plan.accumulation * plan.shape.rows());
  Mesh const& mesh = plan.parallel.layout.mesh;
  fmt::print("  {:<36} {:>16.4e}  (6 x parameters x tokens{}{}: {:.4e})\n", "sum",
             static_cast<double>(plan.step_flops.total()), mesh.pipeline > 1 ? " / stages" : "",
             mesh.shares_layers() ? " / tensor ranks" : "",
             6.0 * static_cast<double>(plan.table.model_parameters()) * tokens /
                 static_cast<double>(mesh.pipeline * mesh.sharers()));
  fmt::print("kernels per step and rank {:>41}\n", plan.step_launches + plan.update_launches);
}

/// The predicted time of a step, and where it comes from.
struct PredictedStep {
  double compute_seconds;
  double communication_seconds;               ///< that no computation covers, waits for other ranks included
  char const* from;                           ///< "parts", "peaks"
  std::optional<double> exposed_offload = {}; ///< of this time, in which gathers and the update wait for files of state
};

/// Of an update that moves its state, beside what its kernels take. \param[in] step  in s, without
PredictedMoves predict_moves_of(RunPlan const& plan, MachineSource const& machine, double step) {
  if (!plan.parallel.offload.has_chunks()) return {};
  TRAINSTONE_REQUIRE_INPUT(machine.measured->offload,
                           "{} has no rates of copies and files; `trainstone calibrate` measures them",
                           machine.description);
  double const each = machine.measured->parts->times.update_of_element;
  PredictedMoves const moves = predict_moves_of_step(plan.parallel, *machine.measured->offload, each, step);
  fmt::print("  an update copies state for {:.3g} s and waits {:.3g} s for the file, which takes {:.3g} s\n",
             moves.copies, moves.waits, moves.file);
  if (moves.slower != 0)
    fmt::print("  its kernels take {:.3g} s {} than in place\n", std::abs(moves.slower),
               moves.slower > 0 ? "longer" : "less");
  fmt::print("  with this update a step takes {:.4g} s\n", step + moves.total());
  return moves;
}

/// From the times of parts that belong to the deck.
PredictedStep predict_from_parts(RunConfig const& config, Topology const& topology, MachineSource const& machine) {
  MeasuredParts const& parts = *machine.measured->parts;
  ResolvedRun const run = resolve_run(config, topology);
  std::vector<RunPlan> const stages = plan_stages(run);
  EmulatedNetwork const network = config.comm.emulated_network();
  PartTimes const times = paced(parts.times, config.faults);
  StepTimeline const timeline = predict_timeline(stages, times, machine.model, network, Entries::no,
                                                 machine.measured->offload.value_or(OffloadRates{}));
  ClassTimeline const& busiest = timeline.busiest();
  auto const seconds = [](Nanoseconds time) { return 1e-9 * static_cast<double>(time); };
  fmt::print("{}", timeline_summary(timeline));
  if (stages.size() > 1)
    fmt::print("  {}\n", to_string(predict_pipeline(config.parallel, stages, times, machine.model, network)));
  fmt::print("  times of parts, measured with {} per rank\n  {}\n", plural(parts.threads, "thread"),
             machine.description);
  if (config.faults.straggler_rank >= 0 || config.faults.straggler_sigma > 0)
    fmt::print("  note: the longer pace of faults.straggler is not predicted\n");
  double const compute = seconds(busiest.compute), others = seconds(busiest.exposed() + busiest.others);
  PredictedMoves const moves = predict_moves_of(stages.front(), machine, compute + others);
  PredictedStep step{compute + moves.total(), others, "parts"};
  if (stages.front().parallel.offload.has_file())
    step.exposed_offload = moves.waits + seconds(busiest.act[static_cast<std::size_t>(Act::fetch)]);
  return step;
}

/// Of a rank in fp32: of products in 16 bits a machine file knows no rate.
std::optional<PredictedStep> predict_at_peaks(EstimateOptions const& options, RunConfig const& config,
                                              RunPlan const& busiest, RunPlan const& computing,
                                              MachineSource const& machine) {
  if (busiest.parallel.pipeline.has_stages()) {
    fmt::print("no step time: the step of a pipeline is predicted from times of parts\n");
    return std::nullopt;
  }
  auto const& gemm = machine.measured->gemm_flops_per_second;
  auto const& bandwidth = machine.measured->bandwidth_bytes_per_second;
  TRAINSTONE_REQUIRE_INPUT(gemm && bandwidth,
                           "--machine {}: has no rates of matrix products and memory; calibrate "
                           "where every rank has cores of its own, or leave out --machine",
                           options.machine_file);
  if (config.precision.recipe != RecipeName::fp32) {
    fmt::print("no step time: {} knows products in fp32, and precision.recipe is {}\n", options.machine_file,
               to_string(config.precision.recipe));
    return std::nullopt;
  }
  StepPrediction const step = predict_step(busiest, computing, config.optimizer, {*gemm, *bandwidth}, machine.model,
                                           config.comm.emulated_network());
  fmt::print("predicted step {:.4g} s: {:.4g} s at the peaks, {:.4g} s of messages, none of them hidden\n"
             "  {}\n",
             step.total(), step.compute_seconds, step.communication_seconds, machine.description);
  if (machine.model.network.kind != Interconnect::Kind::full)
    fmt::print("  note: what messages share in the network is not in this time; --sweep has it\n");
  return PredictedStep{step.compute_seconds, step.communication_seconds, "peaks"};
}

std::optional<PredictedStep> predict_step(EstimateOptions const& options, RunConfig const& config,
                                          RunPlan const& busiest, RunPlan const& computing, Topology const& topology) {
  if (options.machine_file.empty()) return std::nullopt;
  MachineSource const machine = read_machine_source(options.machine_file, topology);
  std::string const missing = missing_parts(machine, config);
  if (missing.empty()) return predict_from_parts(config, topology, machine);
  std::optional<PredictedStep> const step = predict_at_peaks(options, config, busiest, computing, machine);
  fmt::print("  note: {} {}; `trainstone calibrate --deck DECK` measures the parts of a deck\n", options.machine_file,
             missing);
  return step;
}

std::vector<LargestValue> values_of(std::vector<LargestFit> const& fits) {
  std::vector<LargestValue> values;
  for (LargestFit const& one : fits) {
    LargestValue& value = values.emplace_back(LargestValue{.key = one.key});
    if (one.fits) value.value = one.fits->value, value.settings = one.fits->keys, value.needed = one.fits->needed;
    if (one.beyond) value.next = one.beyond->value, value.next_needed = one.beyond->needed;
  }
  return values;
}

/// \param[in] computing  of a rank that computes    \param[in] run  of all ranks
void write_json(EstimateOptions const& options, Deck const& deck, ExtremePlans const& plans, RunPlan const& computing,
                ResolvedRun const& run, std::vector<LargestFit> const& fits, std::optional<PredictedStep> const& step) {
  RunPlan const& plan = plans.largest;
  Estimate estimate;
  estimate.parameters = resolved_parameters(deck, run.topology.ranks());
  estimate.deck = deck_label(deck);
  estimate.deck_hash = deck_hash(deck);
  estimate.code = code_info();
  estimate.ranks = run.topology.ranks();
  estimate.nodes = run.topology.nodes();
  estimate.model_parameters = plan.table.model_parameters();
  estimate.tokens_per_step = run.config.batch.global * plan.shape.sequence;
  estimate.predicted = predicted_amounts(plans.busiest);
  estimate.predicted.memory_bytes = predicted_amounts(plan).memory_bytes;
  WorkAmounts const work = predicted_amounts(computing);
  estimate.predicted.flops = work.flops;
  estimate.predicted.kernel_launches = work.kernel_launches;
  estimate.needed_bytes = plan.kernel_memory();
  estimate.largest = values_of(fits);
  estimate.given_bytes = options.device_memory;
  if (step) {
    estimate.compute_seconds = step->compute_seconds;
    estimate.communication_seconds = step->communication_seconds;
    estimate.predicted_from = step->from;
    estimate.exposed_offload_seconds = step->exposed_offload;
  }
  write_file_in_folder(options.json_file, estimate_json(estimate));
}

/// Of a rank that sends most, and of one that computes.
void print_traffic_and_work(RunPlan const& busiest, RunPlan const& computing) {
  print_sent_by(busiest, ": none sends more");
  if (!busiest.computes()) print_sent_by(computing, ", a worker");
  print_moves(busiest);
  print_work(computing);
}

void print_bounds(EstimateOptions const& options, ResolvedRun const& run, RunPlan const& computing) {
  if (options.peaks.empty()) return;
  ComputeRates const one{1e12 * options.peaks[0], 1e9 * options.peaks[1]};
  fmt::print(
      "{}", bounds_text(bounded_kernels(run, computing, one), one, run.config.batch.global * computing.shape.sequence));
}

void require_options_of_a_deck(EstimateOptions const& options) {
  TRAINSTONE_REQUIRE_INPUT(!options.common.deck.path.empty(), "estimate needs a DECK, or --lecture {}",
                           lecture_names("|"));
  TRAINSTONE_REQUIRE_INPUT(!options.size, "--size belongs to --lecture");
  TRAINSTONE_REQUIRE_INPUT(!options.stages && !options.micro_batches,
                           "--stages and --micro-batches belong to --lecture pipeline");
  for (double const peak : options.peaks)
    TRAINSTONE_REQUIRE_INPUT(std::isfinite(peak) && peak > 0,
                             "--peaks: {} is no rate; give TFLOP/s and GB/s above 0, for example --peaks 790 4260",
                             peak);
}

void print_heading(Deck const& deck, ResolvedRun const& all, ResolvedRun const& run, bool apart) {
  RunConfig const& config = run.config;
  fmt::print(
      "deck {} on {} ranks: micro-batch {} x accumulation {} x data ranks {} = {} samples of {} tokens, gemm {}, "
      "attention {}\n",
      deck_label(deck), all.topology.ranks(), config.batch.micro, config.batch.accumulation, run.mesh.data(),
      config.batch.global, config.data.sequence, to_string(run.gemm.usual()), describe_attention(config.model_options));
  if (apart)
    fmt::print("workers do not wait for each other: what follows is of the push of one worker, rank 0, to the servers, "
               "ranks 1 and higher here\n");
  if (TensorSlices const slices = run.options_of(0).slices; slices.cuts())
    fmt::print("every layer in {} slices, {} on a tensor rank\n", slices.blocks, slices.count());
  if (run.mesh.features > 1)
    fmt::print("tensor ranks form a grid: {} share slices, {} share the features of the residual stream\n",
               run.mesh.tensor, run.mesh.features);
}

} // namespace

int estimate(EstimateOptions const& options) {
  if (!options.json_file.empty()) require_writable(options.json_file);
  TRAINSTONE_REQUIRE_INPUT(options.peaks.empty() ||
                               (options.lecture.empty() && options.sweep.empty() && !options.advise),
                           "--peaks lists the kernels of a deck: it does not go with --lecture, --sweep or --advise");
  if (!options.lecture.empty()) return estimate_lecture(options);
  require_options_of_a_deck(options);
  if (!options.sweep.empty()) return estimate_sweep(options);
  if (options.advise) return estimate_advice(options);
  std::int64_t const ranks = options.ranks.value_or(1);
  Deck const deck = read_deck(options.common.deck);
  RunConfig const asked = resolve(deck, ranks);
  ResolvedRun const all = resolve_run(asked, imagined_topology(asked, ranks, options.nodes));
  bool const apart = is_asynchronous(asked.parallel);
  ResolvedRun const run = apart ? with_one_worker(all, 0) : all;
  RunConfig const& config = apart ? run.config : asked;
  ExtremePlans plans = plan_extremes(config, run.topology);
  RunPlan const& plan = plans.largest;
  print_heading(deck, all, run, apart);
  print_parameters(ParameterTable(run.config.model, run.mesh.parts(), plan.table.slices()), run.mesh.pipeline);
  print_memory(plan, ": no rank needs more");
  if (run.mesh.servers > 0) {
    Rank const last = run.topology.ranks() - 1;
    bool const serves = run.mesh.serves(plan.rank);
    print_memory(plan_run(run, serves ? 0 : last), serves ? ", a worker" : ", a server");
  }
  fmt::print("{}", stages_table(run));
  RunPlan const computing = plans.busiest.computes() ? plans.busiest : plan_run(run, 0); // a server may send most
  print_traffic_and_work(plans.busiest, computing);
  std::optional<PredictedStep> const step = predict_step(options, config, plans.busiest, computing, run.topology);
  print_bounds(options, run, computing);
  std::uint64_t const needed = plan.kernel_memory();
  auto const bytes = static_cast<double>(needed);
  fmt::print("cards that hold it, of 16, 32, 40 and 80 GB: {}; of as many GiB: {}\n", cards_text(bytes, gigabyte),
             cards_text(bytes, gibibyte));
  std::vector<LargestFit> fits;
  if (options.device_memory)
    fits = largest_fits(read_deck_on_ranks(options.common.deck, ranks, options.nodes), *options.device_memory);
  if (!fits.empty()) fmt::print("{}", largest_fits_text(fits));
  if (!options.json_file.empty()) write_json(options, deck, plans, computing, all, fits, step);
  if (!options.device_memory) return 0;
  bool const does_fit = needed <= *options.device_memory;
  fmt::print("{}: {} needed, {} given\n", does_fit ? "FITS" : "DOES NOT FIT", mebibytes(needed),
             mebibytes(*options.device_memory));
  return does_fit ? 0 : static_cast<int>(ExitCode::does_not_fit);
}

} // namespace trainstone
