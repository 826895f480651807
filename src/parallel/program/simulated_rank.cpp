#include "parallel/program/simulated_rank.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone::Impl {

SimulatedRank::SimulatedRank(ShardPlan const& plan)
    : m_plan(&plan),
      m_layout(&plan.layout),
      m_slots(index(plan.gathers.in_flight())),
      m_loaded(index(plan.layout.rank_micro_batches), false),
      m_losses(index(plan.layout.rank_micro_batches), 0),
      m_activations(plan.parts, plan.pipeline.copies()),
      m_streams(index(plan.pipeline.copies().gradients)),
      m_sent_slots(index(plan.pipeline.copies().slots), false),
      m_input_coming(index(plan.pipeline.copies().inputs), false),
      m_exchange_table(plan.parts) {
  m_versions.resize(plan.layout.units.size(), 0);
  for (Index unit = 0; unit < std::ssize(plan.layout.units); ++unit) m_whole.push_back({unit, 0, false});
  for (Index number = 0; number < plan.reductions.buckets.buckets(); ++number) {
    Bucket const bucket = plan.reductions.buckets.bucket(number);
    for (BucketPart const& part : bucket.parts) {
      bool const looked_up = plan.reductions.gradients.gradients[index(part.gradient)].looked_up;
      GradientCell cell{.bucket = number,
                        .run = bucket.run,
                        .gradient = part.gradient,
                        .group = part.group,
                        .unit = m_layout->unit_of(part.group),
                        .looked_up = looked_up};
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
  case Act::fetch:
    require(instruction.slot, fetch_slots, "fetch slot");
    require(instruction.subject, std::ssize(m_layout->units), "unit");
    break;
  case Act::gather:
  case Act::publish: require(instruction.slot, std::ssize(m_slots), "slot"); [[fallthrough]];
  case Act::fold: require(instruction.subject, std::ssize(m_layout->units), "unit"); break;
  case Act::forward:
  case Act::recompute:
  case Act::backward: require(instruction.subject, m_plan->parts.size(), "part"); break;
  case Act::send:
  case Act::receive:
    require(instruction.subject, 2, "kind of message");
    require(instruction.piece, m_plan->parts.chunks(), "chunk");
    break;
  case Act::exchange:
    require(instruction.subject, std::ssize(slice_exchanges), "exchange");
    require(number_of_chunk(instruction), chunks_of(exchange_of(instruction), m_plan->parts.options()),
            "chunk of rows");
    break;
  case Act::reduce:
  case Act::reduce_sums:
  case Act::accumulate: require(instruction.subject, m_plan->reductions.buckets.buckets(), "bucket"); break;
  case Act::update: {
    bool const whole = instruction.subject == Instruction::none;
    if (whole == m_plan->by_priority()) fail(StepDefect::malformed, instruction, "the plan has other updates");
    if (!whole) require(instruction.subject, std::ssize(m_layout->units), "unit");
    break;
  }
  default: break;
  }
  bool const is_of_chunk = act == Act::loss && m_plan->parts.options().splits_loss();
  if (computes(act) && (is_of_chunk || instruction.piece != Instruction::none))
    require(instruction.piece, std::ssize(pieces_of(instruction, m_plan->parts)), "piece");
  ActivationCopies const copies = m_plan->pipeline.copies();
  require(instruction.buffers.slot, copies.slots, "activation slot");
  require(instruction.buffers.input, std::max<Index>(1, copies.inputs), "input");
  require(instruction.buffers.gradient, copies.gradients, "gradient buffer");
  bool const of_micro_batch = act != Act::fetch && act != Act::gather && act != Act::publish && act != Act::tie &&
                              act != Act::agree && act != Act::norm && act != Act::update && act != Act::wait;
  if (of_micro_batch) require(instruction.micro_batch, m_layout->rank_micro_batches, "micro-batch");
}

/// Evaluations are none of a server's business, unless parameters are pulled there.
void SimulatedRank::require_played() const {
  Index const least = std::ranges::count_if(played, [&](Section one) {
    if (one == Section::update) return !m_plan->by_priority(); // a part of the step
    return one == Section::step || !m_layout->serves();
  });
  if (m_sections < least)
    throw FoundDefect{{StepDefect::incomplete, rank(),
                       fmt::format("rank {}: {} of {} steps, updates and evaluations have no instruction", rank(),
                                   std::ssize(played) - m_sections, std::ssize(played))}};
}

void SimulatedRank::load(Instruction const& instruction) {
  m_loaded[index(instruction.micro_batch)] = true;
  m_has_norm = false;
}

void SimulatedRank::read_parameters(Instruction const& instruction, Index unit) {
  bool const sharded = m_layout->sharding.parameters;
  if (sharded && (instruction.slot < 0 || instruction.slot >= std::ssize(m_slots)))
    fail(StepDefect::malformed, instruction, fmt::format("slot {} does not exist", instruction.slot));
  Copy& copy = sharded ? m_slots[index(instruction.slot)] : m_whole[index(unit)];
  std::string const& name = m_layout->units[index(unit)].name;
  if (copy.unit != unit)
    fail(StepDefect::undefined_read, instruction,
         fmt::format("the parameters of {} are not in slot {}", name, instruction.slot));
  if (copy.under_way)
    fail(StepDefect::undefined_read, instruction, fmt::format("the parameters of {} are still on their way", name));
  copy.read = true;
  Index const version = m_versions[index(unit)];
  if (copy.version != version)
    fail(StepDefect::old_parameters, instruction,
         fmt::format("the parameters of {} are those after {} updates, there were {}", name, copy.version, version));
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

void SimulatedRank::require_unsent(Instruction const& instruction) const {
  if (m_sent_slots[index(instruction.buffers.slot)])
    fail(StepDefect::written_while_used, instruction,
         fmt::format("what slot {} has is still being sent", instruction.buffers.slot));
}

void SimulatedRank::forward(Instruction const& instruction) {
  run_pieces(instruction);
  if (m_plan->parts[instruction.subject].kind == PartKind::embed) read_tokens(instruction);
  require_there(instruction, m_activations.missing_for_forward(instruction));
  require_unsent(instruction);
  read_parameters(instruction, unit_read_by(instruction, m_plan->parts));
  if (ends_pass(instruction, m_plan->parts)) m_activations.keep(instruction);
}

void SimulatedRank::recompute(Instruction const& instruction) {
  run_pieces(instruction);
  require_there(instruction, m_activations.missing_for_recompute(instruction));
  read_parameters(instruction, unit_read_by(instruction, m_plan->parts));
  if (ends_pass(instruction, m_plan->parts)) m_activations.recompute(instruction);
}

void SimulatedRank::loss(Instruction const& instruction) {
  Index const number = instruction.micro_batch;
  Index& pieces = m_losses[index(number)];
  run_pieces(instruction);
  read_tokens(instruction);
  require_there(instruction, m_activations.missing_for_loss(instruction));
  if (m_plan->parts.options().splits_loss()) {
    read_parameters(instruction, unit_read_by(instruction, m_plan->parts));
    m_activations.keep_logits(instruction);
  }
  Range const run = pieces_run(instruction, m_plan->parts);
  if (instruction.piece != Instruction::none && run.begin != pieces)
    fail(StepDefect::undefined_read, instruction, fmt::format("piece {} comes next", pieces));
  pieces += run.size();
  if (!begins_pass(instruction)) return; // of the same micro-batch
  StreamGradient& stream = m_streams[index(instruction.buffers.gradient)];
  if (stream.in_message) fail(StepDefect::written_while_used, instruction, "the gradient buffer is still being sent");
  stream = {.micro_batch = number, .part = m_plan->parts.size() - 1};
}

void SimulatedRank::backward(Instruction const& instruction) {
  Index const part = instruction.subject, number = instruction.micro_batch;
  Range const run = pieces_run(instruction, m_plan->parts);
  StreamGradient& stream = m_streams[index(instruction.buffers.gradient)];
  if (stream.part != part || stream.micro_batch != number || stream.in_message)
    fail(StepDefect::undefined_read, instruction, "the gradient of its output is not there");
  if (stream.piece != run.begin)
    fail(StepDefect::undefined_read, instruction, fmt::format("piece {} comes next", stream.piece));
  run_pieces(instruction);
  if (m_plan->parts[part].kind == PartKind::embed) read_tokens(instruction);
  require_there(instruction, m_activations.missing_for_backward(instruction));
  require_unsent(instruction);
  if (Index const unit = unit_read_by(instruction, m_plan->parts); unit != Instruction::none)
    read_parameters(instruction, unit);

  for (; stream.piece < run.end; ++stream.piece) write_gradients(instruction, stream.piece);
  if (!ends_pass(instruction, m_plan->parts)) return;
  m_activations.drop(instruction);
  stream = {};
  if (m_plan->parts[part].kind == PartKind::embed) return;
  Index const chunk = m_plan->parts.chunk_of(part);
  bool const begins_chunk = m_plan->parts.chunk_parts(chunk).begin == part;
  stream.micro_batch = number;
  (begins_chunk ? stream.chunk : stream.part) = begins_chunk ? chunk : part - 1;
}

/// Of a micro-batch.
Index SimulatedRank::loss_pieces() const {
  PartTable const& parts = m_plan->parts;
  return m_plan->has_losses() ? std::ssize(pieces_of({.act = Act::loss}, parts)) : 0;
}

void SimulatedRank::agree(Instruction const& instruction) {
  ++m_agreed;
  Index const pieces = loss_pieces();
  for (std::size_t i = 0; i < m_losses.size(); ++i)
    if (m_losses[i] != pieces)
      fail(m_losses[i] < pieces ? StepDefect::missing_contribution : StepDefect::doubled_contribution, instruction,
           fmt::format("micro-batch {} has {} of {} pieces of the loss", i, m_losses[i], pieces));
}

void SimulatedRank::norm(Instruction const& instruction) {
  for (GradientCell const& cell : m_cells) require_complete(instruction, cell);
  if (m_plan->ties_table() && m_tied == 0)
    fail(StepDefect::undefined_read, instruction, "the two parts of the token table's gradient have not been added");
  ++m_normed;
  m_has_norm = true;
}

void SimulatedRank::update(Instruction const& instruction) {
  if (m_plan->by_priority()) return update_unit(instruction);
  if (!m_has_norm) fail(StepDefect::undefined_read, instruction, "the norm is not there");
  for (auto const* copies : {&m_whole, &m_slots})
    for (Copy const& copy : *copies)
      if (copy.under_way)
        fail(StepDefect::written_while_used, instruction,
             fmt::format("the parameters of {} are still on their way", m_layout->units[index(copy.unit)].name));
  m_has_norm = false;
  ++m_updated;
  for (Index& version : m_versions) ++version;
  if (m_layout->mesh.shard > 1) return;
  for (Copy& copy : m_whole) copy.version = m_versions.front();
}

/// Of a server or, as far as it knows, of a worker.
void SimulatedRank::update_unit(Instruction const& instruction) {
  Index const unit = instruction.subject;
  if (is_under_way(unit)) fail(StepDefect::written_while_used, instruction, "the parameters are still on their way");
  bool const serves = m_layout->serves(), has_table = unit == m_layout->unit_of(m_layout->table_group());
  for (GradientCell const& cell : m_cells)
    if (serves && cell.unit == unit) require_complete(instruction, cell);
  if (serves && has_table && m_plan->ties_table() && m_tied == 0)
    fail(StepDefect::undefined_read, instruction, "the two parts of the token table's gradient have not been added");
  if (std::ranges::find(m_updated_units, unit) != m_updated_units.end())
    fail(StepDefect::doubled_contribution, instruction, "the step has updated it before");
  m_updated_units.push_back(unit);
  ++m_versions[index(unit)];
}

/// Whoever has a unit's new parameters has sent its gradients before.
bool SimulatedRank::was_pushed(Instruction const& wait) {
  if (!m_plan->by_priority() || m_layout->serves() || wait.started != Act::reduce) return false;
  Index const unit = cells_of(wait.subject).front()->unit;
  return is_published(unit) && !is_under_way(unit);
}

void SimulatedRank::end_section(Section section, Instruction const& last) {
  auto const require_times = [&](Act act, Index found, Index wanted) {
    if (found != wanted)
      fail(StepDefect::incomplete, last,
           fmt::format("\"{}\" was done {} times until here, must be {}", to_string(act), found, wanted));
  };
  bool const by_unit = m_plan->by_priority();
  bool const ties = m_plan->ties_table() && (m_layout->serves() || !by_unit);
  require_times(Act::tie, m_tied, section == Section::step && ties ? 1 : 0);
  require_times(Act::agree, m_agreed, section == Section::step ? 1 : 0);
  Index const units = by_unit && section == Section::step ? std::ssize(m_layout->units) : 0;
  require_times(Act::norm, m_normed, section == Section::step && !by_unit ? 1 : 0);
  require_times(Act::update, m_updated, section == Section::update ? 1 : 0);
  require_times(Act::update, std::ssize(m_updated_units), units);
  m_updated_units.clear();
  if (section == Section::evaluation && m_plan->has_losses()) require_times(Act::loss, m_losses.front(), loss_pieces());
  m_tied = m_agreed = m_normed = m_updated = 0;
  ++m_sections;
  if (section == Section::update) return;
  m_loaded.assign(m_loaded.size(), false);
  m_activations.drop_all();
  require_no_open_pass(last);
  m_exchanged = {};
  std::ranges::fill(m_losses, 0);
  m_streams.assign(m_streams.size(), {});
}

void SimulatedRank::begin(Instruction const& instruction) {
  switch (instruction.act) {
  case Act::send:
  case Act::receive: return begin_message(instruction);
  case Act::exchange: return begin_exchange(instruction);
  case Act::fetch: return begin_fetch(instruction);
  case Act::gather: return begin_gather(instruction);
  case Act::publish: return begin_publish(instruction);
  default: return begin_reduction(instruction);
  }
}

void SimulatedRank::end(Instruction const& wait) {
  switch (wait.started) {
  case Act::send:
  case Act::receive: return end_message(wait);
  case Act::exchange: return end_exchange(wait);
  case Act::publish: return end_publish(wait);
  case Act::fetch: return end_fetch(wait);
  case Act::gather: return end_gather(wait);
  default: return end_reduction(wait);
  }
}

void SimulatedRank::begin_fetch(Instruction const& instruction) {
  Copy& copy = m_fetched[index(instruction.slot)];
  std::string const before = copy.unit == Instruction::none ? "" : m_layout->units[index(copy.unit)].name;
  if (copy.under_way)
    fail(StepDefect::written_while_used, instruction, fmt::format("the shares of {} are read into this slot", before));
  if (!copy.read)
    fail(StepDefect::never_read, instruction, fmt::format("no gather has taken the shares of {} before it", before));
  copy = {instruction.subject, version(instruction.subject), true, false};
}

void SimulatedRank::end_fetch(Instruction const& instruction) { m_fetched[index(instruction.slot)].under_way = false; }

/// A gather of shares that lie in a file.
void SimulatedRank::take_fetched(Instruction const& instruction) {
  auto const copy = std::ranges::find_if(
      m_fetched, [&](Copy const& one) { return one.unit == instruction.subject && !one.read && !one.under_way; });
  if (copy == m_fetched.end())
    fail(StepDefect::undefined_read, instruction, "its shares were not fetched, or are on their way");
  if (copy->version != version(instruction.subject))
    fail(StepDefect::old_parameters, instruction, "its shares were fetched before the last update");
  copy->read = true;
}

void SimulatedRank::begin_gather(Instruction const& instruction) {
  if (m_plan->offload.parameters == Residence::file) take_fetched(instruction);
  Copy& copy = m_slots[index(instruction.slot)];
  std::string const before = copy.unit == Instruction::none ? "" : m_layout->units[index(copy.unit)].name;
  if (copy.under_way)
    fail(StepDefect::written_while_used, instruction,
         fmt::format("the parameters of {} are on their way into this slot", before));
  if (!copy.read)
    fail(StepDefect::never_read, instruction, fmt::format("no part has read the parameters of {} before it", before));
  copy = {instruction.subject, version(instruction.subject), true, false};
}

void SimulatedRank::end_gather(Instruction const& instruction) { m_slots[index(instruction.slot)].under_way = false; }

bool SimulatedRank::is_published(Index unit) const { return m_whole[index(unit)].version == version(unit); }

void SimulatedRank::begin_publish(Instruction const& instruction) {
  Copy& copy = m_whole[index(instruction.subject)];
  if (copy.under_way) fail(StepDefect::written_while_used, instruction, "the parameters before it are on their way");
  copy = {instruction.subject, version(instruction.subject), true};
}

void SimulatedRank::end_publish(Instruction const& instruction) {
  m_whole[index(instruction.subject)].under_way = false;
}

} // namespace trainstone::Impl
