#include "parallel/program/passes.hpp"

#include "parallel/step_order.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

Instruction wait_for(Act started, Index subject, Index micro_batch = Instruction::none,
                     Index slot = Instruction::none) {
  return {.act = Act::wait, .subject = subject, .micro_batch = micro_batch, .slot = slot, .started = started};
}

/// The uses of groups by an order: which group each is of, and to which use an instruction belongs.
struct Uses {
  std::vector<Index> groups;
  std::vector<Index> of_instruction; ///< none: it reads no parameters

  Uses(Instructions const& order, Index units) {
    Index last_unit = Instruction::none;
    for (Instruction const& instruction : order) {
      Index const group = group_read_by(instruction, units);
      if (group == Instruction::none) {
        of_instruction.push_back(Instruction::none);
        continue;
      }
      if (instruction.subject != last_unit) groups.push_back(group);
      last_unit = instruction.subject;
      of_instruction.push_back(std::ssize(groups) - 1);
    }
  }
};

} // namespace

Instructions training_order(Index units, Index micro_batch) {
  Instructions order = evaluation_order(units, micro_batch);
  for (Index unit = units - 1; unit >= 0; --unit)
    order.push_back({.act = Act::backward, .subject = unit, .micro_batch = micro_batch});
  return order;
}

Instructions evaluation_order(Index units, Index micro_batch) {
  Instructions order;
  for (Index unit = 0; unit < units; ++unit)
    order.push_back({.act = Act::forward, .subject = unit, .micro_batch = micro_batch});
  order.push_back({.act = Act::loss, .micro_batch = micro_batch});
  return order;
}

Index group_read_by(Instruction const& instruction, Index units) {
  bool const forward = instruction.act == Act::forward, backward = instruction.act == Act::backward;
  if (!forward && !(backward && instruction.subject > 0)) return Instruction::none;
  return group_of_unit(instruction.subject, units);
}

Instructions with_gathers(Instructions const& order, ShardPlan const& plan) {
  Uses const uses(order, number_of_units(plan));
  Index const slots = plan.prefetch + 1;
  Instructions out;
  Index started = 0, waited = 0;
  auto const start_up_to = [&](Index end) {
    for (; started < std::min(end, static_cast<Index>(std::ssize(uses.groups))); ++started)
      out.push_back({.act = Act::gather, .subject = uses.groups[at(started)], .slot = started % slots});
  };
  if (plan.overlap) start_up_to(slots);
  for (std::size_t i = 0; i < order.size(); ++i) {
    Instruction instruction = order[i];
    Index const use = uses.of_instruction[i];
    if (use != Instruction::none) {
      instruction.slot = use % slots;
      if (use == waited) {
        start_up_to(use + 1);
        out.push_back(wait_for(Act::gather, uses.groups[at(use)], Instruction::none, use % slots));
        ++waited;
        if (plan.overlap) start_up_to(use + slots);
      }
    }
    out.push_back(instruction);
  }
  return out;
}

Instructions with_publication(Instructions const& order, ShardPlan const& plan) {
  Index const groups = std::ssize(plan.groups), slots = plan.prefetch + 1;
  Instructions out;
  Index waited = 0, started = std::min(slots, groups); // the update has started these
  auto const publish_up_to = [&](Index end) {
    for (; started < std::min(end, groups); ++started)
      out.push_back({.act = Act::publish, .subject = started, .slot = started % slots});
  };
  for (Instruction const& instruction : order) {
    if (Index const group = group_read_by(instruction, number_of_units(plan)); group == waited && waited < groups) {
      publish_up_to(group + 1);
      out.push_back(wait_for(Act::publish, group, Instruction::none, group % slots));
      ++waited;
      publish_up_to(group + slots);
    }
    out.push_back(instruction);
  }
  return out;
}

Instructions publication_after_update(ShardPlan const& plan) {
  Index const groups = std::ssize(plan.groups), slots = plan.prefetch + 1;
  Instructions out;
  for (Index group = 0; group < (plan.overlap ? std::min(slots, groups) : groups); ++group) {
    out.push_back({.act = Act::publish, .subject = group, .slot = group % slots});
    if (!plan.overlap) out.push_back(wait_for(Act::publish, group, Instruction::none, group % slots));
  }
  return out;
}

