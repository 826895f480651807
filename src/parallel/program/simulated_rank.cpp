#include "parallel/program/simulated_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace trainstone::Impl {

SimulatedRank::SimulatedRank(ShardPlan const& plan)
    : m_plan(&plan),
      m_layout(&plan.layout),
      m_slots(index(plan.gathers.in_flight())),
      m_loaded(index(plan.layout.rank_micro_batches), false),
      m_losses(index(plan.layout.rank_micro_batches), 0),
      m_activations(plan.parts) {
  for (Index group = 0; group < std::ssize(plan.layout.groups); ++group) m_whole.push_back({group, 0, false});
  for (Index number = 0; number < plan.reductions.buckets.buckets(); ++number) {
    Bucket const bucket = plan.reductions.buckets.bucket(number);
    for (BucketPart const& part : bucket.parts) {
      GradientCell cell{number, bucket.run, part.group, {}, false, false, {}, {}, {}};
      for (Rank slice = 0; slice < plan.layout.ownership.owners(); ++slice) {
        Index const begin = plan.layout.ownership.share(part.group, owner(part.group, index(slice))).begin;
        cell.elements.push_back({begin + part.of_share.begin, begin + part.of_share.end});
      }
      cell.fresh.resize(cell.elements.size());
      cell.sums.resize(cell.fresh.size());
      cell.waiting.resize(index(plan.reductions.waiting_sums), cell.fresh);
      m_cells.push_back(std::move(cell));
    }
  }
}

void SimulatedRank::fail(StepDefect defect, Instruction const& instruction, std::string const& what) const {
  throw FoundDefect{
      {defect, rank(), fmt::format("rank {}: \"{}\": {}", rank(), to_string(instruction, *m_plan), what)}};
}

void SimulatedRank::require_well_formed(Instruction const& instruction) const {
  Act const act = instruction.act == Act::wait ? instruction.started : instruction.act;
  auto const require = [&](Index value, Index count, char const* what) {
    if (value < 0 || value >= count)
      fail(StepDefect::malformed, instruction, fmt::format("{} {} of {} does not exist", what, value, count));
  };
  switch (act) {
  case Act::gather:
  case Act::publish: require(instruction.slot, std::ssize(m_slots), "slot"); [[fallthrough]];
  case Act::fold: require(instruction.subject, std::ssize(m_layout->groups), "group"); break;
  case Act::forward:
  case Act::backward: require(instruction.subject, m_plan->parts.size(), "part"); break;
  case Act::reduce:
  case Act::reduce_sums:
  case Act::accumulate: require(instruction.subject, m_plan->reductions.buckets.buckets(), "bucket"); break;
  default: break;
  }
  if (act == Act::backward && instruction.piece != Instruction::none)
    require(instruction.piece, std::ssize(m_plan->parts.backward(instruction.subject)), "piece");
  bool const of_micro_batch = act != Act::gather && act != Act::publish && act != Act::agree && act != Act::norm &&
                              act != Act::update && act != Act::wait;
  if (of_micro_batch) require(instruction.micro_batch, m_layout->rank_micro_batches, "micro-batch");
}

void SimulatedRank::require_played() const {
  if (m_sections != std::ssize(played))
    throw FoundDefect{{StepDefect::incomplete, rank(),
                       fmt::format("rank {}: {} of {} steps, updates and evaluations have no instruction", rank(),
                                   std::ssize(played) - m_sections, std::ssize(played))}};
}

void SimulatedRank::load(Instruction const& instruction) {
  m_loaded[index(instruction.micro_batch)] = true;
  m_has_norm = false;
}

void SimulatedRank::read_parameters(Instruction const& instruction, Index group) {
  bool const sharded = m_layout->sharding.parameters;
  if (sharded && (instruction.slot < 0 || instruction.slot >= std::ssize(m_slots)))
    fail(StepDefect::malformed, instruction, fmt::format("slot {} does not exist", instruction.slot));
  Copy& copy = sharded ? m_slots[index(instruction.slot)] : m_whole[index(group)];
  std::string const& name = m_layout->groups[index(group)].name;
  if (copy.group != group)
    fail(StepDefect::undefined_read, instruction,
         fmt::format("the parameters of {} are not in slot {}", name, instruction.slot));
  if (copy.under_way)
    fail(StepDefect::undefined_read, instruction, fmt::format("the parameters of {} are still on their way", name));
  copy.read = true;
  if (copy.version != m_version)
    fail(StepDefect::old_parameters, instruction,
         fmt::format("the parameters of {} are those after {} updates, there were {}", name, copy.version, m_version));
}

/// Inputs or targets.
void SimulatedRank::read_tokens(Instruction const& instruction) const {
  if (!m_loaded[index(instruction.micro_batch)])
    fail(StepDefect::undefined_read, instruction, "the tokens are not there");
}

