#include "parallel/program/passes.hpp"

#include "parallel/program/exchange_table.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

Instruction wait_for(Act started, Index subject, Index micro_batch = Instruction::none,
                     Index slot = Instruction::none) {
  return {.act = Act::wait, .subject = subject, .micro_batch = micro_batch, .slot = slot, .started = started};
}

/// The publication of the unit that forward reads as the `place`-th.
Instruction publish(std::vector<Index> const& units, Index place, Index slots) {
  return {.act = Act::publish, .subject = units[at(place)], .slot = place % slots};
}

/// The uses of units by an order: which unit each is of, and to which use an instruction belongs.
struct Uses {
  std::vector<Index> units;
  std::vector<Index> of_instruction; ///< none: it reads no parameters

  Uses(Instructions const& order, PartTable const& parts) {
    for (Instruction const& instruction : order) {
      Index const unit = unit_read_by(instruction, parts);
      if (unit == Instruction::none) {
        of_instruction.push_back(Instruction::none);
        continue;
      }
      if (units.empty() || unit != units.back()) units.push_back(unit);
      of_instruction.push_back(std::ssize(units) - 1);
    }
  }
};

} // namespace

void append_turn(Instructions& order, PartTable const& parts, Index micro_batch, bool trains,
                 ActivationBuffers const& buffers) {
  Instruction loss{.act = Act::loss, .micro_batch = micro_batch, .buffers = buffers};
  Instruction backward{
      .act = Act::backward, .subject = parts.size() - 1, .micro_batch = micro_batch, .buffers = buffers};
  GptOptions const& options = parts.options();
  if (!options.splits_loss()) {
    order.push_back(loss);
    if (trains) order.push_back(backward);
    return;
  }
  auto const append = [&](Instruction instruction, std::optional<Index> chunk) {
    std::vector<PartPiece> const pieces = pieces_of(instruction, parts);
    for (instruction.piece = 0; instruction.piece < std::ssize(pieces); ++instruction.piece)
      if (pieces[at(instruction.piece)].chunk == chunk) order.push_back(instruction);
  };
  for (Index chunk = 0; chunk < options.loss_chunks; ++chunk) {
    append(loss, chunk);
    if (trains) append(backward, chunk);
  }
  if (trains) append(backward, std::nullopt);
}

Instructions training_order(PartTable const& parts, Index micro_batch) {
  Instructions order;
  for (Index part = 0; part < parts.size(); ++part)
    order.push_back({.act = Act::forward, .subject = part, .micro_batch = micro_batch});
  append_turn(order, parts, micro_batch, true);
  for (Index part = parts.size() - 2; part >= 0; --part)
    order.push_back({.act = Act::backward, .subject = part, .micro_batch = micro_batch});
  return order;
}

Instructions evaluation_order(PartTable const& parts, Index micro_batch) {
  Instructions order;
  for (Index part = 0; part < parts.size(); ++part)
    order.push_back({.act = Act::forward, .subject = part, .micro_batch = micro_batch});
  append_turn(order, parts, micro_batch, false);
  return order;
}

Index unit_read_by(Instruction const& instruction, PartTable const& parts) {
  bool const backward = instruction.act == Act::backward;
  if (instruction.act == Act::loss && parts.options().splits_loss()) return parts.unit(parts.size() - 1); // the head's
  if (instruction.act != Act::forward && instruction.act != Act::recompute && !backward) return Instruction::none;
  bool const embeds = parts[instruction.subject].kind == PartKind::embed;
  return backward && embeds ? Instruction::none : parts.unit(instruction.subject);
}

std::vector<Index> units_by_use(PartTable const& parts) {
  std::vector<Index> units;
  for (Index part = 0; part < parts.size(); ++part)
    if (std::ranges::find(units, parts.unit(part)) == units.end()) units.push_back(parts.unit(part));
  return units;
}

