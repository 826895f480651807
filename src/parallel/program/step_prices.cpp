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
    for (std::size_t link = 0; link < link_count; ++link)
      (*curves)[link] = changed((*curves)[link], 1, network.links[link].latency, network.links[link].seconds_per_byte);
  if (network.node_port) machine.node_ports = 1;
  return machine;
}

/// Messages take what they take of the core, and nothing passes meanwhile.
MachineModel cores_of(MachineModel machine) {
  for (std::size_t link = 0; link < link_count; ++link) {
    for (auto* const curves : {&machine.message, &machine.one_way})
      (*curves)[link] = changed((*curves)[link], 1 - machine.overlap[link], 0, 0);
    machine.overlap[link] = 0;
  }
  machine.network = {};
  return machine;
}

/// By member of the shard axis: members that own equally much of every group of every stage have the same number.
std::vector<Index> kinds_of_members(std::vector<ShardPlan const*> const& stages) {
  std::map<std::vector<Index>, Index> numbers;
  std::vector<Index> kinds;
  for (Rank member = 0; member < stages.front()->layout.mesh.shard; ++member) {
    std::vector<Index> shares;
    for (ShardPlan const* const plan : stages)
      for (Index group = 0; group < std::ssize(plan->layout.groups); ++group)
        shares.push_back(plan->layout.ownership.share(group, member).size());
    kinds.push_back(numbers.try_emplace(std::move(shares), std::ssize(numbers)).first->second);
  }
  return kinds;
}

/// Ranks of a stage with the same key have the same programs and prices. The main device has a key of its own.
std::vector<Index> keys_of_ranks(std::vector<ShardPlan const*> const& stages) {
  StateLayout const& layout = stages.front()->layout;
  std::vector<Index> const kinds = kinds_of_members(stages);
  std::vector<Index> keys;
  for (Rank rank = 0; rank < layout.mesh.ranks(); ++rank) {
    Index const stage = layout.mesh.index(Axis::pipeline, rank);
    Index const kind = kinds[at(layout.mesh.index(Axis::shard, rank))];
    keys.push_back(layout.main_device && rank == 0 ? -1 : stage * std::ssize(kinds) + kind);
  }
  return keys;
}

CommunicatorId communicator_of(PlannedCollective const& planned) { return {planned.axis, planned.stages}; }

/// A channel has a communicator of its own: for each direction and kind of message between two stages.
CommunicatorId channel_of(PlannedCollective const& message, MessageKind kind, Index sender) {
  CommunicatorId channel = communicator_of(message);
  channel.channel = 1 + 2 * static_cast<Index>(kind) + (sender == message.stages->lower ? 0 : 1);
  return channel;
}

/// By priority a collective has a communicator of its own, and a number.
void set_turn(InstructionPrice& price, Index channel, Index number, PortUse port) {
  for (CollectivePrice& one : price.collectives) {
    one.communicator.channel = channel;
    one.number = number;
    one.port = port;
  }
}

/// Elements that a member of the shard axis owns.
Index share_of_unit(ShardPlan const& plan, Rank member, Index unit) {
  auto const& [name, first, last, offset, padded] = plan.layout.units[at(unit)];
  Index elements = 0;
  for (Index group = first; group <= last; ++group) elements += plan.layout.ownership.share(group, member).size();
  return elements;
}

PlannedCollective planned_sum(Axis axis, Index values, Topology const& line) {
  return {axis, even_problem(Collective::all_reduce, values, line), Algorithm::ring};
}

} // namespace

StepPrices::StepPrices(std::vector<ShardPlan const*> stages, std::optional<PlannedCollective> batch_scatter,
                       PartTimes const& parts, PricedMachine machine)
    : m_stages(std::move(stages)),
      m_batch_scatter(std::move(batch_scatter)),
      m_parts(&parts),
      m_machine(with_delays(machine.model, machine.network)),
      m_cores(cores_of(machine.model)),
      m_cores_communicate(machine.cores_communicate),
      m_files(machine.files),
      m_memory(machine.memory),
      m_classes(rank_classes(m_stages.front()->layout.mesh, keys_of_ranks(m_stages))) {}

PriceOf StepPrices::price() {
  return
      [this](std::size_t number_of_class, Instruction const& instruction) { return of(number_of_class, instruction); };
}