Instructions GradientPass::operator()(Instructions const& order) {
  Index const units = number_of_units(*m_plan);
  Instructions out;
  for (Instruction const& instruction : order) {
    bool const backward = instruction.act == Act::backward;
    Index const unit = instruction.subject, group = group_of_unit(unit, units);
    if (backward) before_backward(group, out);
    out.push_back(instruction);
    if (backward && unit != units - 1) after_backward(group, instruction.micro_batch, out); // head leaves root to embed
  }
  return out;
}

Instructions GradientPass::finish() {
  Instructions out;
  meet_across_replicas(std::ssize(m_in_flight), out);
  while (!m_in_flight.empty()) retire_oldest(out);
  return out;
}

/// Fresh gradients go where those of other runs may still be reduced.
void GradientPass::before_backward(Index group, Instructions& out) {
  if (!m_plan->fresh_gradients_apart()) return;
  Index const run = run_of_group(*m_plan, group);
  auto const is_there = [&](InFlight const& work) { return share_memory(*m_plan, run, work.run); };
  while (std::ranges::any_of(m_in_flight, is_there)) retire_oldest(out);
}

void GradientPass::after_backward(Index group, Index micro_batch, Instructions& out) {
  if (m_plan->folds_in_place()) out.push_back({.act = Act::fold, .subject = group, .micro_batch = micro_batch});
  Index const number = run_of_group(*m_plan, group);
  BucketGroup const& run = m_plan->buckets.runs[at(number)];
  bool const reduces = m_plan->reduce_each || is_last(micro_batch);
  if (!reduces || group != run.first_group) return;   // the group that completes the run
  meet_across_replicas(std::ssize(m_in_flight), out); // those of earlier units
  bool const all = m_buckets == Buckets::all;
  Index const first = all ? run.first_bucket : number, end = first + (all ? run.buckets : 1);
  for (Index bucket = first; bucket < end; ++bucket) start(bucket, number, micro_batch, out);
  while (!m_plan->overlap && !m_in_flight.empty()) retire_oldest(out);
}

void GradientPass::start(Index bucket, Index run, Index micro_batch, Instructions& out) {
  if (m_plan->reduction.empty()) { // one rank
    if (m_plan->fresh_gradients_apart())
      out.push_back({.act = Act::accumulate, .subject = bucket, .micro_batch = micro_batch});
    return;
  }
  if (m_plan->fresh_gradients_apart()) {
    auto const has_scratch = [&](InFlight const& work) { return share_scratch(*m_plan, bucket, work.bucket); };
    while (std::ranges::any_of(m_in_flight, has_scratch)) retire_oldest(out);
    // of the buckets in flight, the younger half is reduced, and the other half meets across replicas
    meet_across_replicas(std::ssize(m_in_flight) + 1 - (m_plan->in_flight + 1) / 2, out);
  }
  out.push_back(
      {.act = Act::reduce, .subject = bucket, .micro_batch = micro_batch, .slot = bucket % m_plan->in_flight});
  m_in_flight.push_back({bucket, run, micro_batch, Stage::reduction});
}

/// So many of the oldest buckets go on from their reduction to the sums, if sums meet across replicas.
void GradientPass::meet_across_replicas(Index oldest, Instructions& out) {
  for (Index i = 0; i < oldest; ++i)
    if (InFlight& work = m_in_flight[at(i)]; work.stage == Stage::reduction && meets_across_replicas(work))
      advance(work, out);
}

bool GradientPass::meets_across_replicas(InFlight const& work) const {
  return m_plan->across_on_sums() && is_last(work.micro_batch);
}

/// From its reduction on to the sums.
void GradientPass::advance(InFlight& work, Instructions& out) const {
  Index const slot = work.bucket % m_plan->in_flight;
  out.push_back(wait_for(Act::reduce, work.bucket, work.micro_batch, slot));
  if (m_plan->fresh_gradients_apart())
    out.push_back({.act = Act::accumulate, .subject = work.bucket, .micro_batch = work.micro_batch});
  if (meets_across_replicas(work))
    out.push_back({.act = Act::reduce_sums, .subject = work.bucket, .micro_batch = work.micro_batch, .slot = slot});
  work.stage = Stage::sums;
}

void GradientPass::retire_oldest(Instructions& out) {
  InFlight& oldest = m_in_flight.front();
  if (oldest.stage == Stage::reduction) advance(oldest, out);
  if (meets_across_replicas(oldest))
    out.push_back(wait_for(Act::reduce_sums, oldest.bucket, oldest.micro_batch, oldest.bucket % m_plan->in_flight));
  m_in_flight.pop_front();
}

} // namespace trainstone