Instructions with_recomputation(Instructions const& order, PartTable const& parts) {
  Instructions out;
  Instruction holder{.act = Act::forward}; // the part that has left its block's activations in the shared memory
  for (Instruction const& instruction : order) {
    bool const computes = instruction.act == Act::forward || instruction.act == Act::backward;
    Part const part = computes ? parts[instruction.subject] : Part{PartKind::embed};
    Recompute const how = parts.recompute(part);
    bool const attends = part.kind == PartKind::attention;
    Index const attention = instruction.subject - (attends ? 0 : 1); // of the same block
    bool const holds = holder.subject == attention && holder.micro_batch == instruction.micro_batch;
    bool const begins = how == Recompute::full ? part.kind == PartKind::mlp : attends;
    if (how != Recompute::none && instruction.act == Act::backward && begins && !holds) {
      holder = {.act = Act::recompute,
                .subject = attention,
                .micro_batch = instruction.micro_batch,
                .buffers = instruction.buffers};
      out.push_back(holder);
      if (how == Recompute::full) {
        out.push_back(holder);
        ++out.back().subject;
      }
    }
    if (how != Recompute::none && instruction.act == Act::forward) {
      holder.subject = attention;
      holder.micro_batch = instruction.micro_batch;
    }
    out.push_back(instruction);
  }
  return out;
}

Instructions with_exchanges(Instructions const& order, ShardPlan const& plan) {
  if (!plan.parts.options().slices.have_sharers()) return order;
  bool const alone = !plan.layout.mesh.shares_layers(); // a measurement
  Instructions out;
  ExchangeTable table(plan.parts);
  GptOptions const& options = plan.parts.options();
  auto const append = [&](Instruction one, SliceExchange exchange, Range const& chunks) {
    one.subject = static_cast<Index>(exchange);
    for (Index number = chunks.begin; number < chunks.end && !alone; ++number) {
      if (chunks_of(exchange, options) > 1) one.slot = number;
      out.push_back(one);
    }
  };
  for (Instruction one : order) {
    if (!computes(one.act)) {
      out.push_back(one);
      continue;
    }
    std::vector<PieceExchanges> const& exchanges = table.of(one);
    Range const run = pieces_run(one, plan.parts);
    for (Index piece = run.begin; piece < run.end; ++piece) {
      PieceExchanges const& around = exchanges[at(piece)];
      Instruction const start{.act = Act::exchange, .micro_batch = one.micro_batch},
          wait = wait_for(Act::exchange, Instruction::none, one.micro_batch);
      if (plan.overlap)
        for (SliceExchange const exchange : around.needs) append(wait, exchange, {0, chunks_of(exchange, options)});
      if (exchanges.size() > 1) one.piece = piece;
      out.push_back(one);
      for (SliceExchange const exchange : around.starts) {
        Range const chunks = started_chunks(exchange, around, options);
        append(start, exchange, chunks);
        if (!plan.overlap) append(wait, exchange, chunks);
      }
    }
  }
  return out;
}

Instructions with_gathers(Instructions const& order, ShardPlan const& plan) {
  Uses const uses(order, plan.parts);
  Index const slots = plan.gathers.in_flight();
  Instructions out;
  Index started = 0, waited = 0, fetched = 0;
  auto const number_of_uses = static_cast<Index>(std::ssize(uses.units));
  auto const fetch_up_to = [&](Index end) {
    for (; plan.offload.parameters == Residence::file && fetched < std::min(end, number_of_uses); ++fetched)
      out.push_back({.act = Act::fetch, .subject = uses.units[at(fetched)], .slot = fetched % fetch_slots});
  };
  auto const start_up_to = [&](Index end) {
    for (; started < std::min(end, number_of_uses); ++started) {
      Index const unit = uses.units[at(started)];
      fetch_up_to(started + 1);
      if (fetched > 0) out.push_back(wait_for(Act::fetch, unit, Instruction::none, started % fetch_slots));
      out.push_back({.act = Act::gather, .subject = unit, .slot = started % slots});
      if (plan.overlap) fetch_up_to(started + fetch_slots);
    }
  };
  if (plan.overlap) start_up_to(slots);
  for (std::size_t i = 0; i < order.size(); ++i) {
    Instruction instruction = order[i];
    Index const use = uses.of_instruction[i];
    if (use != Instruction::none) {
      instruction.slot = use % slots;
      if (use == waited) {
        start_up_to(use + 1);
        out.push_back(wait_for(Act::gather, uses.units[at(use)], Instruction::none, use % slots));
        ++waited;
        if (plan.overlap) start_up_to(use + slots);
      }
    }
    out.push_back(instruction);
  }
  return out;
}

