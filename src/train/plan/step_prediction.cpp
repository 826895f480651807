#include "train/plan/step_prediction.hpp"

#include "comm/execution/buffers.hpp"
#include "core/error.hpp"
#include "core/roofline.hpp"
#include "parallel/plan/decay_runs.hpp"
#include "parallel/program/step_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace trainstone {

namespace {

double message_seconds(std::uint64_t messages, std::uint64_t bytes, PiecewiseLinear const& curve,
                       EmulatedLink const& link) {
  if (messages == 0) return 0;
  auto const count = static_cast<double>(messages);
  double const size = static_cast<double>(bytes) / count;
  return count * std::max(curve(size), link.seconds(size));
}

/// Sums are of gradients, but for a handful of control traffic.
double traffic_seconds(Traffic const& sent, std::size_t value_bytes, MachineModel const& machine,
                       EmulatedNetwork const& network) {
  return message_seconds(sent.messages - sent.inter_messages, sent.bytes - sent.inter_bytes, machine.of(Link::intra),
                         network.of(Link::intra)) +
         message_seconds(sent.inter_messages, sent.inter_bytes, machine.of(Link::inter), network.of(Link::inter)) +
         (sent.reduced > 0 ? machine.reduce(static_cast<double>(sent.reduced * value_bytes)) : 0) +
         (sent.shared_bytes > 0 ? machine.fetch(static_cast<double>(sent.shared_bytes)) : 0);
}

/// What an update in place moves of one parameter.
double update_bytes(RunPlan const& plan, OptimizerConfig const& optimizer) {
  StateTypes const& types = plan.parallel.layout.types;
  std::size_t const gradient = bytes_per_value(plan.storage().gradients);
  std::size_t const narrow = types.master ? bytes_per_value(types.parameters) : 0;
  return static_cast<double>(gradient + narrow) + static_cast<double>(8 * (1 + optimizer.moments()));
}

/// Elements that a rank updates at most, with padding: all of them where nothing is shared out, or one rank alone
/// updates.
double most_updated(StateLayout const& layout) {
  Index most = 0;
  for (Rank member = 0; member < layout.mesh.shard; ++member) most = std::max(most, layout.ownership.elements(member));
  return static_cast<double>(most);
}

} // namespace

double floor_seconds(RunPlan const& plan, OptimizerConfig const& optimizer, ComputeRates const& all) {
  auto const flops = static_cast<double>(plan.model_gemm_flops) * plan.parallel.layout.mesh.data() *
                     plan.parallel.layout.mesh.sharers();
  return flops / all.gemm_flops_per_second + update_bytes(plan, optimizer) *
                                                 static_cast<double>(plan.table.model_parameters()) /
                                                 all.bandwidth_bytes_per_second;
}

PhaseWork update_work(RunPlan const& plan, OptimizerConfig const& optimizer) {
  bool const descends = optimizer.type == OptimizerType::sgd;
  std::uint64_t const flops = !descends ? 17 : optimizer.moments() > 0 ? 7 : 5;
  auto bytes = static_cast<std::uint64_t>(update_bytes(plan, optimizer));
  if (plan.parallel.layout.types.gradient_copy) bytes += sizeof(float) - bytes_per_value(plan.storage().gradients);
  std::uint64_t elements = 0;
  for (DecayRun const& run : decay_runs(plan.parallel.layout, plan.table))
    elements += static_cast<std::uint64_t>(run.range.size());
  return {flops * elements, bytes * elements};
}

StepPrediction predict_step(RunPlan const& busiest, RunPlan const& computing, OptimizerConfig const& optimizer,
                            ComputeRates const& one, MachineModel const& machine, EmulatedNetwork const& network) {
  StepPrediction step;
  step.compute_seconds =
      static_cast<double>(computing.step_flops.gemm) / one.gemm_flops_per_second +
      update_bytes(busiest, optimizer) * most_updated(busiest.parallel.layout) / one.bandwidth_bytes_per_second;
  std::size_t const value_bytes = bytes_per_value(busiest.storage().gradients);
  for (auto const* rows : {&busiest.sent, &busiest.control})
    for (TrafficRow const& row : *rows)
      step.communication_seconds += traffic_seconds(row.traffic, value_bytes, machine, network);
  return step;
}