InstructionPrice StepPrices::of(std::size_t number_of_class, Instruction const& instruction) {
  RankClass const& one = m_classes[number_of_class];
  ShardPlan const& plan = *m_stages[at(one.stage)];
  Rank const member = plan.layout.mesh.index(Axis::shard, one.first);
  switch (instruction.act) {
  case Act::load: return of_load(plan);
  case Act::forward:
  case Act::recompute:
  case Act::backward: return {of_part(plan, instruction)};
  case Act::loss: return {nanoseconds(part_of_pass(plan, instruction) * m_parts->loss)};
  case Act::send:
  case Act::receive: return of_message(plan, instruction);
  case Act::exchange: {
    PlannedExchange const& planned = plan.tensor.exchanges.at(exchange_of(instruction));
    return {0, {of(plan, planned.collective, planned.element_bytes)}};
  }
  case Act::fetch: return of_fetch(plan, member, instruction);
  case Act::gather:
  case Act::publish: return of_gather(plan, member, one.serves(), instruction);
  case Act::reduce:
  case Act::reduce_sums: return of_reduction(plan, one.serves(), instruction);
  case Act::tie: return of_tie(plan, member, instruction);
  case Act::agree: return of_agree(plan);
  case Act::norm: return of_norm(plan, member, instruction);
  case Act::fold:
  case Act::accumulate:
  case Act::update: return {of_elements(plan, member, instruction)};
  case Act::wait: return {};
  }
  return {};
}

InstructionPrice StepPrices::of_load(ShardPlan const& plan) {
  InstructionPrice price{nanoseconds(m_parts->load)};
  if (m_batch_scatter) price.collectives.push_back(of(plan, *m_batch_scatter, {}, sizeof(std::int32_t)));
  return price;
}

/// The same price for both stages.
InstructionPrice StepPrices::of_message(ShardPlan const& plan, Instruction const& instruction) {
  MessageKind const kind = message_kind(instruction);
  Index const sender = plan.pipeline.sender(instruction.act == Act::send, kind);
  PlannedCollective const message = planned_message(plan.pipeline, plan.layout, kind, sender);
  CollectivePrice price =
      of(plan, message, channel_of(message, kind, sender), bytes_per_value(plan.layout.types.parameters));
  price.port = instruction.act == Act::send ? PortUse::out : PortUse::in;
  return {0, {price}};
}

/// The losses of all micro-batches, and a value of every rank: the same for all stages.
InstructionPrice StepPrices::of_agree(ShardPlan const& plan) {
  InstructionPrice price{nanoseconds(m_parts->agree)};
  Topology const& all = plan.layout.topology;
  if (all.ranks() == 1) return price;
  if (!m_agreement)
    m_agreement =
        of(plan, planned_sum(Axis::pipeline, plan.layout.micro_batches() + all.ranks(), all), {}, sizeof(double));
  price.collectives.push_back(*m_agreement);
  return price;
}

InstructionPrice StepPrices::of_norm(ShardPlan const& plan, Rank member, Instruction const& instruction) {
  InstructionPrice price{of_elements(plan, member, instruction)};
  if (auto const& gather = plan.gathers.norm) price.collectives.push_back(of(plan, *gather, sizeof(double)));
  for (Axis const axis : model_axes)
    if (plan.layout.mesh.size(axis) > 1)
      price.collectives.push_back(
          of(plan, planned_sum(axis, plan.layout.model_sections, plan.layout.line(axis)), sizeof(double)));
  return price;
}

/// With stages a collective adds, else this rank alone.
InstructionPrice StepPrices::of_tie(ShardPlan const& plan, Rank member, Instruction const& instruction) {
  if (!plan.pipeline.table) return {of_elements(plan, member, instruction)};
  return {0, {of(plan, *plan.pipeline.table, bytes_per_value(plan.reductions.storage))}};
}

/// What an instruction is of its pass. If its pieces were not measured, they take equal times.
double StepPrices::part_of_pass(ShardPlan const& plan, Instruction const& instruction) const {
  if (instruction.piece == Instruction::none) return 1;
  std::size_t const pieces = pieces_of(instruction, plan.parts).size();
  Part const part = part_of(instruction, plan.parts);
  bool const again = instruction.act == Act::recompute;
  auto const found = m_parts->piece_shares.find(
      {part.kind, pass_of(instruction.act), again ? plan.parts.recompute(part) : Recompute::none});
  if (found == m_parts->piece_shares.end() || found->second.size() != pieces) return 1 / static_cast<double>(pieces);
  return found->second[at(instruction.piece)];
}

