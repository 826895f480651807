#include "parallel/engine/gradient_reducer.hpp"

#include "kernels/accumulate.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

} // namespace

GradientReducer::GradientReducer(ExecutionSpace const& exec, ExecutionSpace const& communication,
                                 MeshCommunicators& communicators, ExecutionQueue& queue,
                                 ReductionPlan const& reductions, StateLayout const& layout, Memory memory)
    : m_exec(exec), m_queue(&queue), m_reductions(&reductions), m_layout(&layout), m_memory(std::move(memory)) {
  m_fresh_steps = static_cast<std::size_t>(std::ranges::count_if(
      reductions.collectives, [&](PlannedCollective const& step) { return !reductions.is_of_sums(step); }));
  prepare_executions(communication, communicators);
}

void GradientReducer::prepare_executions(ExecutionSpace const& communication, MeshCommunicators& communicators) {
  for (Index b = 0; b < m_reductions->buckets.buckets(); ++b) {
    m_buckets.push_back(m_reductions->buckets.bucket(b));
    Bucket const& bucket = m_buckets.back();
    Range const run = m_reductions->run_memory(bucket.run);
    BucketPart const& first = bucket.parts.front();
    for (PlannedCollective const& step : m_reductions->reduction_of(bucket, *m_layout)) {
      bool const of_sums = m_reductions->is_of_sums(step);
      StoredVector const data =
          of_sums ? m_memory.sums->part(place_of_share(m_reductions->gradients.gradients[at(first.gradient)]).begin +
                                            first.of_share.begin,
                                        bucket.share_elements())
                  : m_memory.fresh->part(run.begin, run.size());
      m_executions.emplace_back(communication, communicators.of(step.axis),
                                schedule_of(step, m_layout->mesh, m_layout->rank), Operation::sum, data,
                                m_memory.scratch[at(b % m_reductions->in_flight)],
                                ExecutionOptions{.segment = (of_sums ? m_memory.sums : m_memory.fresh)->segment(),
                                                 .pieces = m_reductions->pieces_of(bucket, step, *m_layout),
                                                 .staging = m_memory.staging[at(b % m_reductions->in_flight)],
                                                 .caller = &m_exec,
                                                 .any_order = m_reductions->by_priority});
    }
  }
  if (m_reductions->by_priority) m_pushed.resize(m_buckets.size(), false);
}

GradientTarget GradientReducer::target(Index unit, Index micro_batch, bool begins) {
  GradientLayout const& layout = m_reductions->gradients;
  Index const run = m_reductions->buckets.run_of_unit(unit);
  auto const [first, last, memory] = layout.units[at(unit)];
  auto const memory_of = [&](Index gradient, Index size) {
    return m_memory.fresh->part(m_reductions->fresh_offset(gradient, run), size);
  };
  bool const is_sum = m_reductions->adds_in_place() && micro_batch > 0;
  GradientTarget target{memory_of(first, m_layout->units[at(unit)].padded), is_sum ? Write::add : Write::overwrite};
  for (Index g = first; g <= last; ++g) {
    ParameterGroup const& group = m_layout->groups[at(layout.gradients[at(g)].group)];
    StoredVector const gradient = memory_of(g, group.padded);
    bool const alone = m_reductions->looks_up_alone && group.number == token_table_group;
    if (layout.gradients[at(g)].looked_up) target.looked_up = gradient;
    if (layout.gradients[at(g)].looked_up || alone) {
      if (begins && !(alone && is_sum)) set_to_zero(m_exec, gradient); // embed adds to it
    } else if (begins && m_reductions->fresh_gradients_apart) {
      // Other units have been here, and backward leaves the padding alone. Later a reduction may be using it.
      for (Range const& padding : group.padding()) set_to_zero(m_exec, gradient.part(padding.begin, padding.size()));
    }
  }
  return target;
}

void GradientReducer::fold(Index unit, Index micro_batch) {
  Range const memory = m_reductions->gradients.units[at(unit)].memory;
  fold(m_memory.fresh->part(memory.begin, memory.size()), memory.begin, micro_batch);
}

void GradientReducer::reduce(Index bucket) {
  TRAINSTONE_REQUIRE(!m_reductions->fresh_gradients_apart || has_scratch(bucket), "the scratch of bucket {} is in use",
                     bucket);
  if (m_reductions->by_priority) return start_by_priority(bucket);
  m_due.push_back({bucket, InstanceEvent(m_exec)});
  start_due();
}

/// A server is ready for all of them at once.
void GradientReducer::start_by_priority(Index bucket) {
  m_pushed[at(bucket)] = true;
  InstanceEvent const complete(m_exec);
  if (m_layout->serves()) return m_queue->start(execution(bucket, 0), complete);
  Index const unit = m_reductions->buckets.runs[at(m_buckets[at(bucket)].run)].first_unit;
  m_queue->start_in_turn(execution(bucket, 0), complete, unit * std::ssize(m_buckets) + bucket);
}

bool GradientReducer::is_reduced(Index bucket) { return m_pushed[at(bucket)] && !m_queue->has(execution(bucket, 0)); }

