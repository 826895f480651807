#include "parallel/engine/parameter_changes.hpp"

#include "comm/execution/control.hpp"
#include "core/host_copy.hpp"
#include "kernels/initialize.hpp"
#include "model/parameter_runs.hpp"
#include "parallel/program/shard_traffic.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

/// A sum and a number of elements of each kind: data ranks that hold the same count twice in both, so every element
/// counts as often as any other.
constexpr Index values_sent = 2 * tensor_kinds;

/// Of the elements of a tensor from `first` on.
InitialElements initial_elements(InitialValue const& initial, std::uint64_t seed, Index first) {
  return {.seed = seed,
          .first_counter = initial.first_counter + first,
          .stddev = initial.deviation,
          .constant = static_cast<float>(initial.constant)};
}

/// A part of a tensor that this rank updates, and that is looked at.
struct TensorPart {
  ParameterTensor const* tensor;
  Index first;    ///< of the whole tensor's elements
  Range in_share; ///< of the group's share
};

/// Of a whole tensor's elements those that tell something: no padding of the vocabulary. The bias of keys adds the same
/// to all scores of a row, which softmax does not see: its gradient is 0 but for rounding, and an optimizer that
/// divides by the gradient's size makes steps of that.
std::vector<Range> telling_ranges(ParameterTensor const& tensor) {
  if (tensor.tensor == Tensor::wte) return {{0, tensor.initial.random_elements}};
  if (tensor.tensor != Tensor::qkvb) return {{0, tensor.whole_size()}};
  Index const channels = tensor.whole_size() / 3;
  return {{0, channels}, {2 * channels, 3 * channels}};
}

void append_parts(std::vector<TensorPart>& parts, StateLayout const& layout, ParameterTable const& table, Index group) {
  Range const share = layout.share(group);
  for_each_run(table, group, share, [&](ParameterRun const& run) {
    if (!layout.counts(group, run.tensor)) return;
    for (Range const& telling : telling_ranges(run.tensor)) {
      Index const first = std::max(telling.begin, run.in_whole);
      Index const size = std::min(telling.end, run.in_whole + run.size) - first;
      Index const begin = run.in_group - share.begin + first - run.in_whole;
      if (size > 0) parts.push_back({&run.tensor, first, {begin, begin + size}});
    }
  });
}

/// Every parameter of the model is on ranks of one stage.
std::vector<TensorPart> tensor_parts(StateLayout const& layout, ParameterTable const& table) {
  std::vector<TensorPart> parts;
  for (Index group = 0; group < std::ssize(layout.groups); ++group) append_parts(parts, layout, table, group);
  return parts;
}

/// Kernels that look at this rank's share of a group.
std::uint64_t launches_of_group(ShardPlan const& plan, ParameterTable const& table, Index group) {
  std::vector<TensorPart> parts;
  append_parts(parts, plan.layout, table, group);
  if (!plan.layout.types.master) return parts.size();
  std::uint64_t pieces = 0;
  for (TensorPart const& part : parts)
    pieces += static_cast<std::uint64_t>(std::ssize(chunks_of(plan.offload, part.in_share)));
  return pieces;
}

/// Adds up |values - what they began with| of parts of tensors, by kind.
class ChangeSums {
public:
  ChangeSums(ExecutionSpace const& exec, Vector<double> sum) : m_exec(exec), m_sum(sum) {}

  void add(TensorPart const& part, InitialElements const& begun_with, Vector<float const> const& values) {
    sum_of_changes(m_exec, begun_with, values, m_sum);
    auto const kind = static_cast<std::size_t>(part.tensor->tensor);
    m_sums[kind] += copy_to_host(m_exec, m_sum, "trainstone::parallel::mean_differences: the host adds up tensors")[0];
    m_sums[kind + tensor_kinds] += static_cast<double>(values.size());
  }

  /// Of all ranks.
  ParameterChanges means(Communicator& world) {
    control_all_reduce(m_exec, world, Operation::sum, m_sums);
    ParameterChanges means{};
    for (std::size_t kind = 0; kind < means.size(); ++kind) means[kind] = m_sums[kind] / m_sums[kind + tensor_kinds];
    return means;
  }

private:
  ExecutionSpace m_exec;
  Vector<double> m_sum;
  std::array<double, values_sent> m_sums{};
};

} // namespace

ParameterChanges parameter_changes(ExecutionSpace const& exec, Communicator& world, ShardedEngine const& engine,
                                   std::uint64_t seed, Vector<double> sum) {
  ChangeSums sums(exec, sum);
  for (TensorPart const& part : tensor_parts(engine.plan().layout, engine.table()))
    engine.read_state(0, part.tensor->group, part.in_share, [&](Range const& piece, Vector<float> const& values) {
      Index const first = part.first + piece.begin - part.in_share.begin;
      sums.add(part, initial_elements(part.tensor->initial, seed, first), values);
    });
  return sums.means(world);
}

ParameterChanges gradient_sizes(ExecutionSpace const& exec, Communicator& world, ShardedEngine const& engine,
                                Vector<double> sum) {
  ChangeSums sums(exec, sum);
  for (TensorPart const& part : tensor_parts(engine.plan().layout, engine.table())) {
    StoredVector const gradient = engine.gradient_share(part.tensor->group);
    sums.add(part, InitialElements{}, // zeros
             gradient.part(part.in_share.begin, part.in_share.size()).as<float>());
  }
  return sums.means(world);
}

Traffic parameter_changes_traffic(StateLayout const& layout) {
  return control_traffic_of(values_sent, layout.topology, layout.rank);
}

std::uint64_t parameter_changes_launches(ShardPlan const& plan, ParameterTable const& table) {
  std::map<std::pair<Index, Index>, std::uint64_t> of_block; // by share: blocks are alike
  std::uint64_t pieces = 0;
  for (ParameterTensor const* first = nullptr; ParameterTensor const& tensor : table.tensors()) {
    if (first && first->group == tensor.group) continue;
    first = &tensor;
    Range const share = plan.layout.share(tensor.group);
    if (tensor.block < 0) {
      pieces += launches_of_group(plan, table, tensor.group);
      continue;
    }
    auto const [known, is_new] = of_block.try_emplace({share.begin, share.end});
    if (is_new) known->second = launches_of_group(plan, table, tensor.group);
    pieces += known->second;
  }
  return pieces;
}

} // namespace trainstone