void SimulatedRank::require_there(Instruction const& instruction,
                                  std::optional<PlacedActivation> const& missing) const {
  if (missing)
    fail(StepDefect::undefined_read, instruction,
         fmt::format("activation \"{}\" of the micro-batch is not there", to_string(*missing)));
}

void SimulatedRank::forward(Instruction const& instruction) {
  Index const part = instruction.subject, number = instruction.micro_batch;
  if (part == 0) read_tokens(instruction);
  require_there(instruction, m_activations.missing_for_forward(part, number));
  read_parameters(instruction, group_read_by(instruction, m_plan->parts));
  m_activations.keep(part, number);
}

void SimulatedRank::loss(Instruction const& instruction) {
  Index const number = instruction.micro_batch;
  read_tokens(instruction);
  require_there(instruction, m_activations.missing_for_loss(number));
  ++m_losses[index(number)];
  m_stream_part = m_plan->parts.size() - 1;
  m_stream_micro_batch = number;
  m_piece = 0;
}

void SimulatedRank::backward(Instruction const& instruction) {
  Index const part = instruction.subject, number = instruction.micro_batch;
  bool const whole = instruction.piece == Instruction::none;
  if (m_stream_part != part || m_stream_micro_batch != number)
    fail(StepDefect::undefined_read, instruction, "the gradient of its output is not there");
  if (m_piece != (whole ? 0 : instruction.piece))
    fail(StepDefect::undefined_read, instruction, fmt::format("piece {} comes next", m_piece));
  if (part == 0) read_tokens(instruction);
  require_there(instruction, m_activations.missing_for_backward(part, number));
  if (Index const group = group_read_by(instruction, m_plan->parts); group != Instruction::none)
    read_parameters(instruction, group);

  Index const pieces = std::ssize(m_plan->parts.backward(part)), end = whole ? pieces : instruction.piece + 1;
  for (; m_piece < end; ++m_piece) write_gradients(instruction, m_piece);
  if (m_piece < pieces) return;
  m_activations.drop(part);
  m_stream_part = part - 1;
  m_piece = 0;
}

void SimulatedRank::write_gradients(Instruction const& instruction, Index piece) {
  Index const part = instruction.subject, number = instruction.micro_batch;
  Index const group = m_plan->parts.group(part), run = m_plan->reductions.buckets.run_of_group(group);
  Range const written = m_plan->parts.backward(part)[index(piece)].written;
  require_unused(instruction, group, written);
  bool const completes_head = m_plan->parts[part].kind == PartKind::embed;
  bool const adds = completes_head || (m_plan->reductions.adds_in_place() && number > 0);
  ContributionSum const mine(contribution(m_layout->mesh.data_index(rank()), number, part, piece));
  for (GradientCell& cell : m_cells) {
    bool const overwritten = cell.group != group && cell.run != run && m_plan->reductions.share_memory(run, cell.run);
    for (std::size_t slice = 0; slice < cell.fresh.size(); ++slice) {
      ContributionSum& fresh = cell.fresh[slice];
      if (overwritten) fresh = {};
      if (cell.group != group || !cell.elements[slice].overlaps(written)) continue;
      bool const goes_on = cell.elements[slice].end > written.end; // earlier pieces have written the rest
      if (adds || goes_on)
        fresh += mine;
      else
        fresh = mine;
    }
  }
}

/// No collective may use the memory that the piece writes; of other groups, all memory that the run's gradients share.
void SimulatedRank::require_unused(Instruction const& instruction, Index group, Range const& written) const {
  Index const run = m_plan->reductions.buckets.run_of_group(group);
  auto const is_written = [&](Range const& elements) { return elements.overlaps(written); };
  for (GradientCell const& cell : m_cells)
    if (cell.fresh_in_use && m_plan->reductions.share_memory(run, cell.run) &&
        (cell.group != group || std::ranges::any_of(cell.elements, is_written)))
      fail(StepDefect::written_while_used, instruction,
           fmt::format("bucket {} is still being reduced in this memory", cell.bucket));
}

void SimulatedRank::fold_into_tree(GradientCell& cell, std::size_t slice, ContributionSum value, Index micro_batch,
                                   ContributionSum& result) {
  auto const complete = static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(micro_batch)));
  for (std::size_t level = 0; level < complete; ++level) value += cell.waiting[level][slice];
  if (micro_batch + 1 == m_layout->rank_micro_batches)
    result = value;
  else
    cell.waiting[complete][slice] = value;
}

void SimulatedRank::fold(Instruction const& instruction) {
  for (GradientCell& cell : m_cells) {
    if (cell.group != instruction.subject) continue;
    if (cell.fresh_in_use)
      fail(StepDefect::written_while_used, instruction, fmt::format("bucket {} is still being reduced", cell.bucket));
    for (std::size_t slice = 0; slice < cell.fresh.size(); ++slice)
      fold_into_tree(cell, slice, cell.fresh[slice], instruction.micro_batch, cell.fresh[slice]);
  }
}

