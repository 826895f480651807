// trainstone run: trains, verifies itself, prints the figure of merit and writes result.json.

#include "commands.hpp"

#include "comm/buffers_start.hpp"
#include "fastest_collectives.hpp"
#include "gemm_table.hpp"
#include "git_version.hpp"
#include "model/llmc_parameters.hpp"
#include "report/output.hpp"
#include "report/plural.hpp"
#include "report/quantity.hpp"
#include "run_energy.hpp"
#include "run_outputs.hpp"
#include "run_training.hpp"
#include "stop_signals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <optional>

namespace trainstone {

namespace {

RunHeader make_header(PreparedRun const& run, RankContext const& context) {
  RunHeader header;
  header.version = TRAINSTONE_VERSION;
  header.git = git_commit;
  header.dirty = git_dirty;
  header.kokkos = kokkos_description();
  header.mpi = context.mpi.implementation();
  header.buffers = to_string(run.plan->parallel.message_buffers);
  if (run.devices_per_node > 0)
    header.buffers += fmt::format(", {} on {} per node", plural(std::ssize(run.neighbours), "rank"),
                                  plural(run.devices_per_node, "device"));
  header.ranks = context.communicator.size();
  header.nodes = context.communicator.nodes().count;
  header.emulated_nodes = run.config.comm.emulated_nodes > 0;
  header.emulated_network = run.config.comm.emulated_network().is_slow();
  header.deck = deck_label(run.deck);
  return header;
}

/// Checks that are made before the training.
struct ChecksBefore {
  Check collectives_exact;
  std::vector<Check> first_step; ///< where there is a golden one and no curve, and products are of fp32
};

/// Before the training. \return the checks of the golden first step
std::vector<Check> check_first(PreparedRun const& run, Trainer& trainer, RankContext& context) {
  GoldenFirstStep const& golden = *run.first_step;
  FirstStepReference const expected{golden.loss, golden.positions};
  std::vector<Check> checks{check_first_step(context.exec, context.communicator, trainer, expected)};
  if (golden.update)
    std::ranges::move(check_first_update(context.exec, context.communicator, trainer, expected, *golden.update),
                      std::back_inserter(checks));
  for (Check const& check : checks)
    if (check.failed() && context.communicator.rank() == 0)
      fmt::print("note: check {} fails before the training: the run is going to end INVALID\n", check.name);
  std::fflush(stdout);
  return checks;
}

std::vector<Check> verify_run(PreparedRun const& run, Training const& training, Trainer& trainer, RankContext& context,
                              ChecksBefore const& before) {
  ExecutionSpace const& exec = context.exec;
  Communicator& communicator = context.communicator;
  std::vector<Check> checks;
  checks.insert(checks.end(), before.first_step.begin(), before.first_step.end());
  if (run.golden)
    std::ranges::move(compare_with_golden(*run.golden, {training.losses, training.early, run.products(),
                                                        run.config.length.stop_loss > 0}),
                      std::back_inserter(checks));
  checks.push_back(check_replicas(exec, communicator, trainer));
  checks.push_back(check_messages(exec, communicator, *run.plan, training.counted));
  checks.push_back(check_memory(exec, communicator, *run.plan, training.counted));
  checks.push_back(check_flops(exec, communicator, *run.plan, training.counted));
  checks.push_back(before.collectives_exact);
  checks.push_back(check_finite(exec, communicator, trainer));
  checks.push_back(check_launch(communicator));
  return checks;
}

/// What is said of a run whose only golden loss is that of its first step.
void print_first_step_note(PreparedRun const& run) {
  if (!run.first_step) return;
  if (!run.compares_first_step())
    fmt::print("note: the golden first step is not compared: its bounds are for fp32 from the seed, with products that "
               "round nothing\n");
  else if (!is_referenced(run.judgement.name, false, run.compares_first_update()))
    fmt::print("note: only the first step has a golden {}, which makes no run of class {} VALID\n",
               run.compares_first_update() ? "update" : "loss", run.judgement.name);
}

void print_start(PreparedRun const& run, RankContext const& context, WorkAmounts const& predicted) {
  fmt::print("{}\n{}\n{}\n", header_line(make_header(run, context)), memory_line(predicted.memory_bytes),
             work_line(predicted.sent_bytes, predicted.messages, predicted.flops));
  if (run.places.size() > 1) fmt::print("{}", rank_map_lines(run.places));
  for (std::string const& departure : run.judgement.departures)
    fmt::print("note: class custom, not {}: {}\n", run.config.benchmark_class.name, departure);
  print_first_step_note(run);
  if (std::string const sharing = shared_processors(run, context.exec); !sharing.empty())
    fmt::print("note: {}: what the machine could do is not measured\n", sharing);
  if (run.plan->storage().values != Storage::fp32)
    fmt::print("note: precision {} in {}, gemm {}\n", to_string(run.config.precision.recipe),
               to_string(run.plan->storage().values), describe_gemm(run.plan->gemm, run.plan->storage().values));
  if (run.config.comm.emulated_network().is_slow()) fmt::print("{}\n", network_line(run.config.comm));
  if (FaultConfig const& faults = run.config.faults; faults.delay_time > 0)
    fmt::print("note: a delay is injected: {} at \"{}\"\n", to_string(Quantity{Dimension::time, faults.delay_time}),
               faults.delay_where);
  if (FaultConfig const& faults = run.config.faults; faults.slow_factor > 1)
    fmt::print("note: kernels are slowed down: {} takes {} times as long\n", faults.slow_kernel, faults.slow_factor);
  if (run.config.faults.extra_message) fmt::print("note: every step sends one sum more than planned\n");
  if (run.config.comm.check_order) fmt::print("note: the order of collectives is checked, which takes time\n");
  std::fflush(stdout);
}

void record_golden(PreparedRun const& run, Result const& result) {
  GoldenCurve curve{result.losses_before,
                    fmt::format("trainstone {}, Kokkos {}, {} ranks", TRAINSTONE_VERSION, kokkos_description(),
                                result.topology.ranks),
                    result.early};
  for (StepReport const& sample : result.samples) curve.losses.push_back(sample.loss);
  std::string const path = golden_path(run.deck.path);
  record_golden_curve(path, run.golden_key, curve);
  fmt::print("golden curve {} of {} steps recorded in {}\n", run.golden_key, curve.losses.size(), path);
}

void print_end(Result const& result, std::string const& json_path) {
  if (!result.kernels.empty()) {
    auto const ranks = static_cast<double>(result.topology.ranks);
    fmt::print("{}", kernel_lines(result.kernels, result.peaks.gemm_flops_per_second / ranks,
                                  result.peaks.bandwidth_bytes_per_second / ranks));
  }
  if (result.metrics.contains("floor_seconds"))
    fmt::print("{}\n", floor_line(result.metrics.at("step_seconds_median"), result.metrics.at("floor_seconds"),
                                  result.peaks.gemm_flops_per_second, result.peaks.bandwidth_bytes_per_second));
  CheckpointInfo const& checkpoints = result.checkpoints;
  if (checkpoints.written > 0)
    fmt::print("{} written in {:.2f} s, the last one is {}\n", plural(checkpoints.written, "checkpoint"),
               checkpoints.seconds, checkpoints.last);
  if (result.energy) fmt::print("{}\n", energy_line(*result.energy));
  if (result.outcome != Outcome::stopped) fmt::print("{}", verification_lines(result.checks));
  if (result.tokens_per_second)
    fmt::print("{}", rate_lines(result.outcome, *result.tokens_per_second, result.topology.ranks));
  else
    fmt::print("note: no rate: no step after the warm-up was measured\n");
  bool const is_local = result.golden && !result.golden->released;
  fmt::print("{}\n", result_line(result.outcome, result.benchmark_class.name, is_local, json_path));
}

} // namespace

int run(RunOptions const& options, RankContext& context) {
  SteadyTime const begin = std::chrono::steady_clock::now();
  Communicator& communicator = context.communicator;
  bool const first = communicator.rank() == 0;
  Deck deck;
  collectively(communicator, [&] {
    deck = read_deck(options.common.deck);
    resolve(deck, communicator.size()); // finds what cannot be done on so many ranks
  });
  CheckpointConfig const& kept = deck.config.checkpoint;
  StopSignals const signals(kept.writes() && kept.on_signal); // also while data are scanned
  Placement const placement = placement_of(communicator);
  communicator = emulated_world(deck.config.comm);
  std::string const finding = use_chosen_buffers(communicator, deck.config.comm.buffers, context.exec);
  MeasuredGemms const gemms = find_fastest_gemms(context, placement, deck);
  deck.config.kernels.fastest = gemms.fastest;
  std::vector<ChosenAlgorithm> const chosen = find_fastest_collectives(context, placement, deck);
  PreparedRun run;
  collectively(communicator, [&] { run = prepare_run(options, deck, chosen, communicator, placement); });
  require_same_run(run, communicator);
  if (run.config.comm.check_order) communicator.check_order(OrderCheck::yes);
  RunCheckpoints checkpoints(run, context, begin, options.max_time);
  run.window = measured_window(run.deck, run.data->steps(), checkpoints.start().step);
  run.judgement = judge_run(run.deck, communicator.size(), {run.window, any_shared_processors(run, context)});
  WorkAmounts const predicted = busiest_rank(predicted_amounts(*run.plan), context);
  if (first) print_start(run, context, predicted);
  if (first && run.devices_per_node > 0) fmt::print("note: {}\n", finding);
  if (first && !gemms.note.empty()) fmt::print("note: {}\n", gemms.note);
  for (ChosenAlgorithm const& one : chosen)
    if (first) fmt::print("note: {}\n", chosen_line(one));

  ChecksBefore before{check_collectives(context.exec, communicator, run.plan->parallel), {}};
  Result result = begin_result(run, context, measure_peaks(context, run));

  MemoryLedger ledger;
  RunOutputs outputs(run, context, ledger);
  Trainer trainer(context.exec, communicator, ledger, run.config, *run.plan, run.data->batches(), run.data->steps());
  ModelSetup const& files = run.config.model_setup;
  if (!files.load.empty())
    collectively(communicator, [&] {
      trainer.engine().set_parameters([&](Index group, Range share, Vector<float> values) {
        load_parameters(context.exec, files.load, run.config.model, run.plan->table, group, share, values);
      });
    });
  if (run.compares_first_step()) before.first_step = check_first(run, trainer, context);
  checkpoints.load(trainer);
  ProgressPrinter printer(std::cout, standard_output_is_terminal());
  outputs.begin_trace();
  RunEnergy energy(run, checkpoints.start().step, communicator.rank());
  Training training = train(trainer, run, checkpoints, ledger, [&](StepReport const& step) {
    energy.after(step);
    if (first) printer(step);
  });
  outputs.end_trace();
  bool const stopped = training.stopped;
  if (!stopped) result.checks = verify_run(run, training, trainer, context, before);
  result.losses_before = checkpoints.start().losses;
  result.checkpoints = checkpoints.info();
  result.energy = energy.total(context);
  result.data = reads_of_all(run.data->reads(), context);
  finish_result(result, run, std::move(training), context);
  result.wall_seconds = seconds_since(begin);
  bool const referenced = is_referenced(run.judgement.name, run.golden.has_value(), run.compares_first_update());
  result.outcome = stopped ? Outcome::stopped : judge(result.checks, referenced, emulates_time(run.config));
  std::string json_path;
  collectively(communicator, [&] {
    if (first) json_path = write_result(options.common.output_folder, result); // first: nothing may lose it
  });
  outputs.write(trainer, !stopped, json_path);
  collectively(communicator, [&] {
    if (!first) return;
    if (options.record_golden && result.outcome != Outcome::invalid && !stopped) record_golden(run, result);
    print_end(result, json_path);
  });
  return exit_code(result.outcome);
}

} // namespace trainstone
