#include "parallel/engine/gradient_norm.hpp"

#include "core/host_copy.hpp"
#include "kernels/norm.hpp"

#include <cmath>

namespace trainstone {

GradientNorm::GradientNorm(ExecutionSpace const& exec, MeshCommunicators& communicators, ShardPlan const& plan,
                           Arena& buffers, PinnedMemory& pinned)
    : m_exec(exec),
      m_plan(&plan),
      m_block_sums(buffers.vector<double>("norm block sums", plan.elements() / norm_block)),
      m_blocks_of_group(buffers.vector<double>("norm blocks of a group", plan.largest_group() / norm_block)),
      m_group_sums(buffers.vector<double>("norm group sums", std::ssize(plan.groups))) {
  if (!plan.norm_gather) return;
  Schedule const schedule = schedule_of(*plan.norm_gather, plan.mesh, plan.rank);
  TRAINSTONE_REQUIRE(schedule.scratch_elements == 0, "the norm's gather needs {} elements of scratch",
                     schedule.scratch_elements);
  m_gather.emplace(exec, communicators.of(plan.norm_gather->axis), schedule, Operation::sum, m_block_sums,
                   Vector<double>(),
                   ExecutionOptions{.purpose = Purpose::control, .staging = pinned.take(plan.pinned_norm_bytes())});
}

double GradientNorm::operator()(std::function<StoredVector(Index group)> const& share) {
  for (Index g = 0; g < std::ssize(m_plan->groups); ++g) {
    StoredVector const gradient = share(g);
    if (gradient.size == 0) continue; // another rank's
    Index const begin = m_plan->norm_blocks_begin(g, m_plan->member());
    Vector<double> const sums(m_block_sums.data() + begin, static_cast<std::size_t>(gradient.size / norm_block));
    with_storage(gradient.storage, [&]<class T>() { squared_block_sums<T>(m_exec, gradient.as<T>(), sums); });
  }
  if (m_gather) m_gather->run();
  auto const owners = static_cast<std::size_t>(m_plan->ownership.owners());
  Matrix<double const> const gathered(m_block_sums.data(), owners, m_block_sums.extent(0) / owners);
  for (Index g = 0; g < std::ssize(m_plan->groups); ++g) {
    ParameterGroup const& group = m_plan->groups[static_cast<std::size_t>(g)];
    Vector<double> const blocks(m_blocks_of_group.data(), static_cast<std::size_t>(group.padded / norm_block));
    Rank const first_owner = m_plan->ownership.owner(g).value_or(0);
    collect_shares(m_exec, gathered, m_plan->norm_blocks_begin(g, first_owner), blocks);
    tree_sum(m_exec, blocks, Vector<double>(m_group_sums.data() + g, 1));
  }
  double squares = 0;
  for (double const sum :
       copy_to_host(m_exec, m_group_sums, "trainstone::parallel::norm: the host decides on clipping"))
    squares += sum;
  return std::sqrt(squares);
}

} // namespace trainstone