void SimulatedRank::accumulate(Instruction const& instruction) {
  for (GradientCell* const cell : cells_of(instruction.subject)) {
    if (cell->fresh_in_use || cell->sums_in_use)
      fail(StepDefect::written_while_used, instruction, "the bucket is still being reduced");
    for (std::size_t slice = 0; slice < cell->fresh.size(); ++slice) {
      if (owner(cell->group, slice) != m_layout->member()) continue;
      if (!cell->fresh[slice].is_defined())
        fail(StepDefect::undefined_read, instruction, "what was reduced is not there any more");
      if (m_plan->reductions.ordered)
        fold_into_tree(*cell, slice, cell->fresh[slice], instruction.micro_batch, cell->sums[slice]);
      else if (instruction.micro_batch == 0)
        cell->sums[slice] = cell->fresh[slice];
      else
        cell->sums[slice] += cell->fresh[slice];
    }
  }
}

void SimulatedRank::agree(Instruction const& instruction) {
  ++m_agreed;
  for (std::size_t i = 0; i < m_losses.size(); ++i)
    if (m_losses[i] != 1)
      fail(m_losses[i] == 0 ? StepDefect::missing_contribution : StepDefect::doubled_contribution, instruction,
           fmt::format("micro-batch {} has {} losses", i, m_losses[i]));
}

/// What all pieces that write into a slice add to it.
ContributionSum SimulatedRank::of_micro_batch(GradientCell const& cell, std::size_t slice, Rank of,
                                              Index number) const {
  ContributionSum sum = ContributionSum::nothing();
  for (Index const part : m_plan->parts.of_group(cell.group)) {
    std::vector<BackwardPiece> const& pieces = m_plan->parts.backward(part);
    for (std::size_t piece = 0; piece < pieces.size(); ++piece)
      if (pieces[piece].written.overlaps(cell.elements[slice]))
        sum += ContributionSum(contribution(of, number, part, static_cast<Index>(piece)));
  }
  return sum;
}

ContributionSum SimulatedRank::expected(GradientCell const& cell, std::size_t slice) const {
  ContributionSum sum = ContributionSum::nothing();
  for (Rank of = 0; of < m_layout->mesh.data(); ++of)
    for (Index number = 0; number < m_layout->rank_micro_batches; ++number)
      sum += of_micro_batch(cell, slice, of, number);
  return sum;
}

void SimulatedRank::norm(Instruction const& instruction) {
  for (GradientCell const& cell : m_cells) {
    if (cell.fresh_in_use || cell.sums_in_use)
      fail(StepDefect::undefined_read, instruction, fmt::format("bucket {} is still being reduced", cell.bucket));
    std::vector<ContributionSum> const& sums = m_plan->reductions.fresh_gradients_apart ? cell.sums : cell.fresh;
    for (std::size_t slice = 0; slice < sums.size(); ++slice)
      if (owner(cell.group, slice) == m_layout->member()) require_all(instruction, cell, slice, sums[slice]);
  }
  ++m_normed;
  m_has_norm = true;
}

/// Names what alone makes the difference: a micro-batch, a rank, or a micro-batch of all ranks.
void SimulatedRank::require_all(Instruction const& instruction, GradientCell const& cell, std::size_t slice,
                                ContributionSum const& found) const {
  ContributionSum const wanted = expected(cell, slice);
  if (found == wanted) return;
  std::string const& name = m_layout->groups[index(cell.group)].name;
  if (!found.is_defined())
    fail(StepDefect::undefined_read, instruction, fmt::format("the sum of the gradient of {} is not there", name));
  auto const compare = [&](ContributionSum const& part, std::string const& what) {
    if (found.lacks(wanted, part))
      fail(StepDefect::missing_contribution, instruction,
           fmt::format("the gradient of {} lacks that of {}", name, what));
    if (wanted.lacks(found, part))
      fail(StepDefect::doubled_contribution, instruction,
           fmt::format("the gradient of {} has that of {} twice", name, what));
  };
  std::vector<ContributionSum> of_all_ranks(index(m_layout->rank_micro_batches), ContributionSum::nothing());
  for (Rank of = 0; of < m_layout->mesh.data(); ++of) {
    ContributionSum of_rank = ContributionSum::nothing();
    for (Index number = 0; number < m_layout->rank_micro_batches; ++number) {
      ContributionSum const sum = of_micro_batch(cell, slice, of, number);
      compare(sum, fmt::format("micro-batch {} of rank {}", number, of));
      of_rank += sum;
      of_all_ranks[index(number)] += sum;
    }
    compare(of_rank, fmt::format("rank {}", of));
  }
  for (Index number = 0; number < m_layout->rank_micro_batches; ++number)
    compare(of_all_ranks[index(number)], fmt::format("micro-batch {} of all ranks", number));
  fail(StepDefect::missing_contribution, instruction,
       fmt::format("the gradient of {} is not the sum over all micro-batches of all ranks", name));
}

