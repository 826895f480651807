#include "advice/rough_time.hpp"

#include <algorithm>
#include <bit>

namespace trainstone {

namespace {

/// The better one of a ring and a tree of halves.
double all_reduce_seconds(Topology const& line, double bytes, StepMachine const& machine) {
  Rank const ranks = line.ranks();
  if (ranks == 1) return 0;
  PiecewiseLinear const& message = machine.model.of(line.nodes() > 1 ? Link::inter : Link::intra);
  double const steps = 2.0 * (ranks - 1), part = bytes / ranks;
  double const start = message(0), rounds = 2.0 * std::bit_width(static_cast<std::uint32_t>(ranks - 1));
  return std::min(steps * message(part), rounds * start + steps * (message(part) - start));
}

/// All-reduces of a micro-batch and block over tensor ranks; all-gathers and reduce-scatters count as halves.
double sums_of_block(Way const& way) {
  double const again = way.recompute == Recompute::full ? (way.sequence ? 1.5 : 1) : 0;
  return (way.sequence ? 5 : 4) + again;
}

/// All-reduces of a stage's parameters per step; all-gathers and reduce-scatters count as halves.
double reductions_of_step(Way const& way, double micro_batches) {
  if (way.zero_stage == 2) return (micro_batches + 1) / 2;
  if (way.zero_stage == 3 || way.strategy == Strategy::hsdp) return 1.5 * micro_batches;
  return 1;
}

} // namespace

double rough_seconds(Way const& way, ResolvedRun const& run, RunPlan const& first, PartTimes const& times,
                     StepMachine const& machine) {
  double block = 0, backward = 0;
  for (PartKind const kind : {PartKind::attention, PartKind::mlp}) {
    PartTimes::OfPart const& part = times.of(kind);
    backward += part.backward;
    block += part.forward + part.backward + (way.recompute != Recompute::none ? part.recompute(way.recompute) : 0);
  }
  StateLayout const& layout = first.parallel.layout;
  double const blocks = static_cast<double>(run.config.model.layers) / static_cast<double>(way.pipeline);
  double const value = static_cast<double>(bytes_per_value(layout.types.parameters));
  double const stream = static_cast<double>(first.shape.rows() * run.config.model.channels) * value;
  double const tensor = sums_of_block(way) * all_reduce_seconds(layout.line(Axis::tensor), stream, machine);
  PartTimes::OfPart const &head = times.of(PartKind::head), &embed = times.of(PartKind::embed);
  double const ends = head.forward + head.backward + times.loss + embed.forward + embed.backward;
  double const of_stage = blocks * (block + tensor) + ends / static_cast<double>(way.pipeline > 1 ? 2 : 1);
  auto const micro_batches = static_cast<double>(run.config.batch.accumulation);
  double const bubble = static_cast<double>(way.pipeline - 1) / static_cast<double>(way.chunks);
  double const parameters = static_cast<double>(first.table.size()) * value;
  Axis const inner = layout.mesh.shard > 1 ? Axis::shard : Axis::replica;
  double data = reductions_of_step(way, micro_batches) * all_reduce_seconds(layout.line(inner), parameters, machine);
  if (way.strategy == Strategy::hsdp)
    data +=
        all_reduce_seconds(layout.line(Axis::replica), parameters / static_cast<double>(layout.mesh.shard), machine);
  double const hidden = blocks * backward * std::max(1.0, reductions_of_step(way, micro_batches) / 1.5);
  double const update = times.update_of_element * static_cast<double>(layout.ownership.elements(0));
  return (micro_batches + bubble) * of_stage + std::max(0.0, data - hidden) + update;
}

} // namespace trainstone