Nanoseconds StepPrices::of_part(ShardPlan const& plan, Instruction const& instruction) const {
  PartKind const kind = plan.parts[instruction.subject].kind;
  PartTimes::OfPart const& times = m_parts->of(kind);
  double const part = part_of_pass(plan, instruction);
  if (instruction.act == Act::forward) return nanoseconds(part * times.forward);
  if (instruction.act == Act::recompute) {
    double const again = times.recompute(plan.parts.recompute(plan.parts[instruction.subject]));
    TRAINSTONE_REQUIRE(again > 0, "no times of what part \"{}\" computes again", to_string(kind));
    return nanoseconds(part * again);
  }
  bool const adds = plan.reductions.adds_in_place() && instruction.micro_batch > 0;
  return nanoseconds(part * (adds ? times.backward_adding : times.backward));
}

/// Work on gradients and parameters that lie on the rank. In ordered mode the additions of a micro-batch are the mean
/// over all of them, so that micro-batches are alike.
Nanoseconds StepPrices::of_elements(ShardPlan const& plan, Rank member, Instruction const& instruction) const {
  auto const share = static_cast<double>(plan.layout.ownership.elements(member));
  Index const micro_batches = plan.layout.rank_micro_batches;
  double const additions =
      static_cast<double>(micro_batches - std::popcount(static_cast<std::uint64_t>(micro_batches))) /
      static_cast<double>(micro_batches);
  double const fold = additions * m_parts->add_of_element + m_parts->copy_of_element;
  switch (instruction.act) {
  case Act::norm: return nanoseconds(share * m_parts->norm_of_element);
  case Act::update: {
    Index const unit = instruction.subject;
    double const updated = unit == Instruction::none ? share : static_cast<double>(share_of_unit(plan, member, unit));
    return nanoseconds(updated * m_parts->update_of_element);
  }
  case Act::fold:
    return nanoseconds(fold *
                       static_cast<double>(plan.reductions.gradients.units[at(instruction.subject)].memory.size()));
  case Act::tie: {
    Index const table = plan.reductions.gradients.looked_up()->group;
    return nanoseconds(m_parts->add_of_element *
                       static_cast<double>(plan.layout.ownership.share(table, member).size()));
  }
  case Act::accumulate: {
    double elements = 0;
    for (BucketPart const& part : plan.reductions.buckets.bucket(instruction.subject).parts)
      if (!plan.layout.ownership.share(part.group, member).empty())
        elements += static_cast<double>(part.of_share.size());
    bool const first = instruction.micro_batch == 0;
    double const one = first ? m_parts->copy_of_element : m_parts->add_of_element;
    return nanoseconds(elements * (plan.reductions.ordered ? fold : one));
  }
  default: return 0;
  }
}

/// Buckets of one size cost the same, whoever owns them. Their problems have a number for every rank, so that they are
/// made only once.
InstructionPrice StepPrices::of_reduction(ShardPlan const& plan, bool serves, Instruction const& instruction) {
  InstructionPrice price;
  Bucket const bucket = plan.reductions.buckets.bucket(instruction.subject);
  std::vector<CollectivePrice>& known = m_reductions[{plan.pipeline.stage, bucket.share_elements()}];
  if (known.empty())
    for (PlannedCollective const& step : plan.reductions.reduction_of(bucket, plan.layout))
      known.push_back(of(plan, step, bytes_per_value(plan.reductions.storage)));
  for (std::size_t i = 0; i < known.size(); ++i)
    if (plan.reductions.is_of_sums(plan.reductions.collectives[i]) == (instruction.act == Act::reduce_sums))
      price.collectives.push_back(known[i]);
  Index const unit = plan.reductions.buckets.runs[at(bucket.run)].first_unit,
              buckets = plan.reductions.buckets.buckets();
  if (plan.reductions.by_priority)
    set_turn(price, 1 + instruction.subject, unit * buckets + instruction.subject, serves ? PortUse::in : PortUse::out);
  return price;
}

CollectivePrice StepPrices::of(ShardPlan const& plan, PlannedCollective const& planned, std::size_t element_bytes) {
  return of(plan, planned, communicator_of(planned), element_bytes);
}

