#include "parallel/engine/gradient_norm.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/norm.hpp"
#include "parallel/engine/joint_shares.hpp"

#include <cmath>

namespace trainstone {

GradientNorm::GradientNorm(ExecutionSpace const& exec, MeshCommunicators& communicators, StateLayout const& layout,
                           std::optional<PlannedCollective> const& gather, Arena& buffers, std::span<std::byte> staging)
    : m_exec(exec),
      m_layout(&layout),
      m_block_sums(buffers.vector<double>("norm block sums", layout.elements() / norm_block)),
      m_blocks_of_group(buffers.vector<double>("norm blocks of a group", layout.collected_norm_blocks())),
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
  for (JointShares const& joint : joint_shares(0, std::ssize(m_layout->groups) - 1, share)) {
    StoredVector const& gradient = joint.values;
    Index const begin = m_layout->norm_blocks_begin(joint.first_group, m_layout->member());
    Vector<double> const sums(m_block_sums.data() + begin, static_cast<std::size_t>(gradient.size / norm_block));
    with_storage(gradient.storage, [&]<class T>() { squared_block_sums<T>(m_exec, gradient.as<T>(), sums); });
  }
  if (m_gather) m_gather->run();
  if (m_layout->ownership.owners() == 1)
    add_up_sections();
  else
    collect_and_add_up_sections();
  std::vector<double> const of_sections =
      copy_to_host(m_exec, m_section_sums, "trainstone::parallel::norm: the host decides on clipping");
  double squares = 0;
  for (double const sum : m_sharers.empty() ? of_sections : sums_of_model(of_sections)) squares += sum;
  return std::sqrt(squares);
}

/// Of a group whose blocks begin at `blocks`.
void GradientNorm::append_sections(std::vector<TreeSection>& all, Index group, Index blocks) const {
  for (ParameterSection const& section : m_layout->groups[static_cast<std::size_t>(group)].sections) {
    auto const [begin, end] = section.elements;
    all.push_back({blocks + begin / norm_block, (end + norm_block - 1) / norm_block - begin / norm_block});
  }
}

/// Where all blocks of a group lie together.
void GradientNorm::add_up_sections() {
  std::vector<TreeSection> sections;
  for (Index g = 0; g < std::ssize(m_layout->groups); ++g)
    append_sections(sections, g, m_layout->norm_blocks_begin(g, m_layout->ownership.owner_of_part(g, 0)));
  tree_sums(m_exec, m_block_sums, sections, m_section_sums);
}

/// Group after group, where every owner has blocks of it.
void GradientNorm::collect_and_add_up_sections() {
  auto const owners = static_cast<std::size_t>(m_layout->ownership.owners());
  Matrix<double const> const gathered(m_block_sums.data(), owners, m_block_sums.extent(0) / owners);
  double* section_sums = m_section_sums.data();
  for (Index g = 0; g < std::ssize(m_layout->groups); ++g) {
    Index const padded = m_layout->groups[static_cast<std::size_t>(g)].padded;
    Vector<double> const blocks(m_blocks_of_group.data(), static_cast<std::size_t>(padded / norm_block));
    Rank const first_owner = m_layout->ownership.owner_of_part(g, 0);
    collect_shares(m_exec, gathered, m_layout->norm_blocks_begin(g, first_owner), blocks);
    std::vector<TreeSection> sections;
    append_sections(sections, g, 0);
    tree_sums(m_exec, blocks, sections, Vector<double>(section_sums, sections.size()));
    section_sums += sections.size();
  }
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
