#include "parallel/program/step_prices.hpp"

#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"
#include "model/part.hpp"
#include "parallel/program/passes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

Nanoseconds nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

PiecewiseLinear changed(PiecewiseLinear const& curve, double factor, double start, double per_byte) {
  std::vector<PiecewiseLinear::Piece> pieces = curve.pieces();
  for (PiecewiseLinear::Piece& piece : pieces) {
    piece.start = factor * piece.start + start;
    piece.per_byte = factor * piece.per_byte + per_byte;
  }
  return PiecewiseLinear(std::move(pieces));
}

MachineModel with_delays(MachineModel machine, EmulatedNetwork const& network) {
  for (auto* const curves : {&machine.message, &machine.one_way})
    for (PiecewiseLinear& curve : *curves) curve = changed(curve, 1, network.latency, network.seconds_per_byte);
  return machine;
}

/// Messages take what they take of the core, and nothing passes meanwhile.
MachineModel cores_of(MachineModel machine) {
  for (std::size_t link = 0; link < link_count; ++link) {
    for (auto* const curves : {&machine.message, &machine.one_way})
      (*curves)[link] = changed((*curves)[link], 1 - machine.overlap[link], 0, 0);
    machine.overlap[link] = 0;
  }
  return machine;
}

/// Members that own equally much of every group have the same key. The main device has a key of its own.
std::vector<Index> keys_of_ranks(ShardPlan const& plan) {
  std::map<std::vector<Index>, Index> numbers;
  std::vector<Index> of_member;
  for (Rank member = 0; member < plan.layout.mesh.shard; ++member) {
    std::vector<Index> shares;
    for (Index group = 0; group < std::ssize(plan.layout.groups); ++group)
      shares.push_back(plan.layout.ownership.share(group, member).size());
    of_member.push_back(numbers.try_emplace(std::move(shares), std::ssize(numbers)).first->second);
  }
  std::vector<Index> keys;
  for (Rank rank = 0; rank < plan.layout.mesh.ranks(); ++rank)
    keys.push_back(plan.layout.main_device && rank == 0 ? -1
                                                        : of_member[at(plan.layout.mesh.index(Axis::shard, rank))]);
  return keys;
}

/// The losses of all micro-batches, and a value of every rank.
PlannedCollective losses_of_all(ShardPlan const& plan) {
  Index const values = plan.layout.micro_batches() + plan.layout.topology.ranks();
  return {Axis::replica, even_problem(Collective::all_reduce, values, plan.layout.topology), Algorithm::ring};
}

} // namespace

StepPrices::StepPrices(ShardPlan const& plan, std::optional<PlannedCollective> batch_scatter, PartTimes const& parts,
                       PricedMachine machine)
    : m_plan(&plan),
      m_batch_scatter(std::move(batch_scatter)),
      m_parts(&parts),
      m_machine(with_delays(machine.model, machine.network)),
      m_cores(cores_of(machine.model)),
      m_cores_communicate(machine.cores_communicate),
      m_classes(rank_classes(plan.layout.mesh, keys_of_ranks(plan))) {}

PriceOf StepPrices::price() {
  return
      [this](std::size_t number_of_class, Instruction const& instruction) { return of(number_of_class, instruction); };
}

InstructionPrice StepPrices::of(std::size_t number_of_class, Instruction const& instruction) {
  Rank const member = m_plan->layout.mesh.index(Axis::shard, m_classes[number_of_class].first);
  switch (instruction.act) {
  case Act::load: {
    InstructionPrice price{nanoseconds(m_parts->load)};
    if (m_batch_scatter) price.collectives.push_back(of(*m_batch_scatter, {}, sizeof(std::int32_t)));
    return price;
  }
  case Act::forward:
  case Act::recompute:
  case Act::backward: return {of_part(instruction)};
  case Act::loss: return {nanoseconds(m_parts->loss / static_cast<double>(m_plan->parts.options().loss_chunks))};
  case Act::gather:
  case Act::publish: return of_gather(member, instruction);
  case Act::reduce:
  case Act::reduce_sums: return of_reduction(instruction);
  case Act::agree: {
    InstructionPrice price{nanoseconds(m_parts->agree)};
    if (m_plan->layout.mesh.ranks() > 1) price.collectives.push_back(of(losses_of_all(*m_plan), {}, sizeof(double)));
    return price;
  }
  case Act::norm: {
    InstructionPrice price{of_elements(member, instruction)};
    if (auto const& gather = m_plan->gathers.norm)
      price.collectives.push_back(of(*gather, gather->axis, sizeof(double)));
    return price;
  }
  case Act::fold:
  case Act::accumulate:
  case Act::tie:
  case Act::update: return {of_elements(member, instruction)};
  case Act::send:
  case Act::receive: break; // of a pipeline, which has prices of its own (train/plan/pipeline_prediction.hpp)
  case Act::wait: return {};
  }
  return {};
}

