#include "parallel/engine/sharded_engine.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "core/timed_region.hpp"
#include "kernels/cast.hpp"
#include "kernels/norm.hpp"
#include "parallel/engine/joint_shares.hpp"
#include "parallel/plan/engine_memory.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace trainstone {

namespace {

Communicator const* sharers(MeshCommunicators& communicators, std::optional<Axis> axis) {
  return axis ? &communicators.of(*axis) : nullptr;
}

std::vector<StoredVector> take(Arena& buffers, Storage storage, char const* label, std::vector<Index> const& sizes) {
  std::vector<StoredVector> vectors;
  for (Index const elements : sizes) vectors.push_back(take_vector(buffers, storage, label, elements));
  return vectors;
}

std::vector<StoredVector> take(Arena& buffers, Storage storage, char const* label, Index count, Index elements) {
  return take(buffers, storage, label, std::vector(static_cast<std::size_t>(count), elements));
}

std::vector<std::span<std::byte>> take(PinnedMemory& pinned, std::vector<std::uint64_t> const& sizes) {
  std::vector<std::span<std::byte>> parts;
  for (std::uint64_t const bytes : sizes) parts.push_back(pinned.take(bytes));
  return parts;
}

Vector<float> part_of(StoredVector vector, Index begin, Index size) { return vector.part(begin, size).as<float>(); }

std::deque<MeshCommunicators> communicators_of_first(Communicator const& world, Mesh const& mesh) {
  std::deque<MeshCommunicators> communicators;
  communicators.emplace_back(world, mesh);
  return communicators;
}

} // namespace

ShardedEngine::ShardedEngine(ExecutionSpace const& exec, Communicator const& world, MemoryLedger& ledger,
                             ShardPlan const& plan, ParameterTable const& table, Arena& buffers, PinnedMemory& pinned)
    : m_exec(exec),
      m_communication(communication_instance(exec)),
      m_plan(&plan),
      m_layout(&plan.layout),
      m_table(&table),
      m_communicators(communicators_of_first(world, m_layout->mesh)),
      m_state(exec, ledger, plan.offload, plan.layout, plan.reductions.storage),
      m_parameters(exec,
                   m_layout->sharding.parameters ? nullptr : sharers(m_communicators.front(), plan.gathers.sharers()),
                   ledger, plan.offload, plan.layout),
      m_slots(m_layout->sharding.parameters
                  ? StateMemory(exec, sharers(m_communicators.front(), plan.gathers.sharers()), ledger,
                                MemoryCategory::buffers, "gather slots", m_layout->types.parameters,
                                plan.gathers.slots * m_layout->largest_unit())
                  : StateMemory()),
      m_gradients(exec, sharers(m_communicators.front(), plan.reductions.sharers_of_kept()), ledger,
                  MemoryCategory::gradients, "gradients", plan.reductions.storage,
                  plan.reductions.kept_elements(*m_layout)),
      m_fresh_gradients(plan.reductions.fresh_gradients_apart
                            ? StateMemory(exec, sharers(m_communicators.front(), plan.reductions.sharers_of_fresh()),
                                          ledger, MemoryCategory::buffers, "fresh gradients", plan.reductions.storage,
                                          plan.reductions.fresh_elements())
                            : StateMemory()),
      m_exchange_memory{
          {plan.reductions.fresh_gradients_apart ? &m_fresh_gradients : &m_gradients, &m_gradients,
           take(buffers, plan.reductions.storage, "reduction scratch", reduction_scratches(plan.reductions, *m_layout)),
           take(pinned, pinned_reductions(plan)),
           take(buffers, Storage::fp32, "waiting sums", plan.reductions.waiting_sums,
                plan.reductions.kept_elements(*m_layout))},
          take(buffers, m_layout->types.parameters, "gather scratch", plan.gathers.in_flight(),
               gather_scratch(plan.gathers, *m_layout)),
          take(pinned, pinned_gathers(plan)),
          buffers,
          pinned.take(pinned_norm_bytes(plan))},
      m_decay_runs(decay_runs(*m_layout, table)) {
  TRAINSTONE_REQUIRE(world.buffers() == plan.message_buffers, "buffers are planned to be \"{}\", the ranks' are \"{}\"",
                     to_string(plan.message_buffers), to_string(world.buffers()));
  add_exchanges(m_communicators.front(), buffers);
  if (m_layout->mesh.shares_layers())
    m_tensor.emplace(m_exec, m_communication, communicators(), m_queue, ledger, plan, buffers, pinned);
  if (plan.pipeline.has_stages()) connect_stages(buffers, pinned);
}