Instructions with_publication(Instructions const& order, ShardPlan const& plan) {
  std::vector<Index> const by_use = units_by_use(plan.parts);
  Index const units = std::ssize(by_use), slots = plan.gathers.in_flight();
  Instructions out;
  Index waited = 0, started = std::min(slots, units); // the update has started these
  auto const publish_up_to = [&](Index end) {
    for (; started < std::min(end, units); ++started) out.push_back(publish(by_use, started, slots));
  };
  for (Instruction const& instruction : order) {
    if (waited < units && unit_read_by(instruction, plan.parts) == by_use[at(waited)]) {
      publish_up_to(waited + 1);
      out.push_back(wait_for(Act::publish, by_use[at(waited)], Instruction::none, waited % slots));
      ++waited;
      publish_up_to(waited + slots - 1);
    }
    out.push_back(instruction);
  }
  return out;
}

Instructions publication_after_update(ShardPlan const& plan) {
  std::vector<Index> const by_use = units_by_use(plan.parts);
  Index const units = std::ssize(by_use), slots = plan.gathers.in_flight();
  Instructions out;
  for (Index place = 0; place < (plan.overlap ? std::min(slots, units) : units); ++place) {
    out.push_back(publish(by_use, place, slots));
    if (!plan.overlap) out.push_back(wait_for(Act::publish, by_use[at(place)], Instruction::none, place % slots));
  }
  return out;
}

Instructions GradientPass::operator()(Instructions const& order) {
  Instructions out;
  for (Instruction const& instruction : order) {
    if (instruction.act != Act::backward) {
      out.push_back(instruction);
      continue;
    }
    before_backward(instruction, out);
    add_backward(instruction, out);
  }
  return out;
}

Instructions GradientPass::finish() {
  Instructions out;
  for (InFlight const& reduction : m_held) begin(reduction, out);
  m_held.clear();
  if (m_reductions->by_priority) return out; // the next step waits
  meet_across_replicas(std::ssize(m_in_flight), out);
  while (!m_in_flight.empty()) retire_oldest(out);
  if (m_plan->ties_table()) out.push_back({.act = Act::tie});
  return out;
}

/// Fresh gradients go into memory where gradients of other runs or of earlier micro-batches may still be reduced.
void GradientPass::before_backward(Instruction const& backward, Instructions& out) {
  if (!m_reductions->fresh_gradients_apart) return;
  Index const run = m_reductions->buckets.run_of_unit(m_plan->parts.unit(backward.subject));
  auto const is_there = [&](InFlight const& work) {
    bool const beside_it = work.run == run && work.micro_batch == backward.micro_batch; // buckets that are complete
    return !beside_it && m_reductions->share_memory(run, work.run);
  };
  while (std::ranges::any_of(m_in_flight, is_there)) retire_oldest(out);
}

void GradientPass::add_backward(Instruction backward, Instructions& out) {
  Index const unit = m_plan->parts.unit(backward.subject), micro_batch = backward.micro_batch;
  std::vector<BackwardPiece> const& pieces = m_plan->parts.backward(backward.subject);
  bool const completes_nothing = pieces.back().complete_from == m_plan->layout.units[at(unit)].padded;
  if (completes_nothing) return out.push_back(backward);
  if (backward.piece != Instruction::none) { // the order has it piece by piece
    out.push_back(backward);
    return after_piece(unit, pieces[at(backward.piece)].complete_from, micro_batch, out);
  }
  Index const last = std::ssize(pieces) - 1;
  bool const starts_inside =
      last > 0 && complete_buckets(unit, pieces[at(last - 1)].complete_from, micro_batch) > m_started;
  for (Index piece = starts_inside ? 0 : last; piece <= last; ++piece) {
    if (starts_inside) backward.piece = piece;
    out.push_back(backward);
    after_piece(unit, pieces[at(piece)].complete_from, micro_batch, out);
  }
}

/// The gradients of the unit's elements from `complete_from` on are there.
void GradientPass::after_piece(Index unit, Index complete_from, Index micro_batch, Instructions& out) {
  bool const all = complete_from == 0;
  if (all && m_reductions->folds_in_place())
    out.push_back({.act = Act::fold, .subject = unit, .micro_batch = micro_batch});
  Index const complete = complete_buckets(unit, complete_from, micro_batch);
  if (complete == 0) return;
  if (m_started == 0) meet_across_replicas(std::ssize(m_in_flight), out); // those of other units
  Index const run = m_reductions->buckets.run_of_unit(unit);
  Index const first = m_buckets == Buckets::all ? m_reductions->buckets.runs[at(run)].first_bucket : run;
  for (; m_started < complete; ++m_started) start(first + m_started, run, micro_batch, out);
  if (!all) return;
  m_started = 0;
  while (!m_plan->overlap && !m_in_flight.empty()) retire_oldest(out);
}

