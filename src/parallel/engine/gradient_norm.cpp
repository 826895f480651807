#include "parallel/engine/gradient_norm.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm.hpp"

#include <cmath>

namespace trainstone {

GradientNorm::GradientNorm(ExecutionSpace const& exec, MeshCommunicators& communicators, StateLayout const& layout,
                           std::optional<PlannedCollective> const& gather, Arena& buffers, std::span<std::byte> staging)
    : m_exec(exec),
      m_layout(&layout),
      m_block_sums(buffers.vector<double>("norm block sums", layout.elements() / norm_block)),
      m_blocks_of_group(buffers.vector<double>("norm blocks of a group", layout.largest_group() / norm_block)),
      m_section_sums(buffers.vector<double>("norm section sums", layout.sections())) {
  for (Axis const axis : model_axes)
    if (layout.mesh.size(axis) > 1) m_sharers.push_back(&communicators.of(axis));
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
  double* section_sum = m_section_sums.data();
  for (Index g = 0; g < std::ssize(m_layout->groups); ++g) {
    ParameterGroup const& group = m_layout->groups[static_cast<std::size_t>(g)];
    Vector<double> const blocks(m_blocks_of_group.data(), static_cast<std::size_t>(group.padded / norm_block));
    Rank const first_owner = m_layout->ownership.owner_of_part(g, 0);
    collect_shares(m_exec, gathered, m_layout->norm_blocks_begin(g, first_owner), blocks);
    for (ParameterSection const& section : group.sections) {
      auto const [begin, end] = section.elements;
      Vector<double> const of_section(
          blocks.data() + begin / norm_block,
          static_cast<std::size_t>((end + norm_block - 1) / norm_block - begin / norm_block));
      tree_sum(m_exec, of_section, Vector<double>(section_sum++, 1));
    }
  }
  std::vector<double> const of_sections =
      copy_to_host(m_exec, m_section_sums, "trainstone::parallel::norm: the host decides on clipping");
  double squares = 0;
  for (double const sum : m_sharers.empty() ? of_sections : sums_of_model(of_sections)) squares += sum;
  return std::sqrt(squares);
}

/// By number of the section in the whole model. One rank counts each sum, the others add 0 to it: the bits stay.
std::vector<double> GradientNorm::sums_of_model(std::vector<double> const& of_sections) const {
  std::vector<double> sums(static_cast<std::size_t>(m_layout->model_sections), 0.0);
  auto sum = of_sections.begin();
  for (Index g = 0; g < std::ssize(m_layout->groups); ++g)
    for (ParameterSection const& section : m_layout->groups[static_cast<std::size_t>(g)].sections) {
      if (m_layout->counts(g, section)) sums[static_cast<std::size_t>(section.number)] = *sum;
      ++sum;
    }
  for (Communicator* const sharers : m_sharers) control_all_reduce(m_exec, *sharers, Operation::sum, sums);
  return sums;
}

} // namespace trainstone