/// As many are in flight as there are scratch vectors: each is one bucket's at a time.
bool GradientReducer::has_scratch(Index bucket) const {
  auto const uses_it = [&](Index other) { return m_reductions->share_scratch(other, bucket); };
  return std::ranges::none_of(m_in_flight, uses_it, &Work::bucket) && std::ranges::none_of(m_sums, uses_it);
}

void GradientReducer::reduce_sums(Index bucket) {
  TRAINSTONE_REQUIRE(has_scratch(bucket), "the scratch of bucket {} is in use", bucket);
  m_sums.push_back(bucket);
  m_queue->start(execution(bucket, m_fresh_steps));
}

void GradientReducer::wait_sums(Index bucket) {
  m_queue->wait(execution(bucket, m_fresh_steps));
  std::erase(m_sums, bucket);
}

void GradientReducer::start_due() {
  for (; !m_due.empty() && has_scratch(m_due.front().bucket); m_due.pop_front()) {
    Work const& work = m_in_flight.emplace_back(m_due.front());
    m_queue->start(execution(work.bucket, 0), work.complete);
  }
}

Execution& GradientReducer::execution(Index bucket, std::size_t step) {
  return m_executions[at(bucket) * m_reductions->collectives.size() + step];
}

/// Only of the oldest: whatever the timing, all ranks then start the later steps in the same order.
bool GradientReducer::go_on(Work& work, Wait wait) {
  for (;;) {
    Execution const& current = execution(work.bucket, work.step);
    if (wait == Wait::yes) m_queue->wait(current);
    if (current.in_flight()) return false;
    if (++work.step == m_fresh_steps) return true;
    m_queue->start(execution(work.bucket, work.step), work.complete);
  }
}

void GradientReducer::finish_oldest() {
  go_on(m_in_flight.front(), Wait::yes);
  m_in_flight.pop_front();
  start_due();
}

void GradientReducer::wait_reduced(Index bucket) {
  if (m_reductions->by_priority) {
    if (m_pushed[at(bucket)]) m_queue->wait(execution(bucket, 0));
    m_pushed[at(bucket)] = false;
    return;
  }
  auto const is_it = [bucket](Work const& work) { return work.bucket == bucket; };
  while (std::ranges::any_of(m_in_flight, is_it) || std::ranges::any_of(m_due, is_it)) finish_oldest();
}

void GradientReducer::advance() {
  while (!m_in_flight.empty() && go_on(m_in_flight.front(), Wait::no)) {
    m_in_flight.pop_front();
    start_due();
  }
}

void GradientReducer::finish() {
  while (!m_in_flight.empty()) finish_oldest();
  while (!m_sums.empty()) wait_sums(m_sums.front());
}

void GradientReducer::accumulate(Index bucket, Index micro_batch) {
  Bucket const& reduced = m_buckets[at(bucket)];
  for (BucketPart const& part : reduced.parts) {
    Range const share = m_layout->share(part.group);
    if (share.empty()) continue; // another rank's
    Index const size = part.of_share.size();
    StoredVector const fresh = m_memory.fresh->part(
        m_reductions->fresh_offset(part.gradient, reduced.run) + share.begin + part.of_share.begin, size);
    Index const begin =
        place_of_share(m_reductions->gradients.gradients[at(part.gradient)]).begin + part.of_share.begin;
    if (m_reductions->ordered) {
      fold(fresh, begin, micro_batch);
    } else {
      trainstone::accumulate(m_exec, micro_batch == 0 ? Write::overwrite : Write::add, fresh,
                             m_memory.sums->part(begin, size));
    }
  }
}

/// A binary counter over micro-batches: waiting sum k holds 2^k of them. The last one leaves the sum of all.
/// \param[in] begin of the sum in a vector of sums
void GradientReducer::fold(StoredVector value, Index begin, Index micro_batch) {
  auto const waiting = [&](int level) {
    return m_memory.waiting[static_cast<std::size_t>(level)].part(begin, value.size);
  };
  int const complete = std::countr_one(static_cast<std::uint64_t>(micro_batch));
  for (int level = 0; level < complete; ++level) trainstone::accumulate(m_exec, Write::add, waiting(level), value);
  if (micro_batch + 1 < m_layout->rank_micro_batches) {
    trainstone::accumulate(m_exec, Write::overwrite, value, waiting(complete));
  } else if (m_reductions->fresh_gradients_apart) {
    trainstone::accumulate(m_exec, Write::overwrite, value, m_memory.sums->part(begin, value.size));
  }
}

/// In a vector of sums.
Range GradientReducer::place_of_share(Gradient const& gradient) const {
  Range const share = m_layout->share(gradient.group);
  Index const begin = m_layout->keeps_shares_of_gradients() ? gradient.share_offset : gradient.offset + share.begin;
  return {begin, begin + share.size()};
}

StoredVector GradientReducer::share_of(Gradient const& gradient) const {
  Range const place = place_of_share(gradient);
  return m_memory.sums->part(place.begin, place.size());
}

StoredVector GradientReducer::share(Index group) const { return share_of(m_reductions->gradients.of_group(group)); }

void GradientReducer::tie() {
  std::optional<Gradient> const looked_up = m_reductions->gradients.looked_up();
  if (!looked_up || m_layout->share(looked_up->group).empty()) return;
  trainstone::accumulate(m_exec, Write::add, share_of(*looked_up), share(looked_up->group));
}

} // namespace trainstone
