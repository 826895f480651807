#include "advice/step_machine.hpp"

#include "core/error.hpp"
#include "train/pace.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

/// What was measured of a pass, by what the peaks say of it; 1 if nothing was measured.
double ratio(double measured, double at_peaks) { return measured > 0 && at_peaks > 0 ? measured / at_peaks : 1; }

/// Also of times that are measured and that no peak bounds.
PartTimes like_measured(PartTimes times, StepMachine const& machine) {
  PartTimes const &measured = machine.measured, &peaks = machine.at_peaks;
  for (auto& [kind, part] : times.parts) {
    auto const found = measured.parts.find(kind);
    if (found == measured.parts.end()) continue;
    PartTimes::OfPart const &of = found->second, &at = peaks.of(kind);
    double const forward = ratio(of.forward, at.forward);
    part.forward *= forward;
    part.backward *= ratio(of.backward, at.backward);
    part.backward_adding *= ratio(of.backward_adding, at.backward_adding);
    part.recompute_selective *=
        of.recompute_selective > 0 ? ratio(of.recompute_selective, at.recompute_selective) : forward;
    part.recompute_full *= of.recompute_full > 0 ? ratio(of.recompute_full, at.recompute_full) : forward;
  }
  times.loss *= ratio(measured.loss, peaks.loss);
  times.norm_of_element *= ratio(measured.norm_of_element, peaks.norm_of_element);
  times.update_of_element *= ratio(measured.update_of_element, peaks.update_of_element);
  times.copy_of_element *= ratio(measured.copy_of_element, peaks.copy_of_element);
  times.add_of_element *= ratio(measured.add_of_element, peaks.add_of_element);
  times.load = measured.load;
  times.agree = measured.agree;
  return times;
}

StepMachine assumed_machine(DeckOnRanks const& asked, RunConfig const& config) {
  Topology const topology = imagined_topology(config, asked.ranks, asked.nodes);
  MachineSource const source = read_machine_source("", topology);
  return {.model = source.model,
          .rates = assumed_rates,
          .description = fmt::format("  {}; a rank computes products at {:.0f} TFLOP/s and moves {:.1f} TB/s: assumed, "
                                     "too\n",
                                     source.description, assumed_rates.gemm_flops_per_second / 1e12,
                                     assumed_rates.bandwidth_bytes_per_second / 1e12)};
}

} // namespace

StepMachine read_step_machine(std::string const& path, DeckOnRanks const& asked) {
  ResolvedRun const run = planned_run(asked);
  if (path.empty()) return assumed_machine(asked, run.config);
  MachineSource const source = read_machine_source(path, run.topology);
  auto const &gemm = source.measured->gemm_flops_per_second, &bandwidth = source.measured->bandwidth_bytes_per_second;
  std::string const missing = missing_parts(source, run.config);
  TRAINSTONE_REQUIRE_INPUT(missing.empty() || (gemm && bandwidth),
                           "--machine {}: {}, and has no rates of matrix products and memory; calibrate where every "
                           "rank has cores of its own, or with --deck, or leave out --machine",
                           path, missing);
  StepMachine machine{.model = source.model,
                      .rates = {gemm.value_or(assumed_rates.gemm_flops_per_second),
                                bandwidth.value_or(assumed_rates.bandwidth_bytes_per_second)},
                      .offload = source.measured->offload,
                      .description = {}};
  machine.description = fmt::format("  {}\n", source.description);
  if (missing.empty()) {
    machine.measured = source.measured->parts->times;
    machine.at_peaks = parts_at_peaks(run, plan_memory(run, 0), machine.rates);
    machine.description += "  times of parts, measured for this deck; of other decks each part has the same ratio to "
                           "the peaks\n";
  } else {
    if (machine.offload) machine.offload->update_of_element = 0; // of this deck's kernels, which then are at the peaks
    machine.description += fmt::format("  parts at the peaks: {} {}{}\n", path, missing,
                                       run.config.precision.recipe == RecipeName::fp32
                                           ? ""
                                           : "; products in 16 bits at the rate of fp32, the only one that it knows");
  }
  return machine;
}

PartTimes part_times(ResolvedRun const& run, RunPlan const& plan, StepMachine const& machine) {
  PartTimes times = parts_at_peaks(run, plan, machine.rates);
  if (!machine.measured.parts.empty()) times = like_measured(std::move(times), machine);
  return paced(std::move(times), run.config.faults);
}

