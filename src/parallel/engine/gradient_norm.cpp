#include "parallel/engine/gradient_norm.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm.hpp"

#include <cmath>

namespace trainstone {

GradientNorm::GradientNorm(ExecutionSpace const& exec, MeshCommunicators& communicators, StateLayout const& layout,
                           Index layers, std::optional<PlannedCollective> const& gather, Arena& buffers,
                           std::span<std::byte> staging)
    : m_exec(exec),
      m_layout(&layout),
      m_layers(layers),
      m_stages(layout.mesh.pipeline > 1 ? &communicators.of(Axis::pipeline) : nullptr),
      m_block_sums(buffers.vector<double>("norm block sums", layout.elements() / norm_block)),
      m_blocks_of_group(buffers.vector<double>("norm blocks of a group", layout.largest_group() / norm_block)),
      m_group_sums(buffers.vector<double>("norm group sums", std::ssize(layout.groups))) {
  if (!gather) return;
  Schedule const schedule = schedule_of(*gather, layout.mesh, layout.rank);
  TRAINSTONE_REQUIRE(schedule.scratch_elements == 0, "the norm's gather needs {} elements of scratch",
                     schedule.scratch_elements);
  m_gather.emplace(exec, communicators.of(gather->axis), schedule, Operation::sum, m_block_sums, Vector<double>(),
                   ExecutionOptions{.purpose = Purpose::control, .staging = staging});
}

double GradientNorm::operator()(std::function<StoredVector(Index group)> const& share) {
  for (Index g = 0; g < std::ssize(m_layout->groups); ++g) {
    StoredVector const gradient = share(g);
    if (gradient.size == 0) continue; // another rank's
    Index const begin = m_layout->norm_blocks_begin(g, m_layout->member());
    Vector<double> const sums(m_block_sums.data() + begin, static_cast<std::size_t>(gradient.size / norm_block));
    with_storage(gradient.storage, [&]<class T>() { squared_block_sums<T>(m_exec, gradient.as<T>(), sums); });
  }
  if (m_gather) m_gather->run();
  auto const owners = static_cast<std::size_t>(m_layout->ownership.owners());
  Matrix<double const> const gathered(m_block_sums.data(), owners, m_block_sums.extent(0) / owners);
  for (Index g = 0; g < std::ssize(m_layout->groups); ++g) {
    ParameterGroup const& group = m_layout->groups[static_cast<std::size_t>(g)];
    Vector<double> const blocks(m_blocks_of_group.data(), static_cast<std::size_t>(group.padded / norm_block));
    Rank const first_owner = m_layout->ownership.owner(g).value_or(0);
    collect_shares(m_exec, gathered, m_layout->norm_blocks_begin(g, first_owner), blocks);
    tree_sum(m_exec, blocks, Vector<double>(m_group_sums.data() + g, 1));
  }
  std::vector<double> const of_groups =
      copy_to_host(m_exec, m_group_sums, "trainstone::parallel::norm: the host decides on clipping");
  double squares = 0;
  for (double const sum : m_stages ? sums_of_model(of_groups) : of_groups) squares += sum;
  return std::sqrt(squares);
}

/// By number of the group in the whole model. One stage has each sum, the others add 0 to it: the bits stay.
std::vector<double> GradientNorm::sums_of_model(std::vector<double> const& of_groups) const {
  std::vector<double> sums(static_cast<std::size_t>(m_layers + groups_outside_of_blocks), 0.0);
  for (std::size_t g = 0; g < of_groups.size(); ++g)
    if (m_layout->counts(static_cast<Index>(g)))
      sums[static_cast<std::size_t>(m_layout->groups[g].number)] = of_groups[g];
  control_all_reduce(m_exec, *m_stages, Operation::sum, sums);
  return sums;
}

} // namespace trainstone
