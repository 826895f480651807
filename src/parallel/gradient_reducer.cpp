#include "parallel/gradient_reducer.hpp"

#include "kernels/accumulate.hpp"
#include "parallel/step_order.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

} // namespace

GradientReducer::GradientReducer(ExecutionSpace const& exec, ExecutionSpace const& communication,
                                 MeshCommunicators& communicators, ExecutionQueue& queue, ShardPlan const& plan,
                                 Memory memory)
    : m_exec(exec), m_queue(&queue), m_plan(&plan), m_memory(std::move(memory)) {
  m_fresh_steps = static_cast<std::size_t>(
      std::ranges::count_if(plan.reduction, [&](PlannedCollective const& step) { return !plan.is_of_sums(step); }));
  prepare_executions(communication, communicators);
}

void GradientReducer::prepare_executions(ExecutionSpace const& communication, MeshCommunicators& communicators) {
  for (Index b = 0; b < m_plan->buckets.buckets(); ++b) {
    m_buckets.push_back(m_plan->buckets.bucket(b));
    Bucket const& bucket = m_buckets.back();
    Range const run = m_plan->run_memory(bucket.run);
    BucketPart const& first = bucket.parts.front();
    for (PlannedCollective const& step : m_plan->reduction_of(bucket)) {
      bool const of_sums = m_plan->is_of_sums(step);
      StoredVector const data = of_sums ? m_memory.sums->part(m_plan->share_offset(first.group) + first.of_share.begin,
                                                              bucket.share_elements())
                                        : m_memory.fresh->part(run.begin, run.size());
      m_executions.emplace_back(communication, communicators.of(step.axis),
                                schedule_of(step, m_plan->mesh, m_plan->rank), Operation::sum, data,
                                m_memory.scratch[at(b % m_plan->in_flight)],
                                ExecutionOptions{.segment = (of_sums ? m_memory.sums : m_memory.fresh)->segment(),
                                                 .pieces = m_plan->pieces_of(bucket, step),
                                                 .staging = m_memory.staging[at(b % m_plan->in_flight)],
                                                 .caller = &m_exec});
    }
  }
}

BucketGroup const& GradientReducer::run_of(Index bucket) const {
  return m_plan->buckets.runs[at(m_buckets[at(bucket)].run)];
}

GradientTarget GradientReducer::target(Index group, Index turn) {
  Index const run = run_of_group(*m_plan, group);
  ParameterGroup const& entry = m_plan->groups[at(group)];
  Range const memory = m_plan->run_memory(run);
  Index const begin = memory.begin + entry.offset - m_plan->buckets.runs[at(run)].memory.begin;
  StoredVector const gradients = m_memory.fresh->part(begin, entry.padded);
  if (m_plan->fresh_gradients_apart()) {
    finish_run(run);
    // other groups have been here, and backward leaves the padding alone
    if (entry.padded > entry.size) set_to_zero(m_exec, gradients.part(entry.size, entry.padded - entry.size));
  }
  bool const is_sum = !m_plan->fresh_gradients_apart() && !m_plan->ordered && turn > 0;
  return {gradients, is_sum ? Write::add : Write::overwrite};
}

/// Waits for what is in flight in the memory of a run.
void GradientReducer::finish_run(Index run) {
  auto const is_there = [&](Work const& work) { return share_memory(*m_plan, run, m_buckets[at(work.bucket)].run); };
  while (std::ranges::any_of(m_in_flight, is_there)) finish_oldest();
}

void GradientReducer::finish_oldest() {
  go_on(m_in_flight.front(), Wait::yes);
  m_in_flight.pop_front();
  start_due();
}

void GradientReducer::completed_from(Index group, Index begin, Index turn) {
  BucketGroup const& run = m_plan->buckets.runs[at(run_of_group(*m_plan, group))];
  // what is folded is so as a whole, and not before it is complete
  if (run.share == 0 || !reduces_after(*m_plan, turn) || !m_plan->overlap || m_plan->folds_in_place()) return;
  // a slice of every owner's share: that of the first one lies first
  for (; m_begun < run.buckets && run.slice_of_share(m_begun).begin >= begin; ++m_begun)
    make_due(run.first_bucket + m_begun, turn);
}

void GradientReducer::completed(Index group, Index turn) {
  ParameterGroup const& entry = m_plan->groups[at(group)];
  if (m_plan->folds_in_place()) fold(m_memory.fresh->part(entry.offset, entry.padded), entry.offset, turn);
  std::optional<Index> const number = run_to_reduce(*m_plan, group, turn);
  if (!number) return;
  BucketGroup const& run = m_plan->buckets.runs[at(*number)];
  for (; m_begun < run.buckets; ++m_begun) make_due(run.first_bucket + m_begun, turn);
  m_begun = 0;
  if (!m_plan->overlap) finish();
}

