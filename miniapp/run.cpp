// trainstone run: trains, verifies itself, prints the figure of merit and writes result.json. Owns the order of it:
//   prepare  handles signals before data are scanned, and reads the places of ranks before nodes are emulated.
//            It prints before anything takes long.
//            It tries collectives and measures peaks before the training takes its memory.
//   train    makes the golden first step with the seed's parameters, before the checkpoint is loaded. Counters of the
//            training start after both.
//   judge    checks what was counted, and then merges the times of all ranks.
//   write    writes the result first, because nothing that fails afterwards may lose it.

#include "commands.hpp"

#include "model/llmc/llmc_parameters.hpp"
#include "report/output.hpp"
#include "run_energy.hpp"
#include "run_servers.hpp"
#include "run_text.hpp"
#include "run_training.hpp"
#include "train/state_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>

namespace trainstone {

namespace {

/// Everything before the first large allocation.
PreparedRun prepare(RunOptions const& options, RankContext& context) {
  SteadyTime const begin = std::chrono::steady_clock::now();
  Communicator& communicator = context.communicator;
  Deck deck;
  RunConfig config;
  collectively(communicator, [&] {
    deck = read_deck(options.common.deck);
    config = resolve(deck, communicator.size());
    resolve_run(config, Topology::one_node(communicator.size())); // refuses what this build does not have
  });
  CheckpointConfig const& kept = config.checkpoint;
  auto signals = std::make_unique<StopSignals>(kept.writes() && kept.on_signal);
  Placement const placement = placement_of(communicator);
  ChosenRun const chosen = choose_run(config, placement, context);
  PreparedRun run;
  collectively(communicator, [&] { run = plan_and_check(options, deck, chosen, placement, communicator.rank()); });
  require_same_run(run, communicator);
  run.begin = begin;
  run.signals = std::move(signals);
  if (config.comm.check_order) communicator.check_order(OrderCheck::yes);

  run.checkpoints = std::make_unique<RunCheckpoints>(run, context, options.max_time);
  run.window = measured_window(run.deck, run.data->steps(), run.checkpoints->start().step);
  run.judgement = judge_run(run.deck, communicator.size(), {run.window, any_shared_processors(run, context)});
  WorkAmounts const predicted = busiest_rank(predicted_amounts(*run.plan), context);
  if (communicator.rank() == 0) print_start(run, context, predicted);
  run.collectives_exact = run.one_worker ? check_collectives_with_servers(run, context)
                                         : check_collectives(context.exec, communicator, run.plan->parallel);
  run.peaks = measure_peaks(context, run);
  return run;
}

void load_model(PreparedRun const& run, Trainer& trainer, RankContext& context) {
  std::string const& path = run.config().model_setup.load;
  if (path.empty()) return;
  collectively(context.communicator, [&] {
    trainer.engine().set_parameters([&](Index group, Range share, Vector<float> values) {
      load_parameters(context.exec, path, run.config().model, run.plan->table, group, share, values);
    });
  });
}

/// With the seed's parameters. \return the checks of the golden first step
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

Training train(PreparedRun const& run, RunMemory& memory, RankContext& context) {
  bool const first = context.communicator.rank() == 0;
  Trainer& trainer = memory.trainer();
  load_model(run, trainer, context);
  std::vector<Check> first_step;
  if (run.compares_first_step()) first_step = check_first(run, trainer, context);
  run.checkpoints->load(trainer);
  std::optional<FilesOfRanks> files;
  if (run.plan->parallel.offload.has_file())
    files = files_of_ranks(context.exec, context.communicator, state_file(trainer.engine()));
  if (first && files) fmt::print("files of state    {}\n", to_string(*files));
  ProgressPrinter printer(std::cout, standard_output_is_terminal());
  memory.outputs.begin_trace();
  RunEnergy energy(run, run.checkpoints->start().step, context.communicator.rank());
  Training training = train_steps(run, memory, [&](StepReport const& step) {
    energy.after(step);
    if (first) printer(step);
  });
  memory.outputs.end_trace();
  training.first_step = std::move(first_step);
  training.state_files = files;
  training.energy = energy.total(context);
  return training;
}

/// Whether the early steps have computed norms. With a loss scale a skipped step has none that is a number.
bool has_norms(PreparedRun const& run, EarlySteps const& early) {
  bool const skips = run.config().precision.loss_scale == LossScaling::dynamic;
  return skips || std::ranges::none_of(early.norms, [](double norm) { return std::isnan(norm); });
}

std::vector<Check> verify_run(PreparedRun const& run, Training const& training, Trainer& trainer,
                              RankContext& context) {
  ExecutionSpace const& exec = context.exec;
  Communicator& communicator = context.communicator;
  std::vector<Check> checks = training.first_step;
  if (run.golden)
    std::ranges::move(compare_with_golden(*run.golden, {.losses = training.losses,
                                                        .early = training.early,
                                                        .products = run.products(),
                                                        .may_stop_early = run.config().length.stop_loss > 0,
                                                        .is_bf16_of_fp32 = run.reference_key != run.golden_key,
                                                        .has_norms = has_norms(run, training.early)}),
                      std::back_inserter(checks));
  if (run.one_worker) {
    std::ranges::move(verify_with_servers(run, training, context), std::back_inserter(checks));
  } else {
    checks.push_back(check_replicas(exec, communicator, trainer));
    checks.push_back(check_messages(exec, communicator, *run.plan, training.counted));
  }
  checks.push_back(check_memory(exec, communicator, *run.plan, training.counted));
  checks.push_back(check_flops(exec, communicator, *run.plan, training.counted));
  if (run.plan->parallel.offload.moves())
    checks.push_back(check_moves(exec, communicator, *run.plan, training.counted, training.state_files));
  checks.push_back(run.collectives_exact);
  checks.push_back(check_finite(exec, communicator, trainer));
  checks.push_back(check_launch(communicator));
  return checks;
}

/// A training that was stopped is not checked: the run that goes on from it is.
Result judge(PreparedRun const& run, RunMemory& memory, Training training, RankContext& context) {
  bool const stopped = training.stopped;
  std::vector<Check> checks;
  if (!stopped) checks = verify_run(run, training, memory.trainer(), context);
  Result result = make_result(run, std::move(training), context);
  result.checks = std::move(checks);
  result.wall_seconds = seconds_since(run.begin);
  bool const referenced = is_referenced(run.judgement.name, run.golden.has_value(), run.compares_first_update());
  result.outcome =
      stopped ? Outcome::stopped : trainstone::judge(result.checks, referenced, emulates_time(run.config()));
  return result;
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

void write(RunOptions const& options, PreparedRun const& run, RunMemory& memory, Result const& result,
           RankContext& context) {
  bool const first = context.communicator.rank() == 0, stopped = result.outcome == Outcome::stopped;
  std::string json_path;
  collectively(context.communicator, [&] {
    if (first) json_path = write_result(options.common.output_folder, result);
  });
  memory.outputs.write(memory.trainer(), memory.holders(context.communicator), !stopped, json_path);
  collectively(context.communicator, [&] {
    if (!first) return;
    if (options.record_golden && result.outcome != Outcome::invalid && !stopped) record_golden(run, result);
    print_end(result, json_path);
  });
}

} // namespace

int run(RunOptions const& options, RankContext& context) {
  PreparedRun const run = prepare(options, context);
  RunMemory memory(run, context);
  Training training = train(run, memory, context);
  Result const result = judge(run, memory, std::move(training), context);
  write(options, run, memory, result, context);
  return exit_code(result.outcome);
}

} // namespace trainstone