PartTimes parts_at_peaks(ResolvedRun const& run, RunPlan const& plan, ComputeRates const& one) {
  auto const seconds = [&](PartPass const& pass) {
    double sum = 0;
    for (KernelUse const& use :
         part_kernels(pass, run.config.model, plan.shape, run.config.model_options, plan.storage()))
      sum += static_cast<double>(use.count) * bound_kernel(static_cast<double>(use.work.flops),
                                                           static_cast<double>(use.work.bytes),
                                                           one.gemm_flops_per_second, one.bandwidth_bytes_per_second)
                                                  .seconds;
    return sum;
  };
  PartTimes times;
  for (PartKind const part : {PartKind::embed, PartKind::attention, PartKind::mlp, PartKind::head}) {
    bool const is_of_block = part == PartKind::attention || part == PartKind::mlp;
    auto const again = [&](Recompute how) {
      return is_of_block ? seconds({.part = part, .pass = Pass::recompute, .recompute = how}) : 0;
    };
    bool const selects = run.config.model_options.attention == AttentionKind::materialized;
    times.parts[part] = {.forward = seconds({.part = part, .pass = Pass::forward}),
                         .backward = seconds({.part = part, .pass = Pass::backward}),
                         .backward_adding = seconds({.part = part, .pass = Pass::backward, .mode = Write::add}),
                         .recompute_selective = selects ? again(Recompute::selective) : 0,
                         .recompute_full = again(Recompute::full)};
  }
  times.loss = seconds({.part = PartKind::head, .pass = Pass::loss});
  double const gradient = static_cast<double>(bytes_per_value(plan.storage().gradients)),
               of_byte = 1 / one.bandwidth_bytes_per_second;
  times.norm_of_element = gradient * of_byte;
  times.update_of_element = update_bytes(plan, run.config.optimizer) * of_byte;
  times.copy_of_element = 2 * gradient * of_byte;
  times.add_of_element = 3 * gradient * of_byte;
  return times;
}

std::map<std::string, std::string> part_conditions(RunConfig const& config) {
  GptOptions const options = with_attention_provider(config);
  OptimizerConfig const& optimizer = config.optimizer;
  std::int64_t const sequence = micro_batch_shape(config).sequence;
  bool const mixed = config.precision.recipe != RecipeName::fp32;
  constexpr std::array optimizers{"adamw", "adam", "sgd"};
  std::map<std::string, std::string> conditions{
      {"channels", fmt::format("{}", config.model.channels)},
      {"heads", fmt::format("{}", config.model.heads)},
      {"vocab", fmt::format("{}", config.model.vocab)},
      {"sequence", fmt::format("{}", sequence)},
      {"micro", fmt::format("{}", config.batch.micro)},
      {"attention", std::string(describe_attention(options))},
      {"dropout", options.dropout == 0                            ? "none"
                  : options.dropout_masks == DropoutMasks::stored ? "masks stored"
                                                                  : "masks recomputed"},
      {"loss chunks", fmt::format("{}", options.loss_chunks)},
      {"recipe", std::string(to_string(config.precision.recipe))},
      {"storage", mixed ? std::string(to_string(config.precision.storage)) : "fp32"},
      {"reduction", config.parallel.reduction == ReductionMode::ordered ? "ordered" : "fast"},
      {"gemm", config.kernels.gemm},
      {"optimizer",
       fmt::format("{}, {} moments", optimizers.at(static_cast<std::size_t>(optimizer.type)), optimizer.moments())}};
  std::set<Recompute> again(options.recompute.begin(), options.recompute.end());
  again.erase(Recompute::none);
  if (Index const slices = config.parallel.slices(); slices > 1)
    conditions["slices"] = fmt::format("{} of {}", slices / config.parallel.tensor, slices);
  if (config.parallel.features() > 1) conditions["features"] = fmt::format("1 of {}", config.parallel.features());
  if (config.parallel.tensor_row_chunks > 1)
    conditions["row chunks"] = fmt::format("{}", config.parallel.tensor_row_chunks);
  if (config.parallel.sequence)
    conditions["positions"] = config.parallel.tensor_keep_gathered ? "shared, gathered rows kept" : "shared";
  if (!again.empty()) conditions["recompute"] = joined({again.begin(), again.end()}, ", ");
  return conditions;
}

StepPrices step_prices(std::vector<RunPlan> const& stages, PartTimes const& parts, MachineModel const& machine,
                       EmulatedNetwork const& network, OffloadRates const& files, PriceMemory* memory) {
  std::optional<PlannedCollective> scatter;
  if (stages.front().batch_scatter)
    scatter = PlannedCollective{Axis::replica, *stages.front().batch_scatter, batch_scatter_algorithm};
  std::vector<ShardPlan const*> plans;
  for (RunPlan const& plan : stages) plans.push_back(&plan.parallel);
  return {plans, scatter, parts, {machine, network, host_reaches_memory, files, memory}};
}

StepTimeline predict_timeline(std::vector<RunPlan> const& stages, PartTimes const& parts, MachineModel const& machine,
                              EmulatedNetwork const& network, Entries entries, OffloadRates const& files,
                              PriceMemory* memory) {
  std::vector<StepProgram> programs;
  for (RunPlan const& plan : stages) programs.push_back(make_step_program(plan.parallel));
  if (stages.front().parallel.layout.mesh.servers > 0) programs.push_back(make_server_program(stages.front().parallel));
  StepPrices prices = step_prices(stages, parts, machine, network, files, memory);
  Advances const progress = stages.front().parallel.overlap ? Advances::between_kernels : Advances::in_waits;
  return play_step(programs, prices.classes(), prices.price(), entries, progress);
}

} // namespace trainstone