double seconds_of_moves(RunPlan const& plan, PartTimes const& times, StepMachine const& machine, double step) {
  OffloadPlan const& offload = plan.parallel.offload;
  if (!offload.has_chunks()) return 0;
  TRAINSTONE_REQUIRE_INPUT(machine.offload,
                           "memory.offload_optimizer = \"{}\", memory.offload_param = \"{}\": the machine has no rates "
                           "of copies and files, which `trainstone calibrate` measures, and a step has no time",
                           to_string(offload.optimizer), to_string(offload.parameters));
  return predict_moves_of_step(plan.parallel, *machine.offload, times.update_of_element, step).total();
}

namespace {

StepTime& add(StepTime& sum, StepTime const& time, double factor) {
  for (auto const member : {&StepTime::step, &StepTime::compute, &StepTime::bubble, &StepTime::tensor, &StepTime::data,
                            &StepTime::pipeline, &StepTime::control, &StepTime::offload})
    sum.*member += factor * (time.*member);
  return sum;
}

/// The axis of what an act sends.
double StepTime::* axis_of(Act act) {
  switch (act) {
  case Act::exchange: return &StepTime::tensor;
  case Act::fetch:
  case Act::gather:
  case Act::publish:
  case Act::reduce:
  case Act::reduce_sums: return &StepTime::data;
  case Act::send:
  case Act::receive:
  case Act::tie: return &StepTime::pipeline;
  default: return &StepTime::control;
  }
}

StepTime time_of(StepTimeline const& timeline) {
  StepTime time;
  double ranks = 0;
  for (ClassTimeline const& one : timeline.classes) {
    auto const weight = 1e-9 * static_cast<double>(one.ranks.ranks);
    ranks += static_cast<double>(one.ranks.ranks);
    time.compute += weight * static_cast<double>(one.compute);
    time.bubble += weight * static_cast<double>(one.others);
    for (std::size_t act = 0; act < one.act.size(); ++act)
      time.*axis_of(static_cast<Act>(act)) += weight * static_cast<double>(one.act[act]);
  }
  StepTime mean;
  add(mean, time, 1 / ranks);
  mean.step = 1e-9 * static_cast<double>(timeline.step);
  return mean;
}

StepTime play(ResolvedRun run, Index micro_batches, StepMachine const& machine) {
  run.config.batch.accumulation = micro_batches;
  run.config.batch.global = run.config.batch.micro * micro_batches * run.mesh.data();
  std::vector<RunPlan> stages;
  for (Rank const rank : run.mesh.members(Axis::pipeline, 0)) stages.push_back(plan_memory(run, rank));
  return time_of(predict_timeline(stages, part_times(run, stages.front(), machine), machine.model,
                                  run.config.comm.emulated_network(), Entries::no,
                                  machine.offload.value_or(OffloadRates{}), machine.prices.get()));
}

/// Of a run that moves state: an update of every stage moves its own.
StepTime with_moves(StepTime time, ResolvedRun const& run, StepMachine const& machine) {
  ParallelConfig const& parallel = run.config.parallel;
  if (parallel.offload_optimizer == Residence::kernels && parallel.offload_parameters != Residence::file) return time;
  for (Rank const rank : run.mesh.members(Axis::pipeline, 0)) {
    RunPlan const plan = plan_memory(run, rank);
    double const seconds = seconds_of_moves(plan, part_times(run, plan, machine), machine, time.step);
    time.offload = std::max(time.offload, seconds);
  }
  time.step += time.offload;
  return time;
}

StepTime price_without_moves(ResolvedRun const& run, StepMachine const& machine) {
  Index const stages = run.mesh.pipeline, micro_batches = run.config.batch.accumulation;
  if (stages == 1 || micro_batches <= played_rounds * stages) return play(run, micro_batches, machine);
  StepTime const shorter = play(run, (played_rounds - 1) * stages, machine),
                 longer = play(run, played_rounds * stages, machine);
  double const rounds = static_cast<double>(micro_batches) / static_cast<double>(stages) - (played_rounds - 1);
  StepTime time;
  add(add(time, shorter, 1 - rounds), longer, rounds);
  time.extrapolated = true;
  return time;
}

} // namespace

StepTime price_step(ResolvedRun const& run, StepMachine const& machine) {
  std::string const problem = interconnect_problem(machine.model.network, run.topology.nodes());
  TRAINSTONE_REQUIRE_INPUT(problem.empty(), "--machine: {}", problem);
  return with_moves(price_without_moves(run, machine), run, machine);
}

} // namespace trainstone