void ShardedEngine::add_exchanges(MeshCommunicators& communicators, Arena& norm_memory) {
  m_exchanges.push_back({GradientReducer(m_exec, m_communication, communicators, m_queue, m_plan->reductions, *m_layout,
                                         m_exchange_memory.reductions),
                         ParameterGatherer(m_exec, m_communication, communicators, m_queue, m_plan->gathers, *m_layout,
                                           m_parameters, m_layout->sharding.parameters ? &m_slots : nullptr,
                                           m_exchange_memory.gather_scratch, m_exchange_memory.gather_staging),
                         GradientNorm(m_exec, communicators, *m_layout, m_plan->gathers.norm, norm_memory,
                                      m_exchange_memory.norm_staging)});
}

void ShardedEngine::add_partners(Communicator const& world) {
  m_communicators.emplace_back(world, m_layout->mesh);
  Arena norm_memory = m_exchange_memory.norm;
  add_exchanges(m_communicators.back(), norm_memory);
  m_exchanges.back().gatherer.outdate();
}

void ShardedEngine::meet(std::size_t partners) {
  TRAINSTONE_REQUIRE(partners < m_exchanges.size(), "there are {} groups of partners, and no number {}",
                     m_exchanges.size(), partners);
  TRAINSTONE_REQUIRE(partners == m_met || m_queue.in_flight() == 0, "collectives with partners {} are in flight",
                     m_met);
  m_met = partners;
}

void ShardedEngine::connect_stages(Arena& buffers, PinnedMemory& pinned) {
  std::optional<PlannedCollective> const& sum = m_plan->pipeline.table;
  StoredVector table, scratch;
  if (sum) {
    table = reducer().share(m_layout->table_group());
    scratch = take_vector(buffers, m_plan->reductions.storage, "token table scratch",
                          schedule_of(*sum, m_layout->mesh, m_layout->rank).scratch_elements);
  }
  m_stages.emplace(m_exec, m_communication, communicators(), m_queue, *m_plan, table, scratch, pinned);
}

BetweenLaunches::Scoped ShardedEngine::drive_between_launches() {
  std::function<void()> drive;
  if (m_plan->overlap) drive = [this] { advance(); };
  return {between_launches(), std::move(drive)};
}

void ShardedEngine::advance() {
  if (m_busy) return;
  NoProgress const busy(m_busy);
  m_queue.progress();
  reducer().advance();
}

ShardedEngine::~ShardedEngine() {
  if (std::uncaught_exceptions() > 0) return; // other ranks may never come
  try {
    finish(); // the last update's gathers
  } catch (std::exception const& error) {
    std::fprintf(stderr, "trainstone: rank %d: %s\n", m_layout->rank, error.what());
  }
}

