// Who sets and reads the training state of an engine: the seed's values, model files, checkpoints, hashes.

#include "comm/execution/control.hpp"
#include "kernels/cast.hpp"
#include "parallel/engine/sharded_engine.hpp"

namespace trainstone {

void ShardedEngine::clear_moments() {
  for (Index moment = 0; moment < m_layout->moments; ++moment) m_state.clear(Index{m_layout->types.master} + moment);
}

Vector<float> ShardedEngine::master_share(Index group) const {
  return m_layout->types.master ? m_state.share(0, group) : m_parameters.share(group).as<float>();
}

Vector<float> ShardedEngine::moment_share(Index moment, Index group) const {
  return m_state.share(Index{m_layout->types.master} + moment, group);
}

void ShardedEngine::read_state(Index vector, Index group, Range range,
                               std::function<void(Range const&, Vector<float> const&)> const& look) const {
  if (vector > 0 || m_layout->types.master)
    return m_state.read(vector - 1 + Index{m_layout->types.master}, group, range, look);
  if (!range.empty()) look(range, m_parameters.share(group, range).as<float>());
}

void ShardedEngine::set_parameters(std::function<void(Index, Range, Vector<float>)> const& fill) {
  set_vectors(1, [&](Index, Index group, Range part, Vector<float> const& values) { fill(group, part, values); });
}

void ShardedEngine::set_state(std::function<void(Index, Index, Range, Vector<float>)> const& fill) {
  set_vectors(1 + m_layout->moments, fill);
}

/// Of a vector as of read_state(). Parameters with a master copy become its rounded values.
void ShardedEngine::fill_vector(Index vector, Index group,
                                std::function<void(Index, Index, Range, Vector<float>)> const& fill) {
  Range const share = m_layout->share(group);
  bool const has_master = m_layout->types.master;
  if (vector == 0 && !has_master) {
    if (!share.empty()) fill(0, group, share, m_parameters.share(group).as<float>());
    return m_parameters.put_back(group);
  }
  StoredVector const parameters = vector == 0 ? m_parameters.share(group) : StoredVector();
  m_state.write(vector - 1 + Index{has_master}, group, [&](Range const& piece, Vector<float> const& values) {
    fill(vector, group, {share.begin + piece.begin, share.begin + piece.end}, values);
    if (vector == 0) cast(m_exec, ConstStoredVector(values), parameters.part(piece.begin, piece.size()));
  });
  if (vector == 0) m_parameters.put_back(group);
}

void ShardedEngine::set_vectors(Index count, std::function<void(Index, Index, Range, Vector<float>)> const& fill) {
  finish();
  NoProgress const busy(m_busy);
  auto const fill_all = [&] {
    for (Index g = 0; g < std::ssize(m_layout->groups); ++g)
      for (Index vector = 0; vector < count; ++vector) fill_vector(vector, g, fill);
  };
  if (m_plan->state_broadcasts.empty()) {
    fill_all();
  } else {
    collectively(communicators().of(Axis::replica), [&] {
      if (m_layout->rank == 0) fill_all();
    });
    broadcast_state();
  }
  for (std::size_t partners = 0; partners < m_exchanges.size(); ++partners) {
    meet(partners);
    gatherer().outdate();
    gatherer().finish();
  }
  meet(0);
}

/// Parameters (or master parameters) and moments of all groups, from rank 0.
void ShardedEngine::broadcast_state() {
  for (std::size_t g = 0; g < m_plan->state_broadcasts.size(); ++g) {
    PlannedCollective const& planned = m_plan->state_broadcasts[g];
    auto const group = static_cast<Index>(g);
    std::vector<Vector<float>> state{master_share(group)};
    for (Index moment = 0; moment < m_layout->moments; ++moment) state.push_back(moment_share(moment, group));
    for (Vector<float> const& values : state)
      Execution(m_exec, communicators().of(planned.axis), schedule_of(planned, m_layout->mesh, m_layout->rank),
                Operation::sum, values, Vector<float>(),
                {.purpose = Purpose::start, .persistent = false, .staging = reducer().idle_staging()})
          .run();
    if (m_layout->types.master) cast(m_exec, ConstStoredVector(state.front()), m_parameters.share(group));
  }
}

void ShardedEngine::read_parameters(std::function<void(Index, ConstStoredVector)> const& read) {
  finish();
  if (m_layout->serves()) return; // every worker has them
  NoProgress const busy(m_busy);
  ParameterShares::Uncounted const uncounted(m_parameters);
  Index const units = std::ssize(m_layout->units), slots = m_plan->gathers.slots;
  auto const gather = [&](Index unit, Index slot) {
    fetch(unit, 0);
    wait_fetched(0);
    gatherer().gather(unit, slot);
  };
  for (Index u = 0; u < units; ++u) {
    Index const slot = slots == 0 ? 0 : u % slots;
    if (slots > 0) {
      if (u == 0 || slots == 1) gather(u, slot);
      gatherer().wait_gathered(u, slot);
      if (slots > 1 && u + 1 < units) gather(u + 1, (u + 1) % slots); // while this one is read
    }
    ParameterUnit const& unit = m_layout->units[static_cast<std::size_t>(u)];
    for (Index g = unit.first_group; g <= unit.last_group; ++g) read(g, gatherer().whole_group(g, slot));
  }
}

} // namespace trainstone