/// How many buckets of the unit's run can be reduced then: all of them, or slices of the unit that are complete.
Index GradientPass::complete_buckets(Index unit, Index complete_from, Index micro_batch) const {
  BucketRun const& run = m_reductions->buckets.runs[at(m_reductions->buckets.run_of_unit(unit))];
  bool const reduces = m_reductions->reduce_each || is_last(micro_batch);
  if (!reduces || unit != run.completed_by) return 0;
  if (complete_from == 0) return m_buckets == Buckets::all ? run.buckets : 1;
  bool const completes = complete_from < m_plan->layout.units[at(unit)].padded;
  bool const early = completes && m_plan->overlap && !m_reductions->after_backward &&
                     !m_reductions->collectives.empty() && run.share > 0 && !m_reductions->folds_in_place();
  if (!early || m_buckets == Buckets::one_per_run) return 0;
  Index complete = 0;
  while (complete < run.buckets && m_reductions->slice_begin(run, complete) >= complete_from) ++complete;
  return complete;
}

void GradientPass::start(Index bucket, Index run, Index micro_batch, Instructions& out) {
  if (m_reductions->collectives.empty()) { // one rank
    if (m_reductions->fresh_gradients_apart)
      out.push_back({.act = Act::accumulate, .subject = bucket, .micro_batch = micro_batch});
    return;
  }
  if (m_reductions->fresh_gradients_apart) {
    auto const has_scratch = [&](InFlight const& work) { return m_reductions->share_scratch(bucket, work.bucket); };
    while (std::ranges::any_of(m_in_flight, has_scratch)) retire_oldest(out);
    // of the buckets in flight, the younger half is reduced, and the other half meets across replicas
    meet_across_replicas(std::ssize(m_in_flight) + 1 - (m_reductions->in_flight + 1) / 2, out);
  }
  InFlight const reduction{bucket, run, micro_batch, Stage::reduction};
  if (m_reductions->after_backward)
    m_held.push_back(reduction);
  else
    begin(reduction, out);
}

void GradientPass::begin(InFlight const& reduction, Instructions& out) {
  out.push_back({.act = Act::reduce,
                 .subject = reduction.bucket,
                 .micro_batch = reduction.micro_batch,
                 .slot = reduction.bucket % m_reductions->in_flight});
  m_in_flight.push_back(reduction);
}

/// So many of the oldest buckets go on from their reduction to the sums, if sums meet across replicas.
void GradientPass::meet_across_replicas(Index oldest, Instructions& out) {
  for (Index i = 0; i < oldest; ++i)
    if (InFlight& work = m_in_flight[at(i)]; work.stage == Stage::reduction && meets_across_replicas(work))
      advance(work, out);
}

bool GradientPass::meets_across_replicas(InFlight const& work) const {
  return m_reductions->across_on_sums && is_last(work.micro_batch);
}

/// From its reduction on to the sums.
void GradientPass::advance(InFlight& work, Instructions& out) const {
  Index const slot = work.bucket % m_reductions->in_flight;
  out.push_back(wait_for(Act::reduce, work.bucket, work.micro_batch, slot));
  if (m_reductions->fresh_gradients_apart)
    out.push_back({.act = Act::accumulate, .subject = work.bucket, .micro_batch = work.micro_batch});
  if (meets_across_replicas(work))
    out.push_back({.act = Act::reduce_sums, .subject = work.bucket, .micro_batch = work.micro_batch, .slot = slot});
  work.stage = Stage::sums;
}

void GradientPass::retire_oldest(Instructions& out) {
  InFlight& oldest = m_in_flight.front();
  if (oldest.stage == Stage::reduction) advance(oldest, out);
  if (meets_across_replicas(oldest))
    out.push_back(
        wait_for(Act::reduce_sums, oldest.bucket, oldest.micro_batch, oldest.bucket % m_reductions->in_flight));
  m_in_flight.pop_front();
}

} // namespace trainstone