void GradientReducer::make_due(Index bucket, Index turn) {
  m_due.push_back({bucket, turn, 0, InstanceEvent(m_exec)});
  start_due();
  // All ranks must start collectives in the same order. Other runs reuse the slots of fresh gradients, and gathers
  // start between these reductions. So this waits here; timing must not decide.
  if (m_plan->fresh_gradients_apart())
    while (!m_due.empty()) finish_oldest();
}

/// As many are in flight as there are scratch vectors: each is one bucket's at a time.
bool GradientReducer::has_scratch(Index bucket) const {
  return std::ranges::none_of(m_in_flight,
                              [&](Work const& work) { return share_scratch(*m_plan, work.bucket, bucket); });
}

void GradientReducer::start_due() {
  for (; !m_due.empty() && has_scratch(m_due.front().bucket); m_due.pop_front())
    begin_step(m_in_flight.emplace_back(m_due.front()));
}

/// How many collectives follow one another for a bucket of this turn: sums meet after the last one.
std::size_t GradientReducer::steps(Index turn) const {
  return last_turn(turn) ? m_plan->reduction.size() : m_fresh_steps;
}

Execution& GradientReducer::execution(Work const& work) {
  return m_executions[at(work.bucket) * m_plan->reduction.size() + work.step];
}

void GradientReducer::begin_step(Work const& work) {
  if (work.step == m_fresh_steps) add_up(work);
  if (work.step == steps(work.turn)) return;
  m_queue->start(execution(work), work.step < m_fresh_steps ? std::optional(work.complete) : std::nullopt);
}

bool GradientReducer::ended(Execution const& execution, Wait wait) {
  if (wait == Wait::yes) m_queue->wait(execution);
  return !execution.in_flight();
}

/// Only of the oldest: whatever the timing, all ranks then start the later steps in the same order.
bool GradientReducer::go_on(Work& work, Wait wait) {
  while (work.step < steps(work.turn)) {
    if (!ended(execution(work), wait)) return false;
    ++work.step;
    begin_step(work);
  }
  return true;
}

/// What was reduced becomes part of the sums, if these are elsewhere.
void GradientReducer::add_up(Work const& work) {
  if (!m_plan->fresh_gradients_apart()) return;
  Range const memory = m_plan->run_memory(m_buckets[at(work.bucket)].run);
  Index const run_begin = run_of(work.bucket).memory.begin;
  for (BucketPart const& part : m_buckets[at(work.bucket)].parts) {
    if (m_plan->share(part.group).empty()) continue; // another rank's
    Index const share = m_plan->groups[at(part.group)].offset + m_plan->share(part.group).begin;
    Index const size = part.of_share.size();
    StoredVector const fresh = m_memory.fresh->part(memory.begin + share - run_begin + part.of_share.begin, size);
    Index const begin = (m_plan->sharding.gradients ? m_plan->share_offset(part.group) : share) + part.of_share.begin;
    if (m_plan->ordered) {
      fold(fresh, begin, work.turn);
    } else {
      accumulate(m_exec, work.turn == 0 ? Write::overwrite : Write::add, fresh, m_memory.sums->part(begin, size));
    }
  }
}

/// A binary counter over turns: waiting sum k holds 2^k micro-batches. The last turn leaves the sum of all.
/// \param[in] begin of the sum in a vector of sums
void GradientReducer::fold(StoredVector value, Index begin, Index turn) {
  auto const waiting = [&](int level) {
    return m_memory.waiting[static_cast<std::size_t>(level)].part(begin, value.size);
  };
  int const complete = std::countr_one(static_cast<std::uint64_t>(turn));
  for (int level = 0; level < complete; ++level) accumulate(m_exec, Write::add, waiting(level), value);
  if (!last_turn(turn)) {
    accumulate(m_exec, Write::overwrite, value, waiting(complete));
  } else if (m_plan->fresh_gradients_apart()) {
    accumulate(m_exec, Write::overwrite, value, m_memory.sums->part(begin, value.size));
  }
}

void GradientReducer::advance() {
  while (!m_in_flight.empty() && go_on(m_in_flight.front(), Wait::no)) {
    m_in_flight.pop_front();
    start_due();
  }
}

void GradientReducer::finish() {
  while (!m_in_flight.empty()) finish_oldest();
}

StoredVector GradientReducer::share(Index group) const {
  return m_memory.sums->part(m_plan->share_begin(group, m_plan->sharding.gradients), m_plan->share(group).size());
}

} // namespace trainstone