void ShardedEngine::execute(Instruction const& one) {
  NoProgress const busy(m_busy);
  bool const waits = one.act == Act::wait;
  switch (waits ? one.started : one.act) {
  case Act::fetch: return waits ? wait_fetched(one.slot) : fetch(one.subject, one.slot);
  case Act::gather:
    return waits ? gatherer().wait_gathered(one.subject, one.slot) : gatherer().gather(one.subject, one.slot);
  case Act::publish: return waits ? gatherer().wait_published(one.subject) : gatherer().publish(one.subject, one.slot);
  case Act::reduce: return waits ? wait_reduced(one.subject) : reducer().reduce(one.subject);
  case Act::reduce_sums: return waits ? reducer().wait_sums(one.subject) : reducer().reduce_sums(one.subject);
  case Act::fold: return reducer().fold(one.subject, one.micro_batch);
  case Act::accumulate: return reducer().accumulate(one.subject, one.micro_batch);
  case Act::send:
  case Act::receive: return waits ? m_stages.value().wait(one) : m_stages.value().start(one);
  case Act::exchange: return waits ? m_tensor.value().wait(one) : m_tensor.value().start(one);
  case Act::tie:
    if (m_plan->by_priority()) return; // before its unit is updated
    return m_stages ? m_stages->tie() : reducer().tie();
  case Act::update: return update_unit(one.subject);
  default: throw Error(fmt::format("the engine does not execute \"{}\"", to_string(one, *m_plan)));
  }
}

ConstStoredVector ShardedEngine::parameters(Index unit, Index slot) const { return gatherer().whole(unit, slot); }

double ShardedEngine::gradient_norm() {
  TimedRegion const region([] { return "trainstone::parallel::gradient_norm"; });
  NoProgress const busy(m_busy);
  if (m_plan->reductions.rounds_sums) round_sums(0, std::ssize(m_layout->groups) - 1);
  return m_exchanges[m_met].norm([this](Index group) { return reducer().share(group); });
}

void ShardedEngine::round_sums(Index first, Index last) {
  for (JointShares const& joint : joint_shares(first, last, [this](Index group) { return reducer().share(group); }))
    round_to(m_exec, m_layout->types.gradients, joint.values.as<float>());
}

void ShardedEngine::update(OptimizerConfig const& optimizer, UpdateNumbers const& numbers) {
  TimedRegion const region([] { return "trainstone::parallel::update"; });
  NoProgress const busy(m_busy);
  update(0, std::ssize(m_layout->groups) - 1, optimizer, numbers);
  outdate_parameters();
}

void ShardedEngine::update(Index first, Index last, OptimizerConfig const& optimizer, UpdateNumbers const& numbers) {
  OptimizerState::Shares const shares{[this](Index group) { return reducer().share(group); }, &m_parameters};
  m_state.update(first, last, shares, [&](OptimizerState::Chunk const& chunk) { update(chunk, optimizer, numbers); });
}

/// What of a chunk is no padding, as many pieces at once as a kernel takes.
void ShardedEngine::update(OptimizerState::Chunk const& chunk, OptimizerConfig const& optimizer,
                           UpdateNumbers const& numbers) {
  std::vector<UpdatePiece> pieces;
  Index begin = 0; // of a part
  for (auto const& [group, range] : chunk.parts) {
    for (DecayRun const& run : m_decay_runs) {
      if (run.group != group || !run.range.overlaps(range)) continue;
      pieces.push_back({begin + std::max(run.range.begin, range.begin) - range.begin,
                        begin + std::min(run.range.end, range.end) - range.begin,
                        optimizer.decay == DecayScope::all || run.is_matrix});
    }
    begin += range.size();
  }
  Vector<float> const master = m_layout->types.master ? chunk.vectors.front() : chunk.parameters.as<float>();
  std::span<Vector<float> const> const moments = std::span(chunk.vectors).subspan(m_layout->types.master ? 1 : 0);
  for (std::span<UpdatePiece const> rest = pieces; !rest.empty();) {
    std::span<UpdatePiece const> const some =
        rest.first(std::min(rest.size(), static_cast<std::size_t>(most_update_pieces)));
    rest = rest.subspan(some.size());
    ConstStoredVector gradient = chunk.gradient;
    if (m_layout->types.gradient_copy) {
      Index const first = some.front().begin, size = some.back().end - first;
      cast(m_exec, gradient.part(first, size), part_of(chunk.gradient_copy, first, size));
      gradient = StoredVector(chunk.gradient_copy);
    }
    update_parameters(m_exec, optimizer, numbers, some, gradient, master, moments, chunk.parameters);
  }
}