/// The nodes of all lines whose ranks do at the same time what those of one line do: of two neighbouring stages, all
/// such pairs. Empty where nothing is held up, or all ranks are one line.
std::vector<int> const& StepPrices::placement(ShardPlan const& plan, CommunicatorId const& communicator) {
  std::optional<Axis> const axis = communicator.axis;
  std::optional<StagePair> const stages = communicator.stages;
  StagePair const pair = stages.value_or(StagePair{-1, -1});
  auto const [found, is_new] = m_placements.try_emplace({axis ? static_cast<int>(*axis) : -1, pair.lower, pair.upper});
  std::vector<int>& nodes = found->second;
  if (!is_new || !axis || m_machine.network.kind == Interconnect::Kind::full) return nodes;
  Mesh const& mesh = plan.layout.mesh;
  bool const neighbours = pair.upper == pair.lower + 1;
  for (Rank rank = 0; rank < mesh.ranks(); ++rank) {
    Rank const place = mesh.index(*axis, rank);
    std::vector<Rank> members;
    if (!stages && place == 0) members = mesh.members(*axis, rank);
    if (stages && (neighbours ? place + 1 < mesh.pipeline : place == pair.lower))
      members = mesh.members(StagePair{place, neighbours ? place + 1 : pair.upper}, rank);
    for (Rank const member : members) nodes.push_back(plan.layout.topology.node_of(member));
  }
  return nodes;
}

/// All roots cost the same.
CollectivePrice StepPrices::of(ShardPlan const& plan, PlannedCollective const& planned,
                               CommunicatorId const& communicator, std::size_t element_bytes) {
  Problem const& problem = planned.problem;
  StagePair const stages = communicator.stages.value_or(StagePair{-1, -1});
  bool const of_all_ranks = !communicator.axis && !communicator.stages; // the same for all stages
  Key const key{of_all_ranks ? -1 : plan.pipeline.stage,
                communicator.axis ? static_cast<int>(*communicator.axis) : -1,
                stages.lower,
                stages.upper,
                static_cast<int>(problem.collective),
                static_cast<int>(planned.algorithm),
                problem.elements(),
                element_bytes};
  auto const [found, is_new] = m_known.try_emplace(key);
  if (is_new) {
    std::vector<int> const& nodes = placement(plan, communicator);
    auto const find_prices = [&] {
      auto const price_on = [&](MachineModel const& machine, std::vector<int> const& placed) {
        return trainstone::price(problem, planned.algorithm, element_bytes, machine, placed);
      };
      return RememberedPrice{price_on(m_machine, nodes), m_cores_communicate ? price_on(m_cores, {}) : 0};
    };
    PriceMemory& memory = m_memory ? *m_memory : m_own_memory;
    auto const [all, core] =
        nodes.empty() ? memory.of(problem, planned.algorithm, element_bytes, find_prices) : find_prices();
    found->second.core = nanoseconds(core);
    found->second.wire = std::max<Nanoseconds>(0, nanoseconds(all - core));
  }
  CollectivePrice price = found->second;
  price.communicator = communicator;
  return price;
}

/// A thread of its own reads.
InstructionPrice StepPrices::of_fetch(ShardPlan const& plan, Rank member, Instruction const& instruction) {
  TRAINSTONE_REQUIRE_INPUT(m_files.read > 0, "the machine has no rates of files; `trainstone calibrate` measures them");
  StateLayout layout = plan.layout;
  layout.rank = layout.mesh.rank_at(Axis::shard, layout.rank, member);
  auto const bytes = static_cast<double>(fetched_bytes(layout, instruction.subject));
  return {0, {{.communicator = {.is_file = true}, .wire = nanoseconds(bytes / m_files.read), .port = PortUse::none}}};
}

/// Of sharded parameters a rank copies its shares into the slot.
/// Of an element, into a slot.
double StepPrices::copy_of_share(OffloadPlan const& offload, std::size_t element_bytes) const {
  if (!offload.moves_parameters()) return m_parts->copy_of_element;
  TRAINSTONE_REQUIRE_INPUT(m_files.copy > 0,
                           "the machine has no rates of copies; `trainstone calibrate` measures them");
  return static_cast<double>(element_bytes) / m_files.copy;
}

InstructionPrice StepPrices::of_gather(ShardPlan const& plan, Rank member, bool serves,
                                       Instruction const& instruction) {
  InstructionPrice price;
  Index const copied = share_of_unit(plan, member, instruction.subject);
  if (instruction.act == Act::gather)
    price.compute = nanoseconds(copy_of_share(plan.offload, bytes_per_value(plan.layout.types.parameters)) *
                                static_cast<double>(copied));
  for (UnitGather const& gather : plan.gathers.of_unit[at(instruction.subject)])
    price.collectives.push_back(of(plan, gather.planned, bytes_per_value(plan.layout.types.parameters)));
  if (plan.gathers.by_priority)
    set_turn(price, 1 + plan.reductions.buckets.buckets() + instruction.subject, instruction.subject,
             serves ? PortUse::out : PortUse::in);
  return price;
}

} // namespace trainstone
