// The gradients of a simulated rank: what writes them, and what must be in them. Part of simulated_rank.hpp.

#include "parallel/program/simulated_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace trainstone::Impl {

Range SimulatedRank::in_unit(GradientCell const& cell, std::size_t slice) const {
  Index const begin = m_layout->groups[index(cell.group)].offset - m_layout->units[index(cell.unit)].offset;
  return {begin + cell.elements[slice].begin, begin + cell.elements[slice].end};
}

void SimulatedRank::write_gradients(Instruction const& instruction, Index number_of_piece) {
  Index const part = instruction.subject, number = instruction.micro_batch;
  Index const unit = m_plan->parts.unit(part), run = m_plan->reductions.buckets.run_of_unit(unit);
  BackwardPiece const& piece = m_plan->parts.backward(part)[index(number_of_piece)];
  require_unused(instruction, unit, piece);
  bool const sums = m_plan->reductions.adds_in_place() && number > 0;
  ContributionSum const mine(contribution(m_layout->mesh.data_index(rank()), number, part, number_of_piece));
  for (GradientCell& cell : m_cells) {
    bool const overwritten = cell.unit != unit && cell.run != run && m_plan->reductions.share_memory(run, cell.run);
    for (std::size_t slice = 0; slice < cell.fresh.size(); ++slice) {
      ContributionSum& fresh = cell.fresh[slice];
      if (overwritten) fresh = {};
      if (!writes(part, piece, cell, slice)) continue;
      if (sums || was_written(part, number_of_piece, cell, slice))
        fresh += mine;
      else
        fresh = mine;
    }
  }
}

/// Whether a piece of a part's backward writes into a slice. Where the token table's gradient has two parts, embed
/// writes its own part, and head the other one.
bool SimulatedRank::writes(Index part, BackwardPiece const& piece, GradientCell const& cell, std::size_t slice) const {
  if (m_plan->parts.unit(part) != cell.unit || !piece.writes(in_unit(cell, slice))) return false;
  std::optional<Gradient> const apart = m_plan->reductions.gradients.looked_up();
  bool const looks_up = m_plan->parts[part].kind == PartKind::embed;
  return !apart || cell.group != apart->group || cell.looked_up == looks_up;
}

/// Whether earlier pieces of the micro-batch's backward have written into the slice, so that this piece adds to it.
bool SimulatedRank::was_written(Index part, Index number_of_piece, GradientCell const& cell, std::size_t slice) const {
  for (Index const other : m_plan->parts.of_unit(cell.unit)) { // backward goes from the last part to the first
    std::vector<BackwardPiece> const& pieces = m_plan->parts.backward(other);
    for (Index earlier = 0; earlier < std::ssize(pieces); ++earlier)
      if ((other > part || (other == part && earlier < number_of_piece)) &&
          writes(other, pieces[index(earlier)], cell, slice))
        return true;
  }
  return false;
}

/// No collective may use the memory that the piece writes; of other units, all memory that the run's gradients share.
void SimulatedRank::require_unused(Instruction const& instruction, Index unit, BackwardPiece const& piece) const {
  Index const run = m_plan->reductions.buckets.run_of_unit(unit);
  auto const is_written = [&](GradientCell const& cell) {
    for (std::size_t slice = 0; slice < cell.elements.size(); ++slice)
      if (writes(instruction.subject, piece, cell, slice)) return true;
    return false;
  };
  for (GradientCell const& cell : m_cells)
    if (cell.fresh_in_use && m_plan->reductions.share_memory(run, cell.run) &&
        (cell.unit != unit || cell.looked_up || is_written(cell))) // embed's part is set to zero for it
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
    if (cell.unit != instruction.subject) continue;
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

/// What all pieces that write into a slice add to it.
ContributionSum SimulatedRank::of_micro_batch(GradientCell const& cell, std::size_t slice, Rank of,
                                              Index number) const {
  ContributionSum sum = ContributionSum::nothing();
  for (Index const part : m_plan->parts.of_unit(cell.unit)) {
    std::vector<BackwardPiece> const& pieces = m_plan->parts.backward(part);
    for (std::size_t piece = 0; piece < pieces.size(); ++piece)
      if (writes(part, pieces[piece], cell, slice))
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

void SimulatedRank::require_complete(Instruction const& instruction, GradientCell const& cell) const {
  if (cell.fresh_in_use || cell.sums_in_use)
    fail(StepDefect::undefined_read, instruction, fmt::format("bucket {} is still being reduced", cell.bucket));
  std::vector<ContributionSum> const& sums = m_plan->reductions.fresh_gradients_apart ? cell.sums : cell.fresh;
  for (std::size_t slice = 0; slice < sums.size(); ++slice)
    if (owner(cell.group, slice) == m_layout->member()) require_all(instruction, cell, slice, sums[slice]);
}

void SimulatedRank::tie(Instruction const& instruction) {
  if (!m_plan->ties_table()) fail(StepDefect::malformed, instruction, "the token table has one gradient");
  for (GradientCell const& cell : m_cells)
    if (m_layout->groups[index(cell.group)].number == token_table_group) require_complete(instruction, cell);
  ++m_tied;
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

void SimulatedRank::begin_reduction(Instruction const& instruction) {
  bool const of_sums = instruction.act == Act::reduce_sums;
  for (GradientCell* const cell : cells_of(instruction.subject)) {
    bool& in_use = of_sums ? cell->sums_in_use : cell->fresh_in_use;
    if (in_use) fail(StepDefect::written_while_used, instruction, "the bucket is still being reduced");
    in_use = true;
    if (m_layout->serves()) continue; // it has none of its own
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
  return m_layout->ownership.owner_of_part(group, static_cast<Index>(slice));
}

} // namespace trainstone::Impl