void ShardedEngine::expect_updates(OptimizerConfig const& optimizer, std::optional<UpdateNumbers> const& numbers) {
  m_expected = {optimizer, numbers, std::vector<bool>(m_layout->units.size(), true)};
}

void ShardedEngine::update_unit(Index unit) {
  if (!m_expected.units.at(static_cast<std::size_t>(unit))) return; // it was done
  m_expected.units[static_cast<std::size_t>(unit)] = false;
  TimedRegion const region([] { return "trainstone::parallel::update"; });
  auto const is_here = [&](Index group) { return m_layout->unit_of(group) == unit; };
  ReductionPlan const& reductions = m_plan->reductions;
  if (reductions.adds_parts_of_table() && is_here(m_layout->table_group())) reducer().tie();
  ParameterUnit const& groups = m_layout->units[static_cast<std::size_t>(unit)];
  if (reductions.rounds_sums) round_sums(groups.first_group, groups.last_group);
  if (!m_expected.numbers) return;
  update(groups.first_group, groups.last_group, m_expected.optimizer, *m_expected.numbers);
  gatherer().outdate(unit);
}

void ShardedEngine::wait_reduced(Index bucket) {
  bool const updates = m_plan->by_priority() && m_layout->serves();
  if (!updates) return reducer().wait_reduced(bucket);
  Span const waiting(Lane::wait, [&] { return fmt::format("reduce bucket {}, updating units", bucket); });
  for (Patience patience; !reducer().is_reduced(bucket);) {
    {
      PhaseTimer const timer(Phase::communication);
      m_queue.progress();
    }
    update_what_is_there();
    if (reducer().is_reduced(bucket)) break;
    PhaseTimer const timer(Phase::communication);
    patience.look_again();
  }
  reducer().wait_reduced(bucket);
}

/// What the next forward needs first goes first.
void ShardedEngine::update_what_is_there() {
  for (Index unit = 0; unit < std::ssize(m_layout->units); ++unit) {
    if (!m_expected.units[static_cast<std::size_t>(unit)]) continue;
    BucketPlan const& buckets = m_plan->reductions.buckets;
    BucketRun const& run = buckets.runs[static_cast<std::size_t>(buckets.run_of_unit(unit))];
    bool is_there = true;
    for (Index bucket = run.first_bucket; is_there && bucket < run.first_bucket + run.buckets; ++bucket)
      is_there = reducer().is_reduced(bucket);
    if (!is_there) continue;
    update_unit(unit);
    gatherer().publish(unit, unit);
  }
}

void ShardedEngine::fetch(Index unit, Index slot) {
  m_parameters.fetch(unit, slot, [this] { m_queue.progress(); });
}

void ShardedEngine::wait_fetched(Index slot) {
  m_parameters.wait_fetched(slot, [this] { m_queue.progress(); });
}

void ShardedEngine::outdate_parameters() {
  for (Exchanges& exchanges : m_exchanges) exchanges.gatherer.outdate();
}

void ShardedEngine::finish() {
  NoProgress const busy(m_busy);
  reducer().finish();
  m_queue.wait_all();
  m_state.finish();
  m_parameters.finish();
  if (m_exchanges.size() == 1) gatherer().finish(); // of several partners, most have no use for parameters now
}

Index ShardedEngine::find_non_finite_group(Vector<std::int64_t> count) {
  for (Index g = std::ssize(m_layout->groups) - 1; g >= 0; --g) {
    StoredVector const gradient = reducer().share(g);
    with_storage(gradient.storage, [&]<class T>() { count_non_finite<T>(m_exec, gradient.as<T>(), count); });
    if (copy_to_host(m_exec, count, "trainstone::parallel::find_non_finite_group: the host decides")[0] > 0) return g;
  }
  return -1;
}

} // namespace trainstone