void SimulatedRank::update(Instruction const& instruction) {
  if (!m_has_norm) fail(StepDefect::undefined_read, instruction, "the norm is not there");
  for (auto const* copies : {&m_whole, &m_slots})
    for (Copy const& copy : *copies)
      if (copy.under_way)
        fail(StepDefect::written_while_used, instruction,
             fmt::format("the parameters of {} are still on their way", m_layout->groups[index(copy.group)].name));
  m_has_norm = false;
  ++m_updated;
  ++m_version;
  if (m_layout->mesh.shard > 1) return;
  for (Copy& copy : m_whole) copy.version = m_version;
}

void SimulatedRank::end_section(Section section, Instruction const& last) {
  auto const require_times = [&](Act act, Index found, Index wanted) {
    if (found != wanted)
      fail(StepDefect::incomplete, last,
           fmt::format("\"{}\" was done {} times until here, must be {}", to_string(act), found, wanted));
  };
  require_times(Act::agree, m_agreed, section == Section::step ? 1 : 0);
  require_times(Act::norm, m_normed, section == Section::step ? 1 : 0);
  require_times(Act::update, m_updated, section == Section::update ? 1 : 0);
  if (section == Section::evaluation) require_times(Act::loss, m_losses.front(), 1);
  m_agreed = m_normed = m_updated = 0;
  ++m_sections;
  if (section == Section::update) return;
  m_loaded.assign(m_loaded.size(), false);
  m_activations.drop_all();
  std::ranges::fill(m_losses, 0);
  m_stream_part = m_stream_micro_batch = Instruction::none;
}

void SimulatedRank::begin_gather(Instruction const& instruction) {
  Copy& copy = m_slots[index(instruction.slot)];
  std::string const before = copy.group == Instruction::none ? "" : m_layout->groups[index(copy.group)].name;
  if (copy.under_way)
    fail(StepDefect::written_while_used, instruction,
         fmt::format("the parameters of {} are on their way into this slot", before));
  if (!copy.read)
    fail(StepDefect::never_read, instruction, fmt::format("no part has read the parameters of {} before it", before));
  copy = {instruction.subject, m_version, true, false};
}

void SimulatedRank::end_gather(Instruction const& instruction) { m_slots[index(instruction.slot)].under_way = false; }

bool SimulatedRank::is_published(Index group) const { return m_whole[index(group)].version == m_version; }

void SimulatedRank::begin_publish(Instruction const& instruction) {
  Copy& copy = m_whole[index(instruction.subject)];
  if (copy.under_way) fail(StepDefect::written_while_used, instruction, "the parameters before it are on their way");
  copy = {instruction.subject, m_version, true};
}

void SimulatedRank::end_publish(Instruction const& instruction) {
  m_whole[index(instruction.subject)].under_way = false;
}

void SimulatedRank::begin_reduction(Instruction const& instruction) {
  bool const of_sums = instruction.act == Act::reduce_sums;
  for (GradientCell* const cell : cells_of(instruction.subject)) {
    bool& in_use = of_sums ? cell->sums_in_use : cell->fresh_in_use;
    if (in_use) fail(StepDefect::written_while_used, instruction, "the bucket is still being reduced");
    in_use = true;
    std::vector<ContributionSum> const& values = of_sums ? cell->sums : cell->fresh;
    for (std::size_t slice = 0; slice < values.size(); ++slice)
      if (!values[slice].is_defined() && (!of_sums || owner(cell->group, slice) == m_layout->member()))
        fail(StepDefect::undefined_read, instruction,
             fmt::format("the gradient of {} is not there", m_layout->groups[index(cell->group)].name));
  }
}

void SimulatedRank::end_reduction(Instruction const& instruction) {
  bool const of_sums = instruction.started == Act::reduce_sums;
  for (GradientCell* const cell : cells_of(instruction.subject))
    (of_sums ? cell->sums_in_use : cell->fresh_in_use) = false;
}

std::vector<GradientCell*> SimulatedRank::cells_of(Index bucket) {
  std::vector<GradientCell*> found;
  for (GradientCell& cell : m_cells)
    if (cell.bucket == bucket) found.push_back(&cell);
  return found;
}

Rank SimulatedRank::owner(Index group, std::size_t slice) const {
  return m_layout->ownership.owner(group).value_or(static_cast<Rank>(slice));
}

} // namespace trainstone::Impl