/// Pieces of a backward take equal times, and so do chunks of a loss.
Nanoseconds StepPrices::of_part(Instruction const& instruction) const {
  PartKind const kind = m_plan->parts[instruction.subject].kind;
  PartTimes::OfPart const& times = m_parts->of(kind);
  if (instruction.act == Act::forward) return nanoseconds(times.forward);
  if (instruction.act == Act::recompute) {
    double const again = times.recompute(m_plan->parts.recompute(m_plan->parts[instruction.subject]));
    TRAINSTONE_REQUIRE(again > 0, "no times of what part \"{}\" computes again", to_string(kind));
    return nanoseconds(again);
  }
  bool const adds = m_plan->reductions.adds_in_place() && instruction.micro_batch > 0;
  double const whole = adds ? times.backward_adding : times.backward;
  if (instruction.piece == Instruction::none) return nanoseconds(whole);
  return nanoseconds(whole / static_cast<double>(m_plan->parts.backward(instruction.subject).size()));
}

/// Work on gradients and parameters that lie on the rank. In ordered mode the additions of a micro-batch are the mean
/// over all of them, so that micro-batches are alike.
Nanoseconds StepPrices::of_elements(Rank member, Instruction const& instruction) const {
  auto const share = static_cast<double>(m_plan->layout.ownership.elements(member));
  Index const micro_batches = m_plan->layout.rank_micro_batches;
  double const additions =
      static_cast<double>(micro_batches - std::popcount(static_cast<std::uint64_t>(micro_batches))) /
      static_cast<double>(micro_batches);
  double const fold = additions * m_parts->add_of_element + m_parts->copy_of_element;
  switch (instruction.act) {
  case Act::norm: return nanoseconds(share * m_parts->norm_of_element);
  case Act::update: return nanoseconds(share * m_parts->update_of_element);
  case Act::fold:
    return nanoseconds(fold *
                       static_cast<double>(m_plan->reductions.gradients.units[at(instruction.subject)].memory.size()));
  case Act::tie: {
    Index const table = m_plan->reductions.gradients.looked_up()->group;
    return nanoseconds(m_parts->add_of_element *
                       static_cast<double>(m_plan->layout.ownership.share(table, member).size()));
  }
  case Act::accumulate: {
    double elements = 0;
    for (BucketPart const& part : m_plan->reductions.buckets.bucket(instruction.subject).parts)
      if (!m_plan->layout.ownership.share(part.group, member).empty())
        elements += static_cast<double>(part.of_share.size());
    bool const first = instruction.micro_batch == 0;
    double const one = first ? m_parts->copy_of_element : m_parts->add_of_element;
    return nanoseconds(elements * (m_plan->reductions.ordered ? fold : one));
  }
  default: return 0;
  }
}

/// Buckets of one size cost the same, whoever owns them. Their problems have a number for every rank, so that they are
/// made only once.
InstructionPrice StepPrices::of_reduction(Instruction const& instruction) {
  InstructionPrice price;
  Bucket const bucket = m_plan->reductions.buckets.bucket(instruction.subject);
  std::vector<CollectivePrice>& known = m_reductions[bucket.share_elements()];
  if (known.empty())
    for (PlannedCollective const& step : m_plan->reductions.reduction_of(bucket, m_plan->layout))
      known.push_back(of(step, step.axis, bytes_per_value(m_plan->reductions.storage)));
  for (std::size_t i = 0; i < known.size(); ++i)
    if (m_plan->reductions.is_of_sums(m_plan->reductions.collectives[i]) == (instruction.act == Act::reduce_sums))
      price.collectives.push_back(known[i]);
  return price;
}

/// All roots cost the same.
CollectivePrice StepPrices::of(PlannedCollective const& planned, std::optional<Axis> axis, std::size_t element_bytes) {
  Problem const& problem = planned.problem;
  Key const key{static_cast<int>(problem.collective), static_cast<int>(planned.algorithm),
                axis ? static_cast<int>(*axis) : -1, problem.elements(), element_bytes};
  auto const [found, is_new] = m_known.try_emplace(key);
  if (is_new) {
    double const all = trainstone::price(problem, planned.algorithm, element_bytes, m_machine);
    double const core = m_cores_communicate ? trainstone::price(problem, planned.algorithm, element_bytes, m_cores) : 0;
    found->second.core = nanoseconds(core);
    found->second.wire = std::max<Nanoseconds>(0, nanoseconds(all - core));
  }
  CollectivePrice price = found->second;
  price.axis = axis;
  return price;
}

/// Of sharded parameters a rank copies its shares into the slot.
InstructionPrice StepPrices::of_gather(Rank member, Instruction const& instruction) {
  InstructionPrice price;
  ParameterUnit const& unit = m_plan->layout.units[at(instruction.subject)];
  Index copied = 0;
  for (Index group = unit.first_group; group <= unit.last_group; ++group)
    copied += m_plan->layout.ownership.share(group, member).size();
  if (instruction.act == Act::gather)
    price.compute = nanoseconds(m_parts->copy_of_element * static_cast<double>(copied));
  if (auto const& gather = m_plan->gathers.of_unit[at(instruction.subject)])
    price.collectives.push_back(
        of(gather->planned, gather->planned.axis, bytes_per_value(m_plan->layout.types.parameters)));
  return price;
}

} // namespace trainstone
