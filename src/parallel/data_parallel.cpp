#include "parallel/data_parallel.hpp"

#include "comm/registry.hpp"
#include "core/host_copy.hpp"
#include "core/region.hpp"
#include "kernels/adamw.hpp"
#include "kernels/norm.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>

namespace trainstone {

namespace {

Schedule group_schedule(ParameterGroup const& group, GradientReduction const& reduction, Rank rank) {
  return make_schedule(reduction.problem(group.padded), reduction.all_reduce, rank);
}

Index scratch_elements(ParameterTable const& table, GradientReduction const& reduction, Rank rank) {
  Index most = 0;
  for (ParameterGroup const& group : table.groups())
    most = std::max(most, group_schedule(group, reduction, rank).scratch_elements);
  return most;
}

Index largest_group(ParameterTable const& table) {
  Index most = 0;
  for (ParameterGroup const& group : table.groups()) most = std::max(most, group.padded);
  return most;
}

Vector<float> part(Vector<float> flat, Index offset, Index size) {
  return Vector<float>(flat.data() + offset, static_cast<std::size_t>(size));
}

} // namespace

std::vector<PlannedTensor> DataParallel::buffer_plan(ParameterTable const& table, GradientReduction const& reduction,
                                                     Rank rank) {
  return {planned<float>("all-reduce scratch", scratch_elements(table, reduction, rank)),
          planned<double>("norm block sums", largest_group(table) / norm_block),
          planned<double>("norm group sums", std::ssize(table.groups())), planned<std::int64_t>("non-finite count", 1)};
}

Traffic DataParallel::traffic(ParameterTable const& table, GradientReduction const& reduction, Rank rank) {
  Traffic sum;
  for (ParameterGroup const& group : table.groups())
    sum += predict_traffic(group_schedule(group, reduction, rank), reduction.topology, sizeof(float));
  return sum;
}

DataParallel::DataParallel(ExecutionSpace const& exec, Communicator& communicator, ParameterTable const& table,
                           ModelState& state, GradientReduction const& reduction, Arena& buffers)
    : m_table(&table), m_state(&state) {
  Rank const rank = communicator.rank();
  auto const scratch = buffers.vector<float>("all-reduce scratch", scratch_elements(table, reduction, rank));
  m_block_sums = buffers.vector<double>("norm block sums", largest_group(table) / norm_block);
  m_group_sums = buffers.vector<double>("norm group sums", std::ssize(table.groups()));
  m_count = buffers.vector<std::int64_t>("non-finite count", 1);
  for (ParameterGroup const& group : table.groups() | std::views::reverse)
    m_reductions.emplace_back(exec, communicator, group_schedule(group, reduction, rank), Operation::sum,
                              part(state.gradients(), group.offset, group.padded), scratch,
                              ExecutionOptions{.segment = state.shared_gradients()});
}

void DataParallel::reduce() {
  ScopedRegion const region("trainstone::parallel::reduce");
  for (Execution& reduction : m_reductions) reduction.run();
}

double DataParallel::norm(ExecutionSpace const& exec) {
  for (std::size_t g = 0; g < m_table->groups().size(); ++g) {
    ParameterGroup const& group = m_table->groups()[g];
    squared_norm<float>(exec, part(m_state->gradients(), group.offset, group.padded),
                        Vector<double>(m_block_sums.data(), static_cast<std::size_t>(group.padded / norm_block)),
                        Vector<double>(m_group_sums.data() + g, 1));
  }
  std::vector<double> const sums =
      copy_to_host(exec, m_group_sums, "trainstone::parallel::norm: the host decides on clipping");
  double squares = 0;
  for (double sum : sums) squares += sum;
  return std::sqrt(squares);
}

double DataParallel::update(ExecutionSpace const& exec, OptimizerConfig const& optimizer, double learning_rate,
                            std::int64_t step) {
  ScopedRegion const region("trainstone::parallel::update");
  double const gradient_norm = norm(exec);
  double const clip_factor = optimizer.clip > 0 ? std::min(1.0, optimizer.clip / (gradient_norm + 1e-6)) : 1.0;
  AdamwStep settings{};
  settings.learning_rate = static_cast<float>(learning_rate);
  settings.beta1 = static_cast<float>(optimizer.betas[0]);
  settings.beta2 = static_cast<float>(optimizer.betas[1]);
  settings.epsilon = static_cast<float>(optimizer.epsilon);
  settings.gradient_scale = static_cast<float>(clip_factor);
  settings.step = step;
  for (ParameterTensor const& tensor : m_table->tensors()) {
    bool const decays = optimizer.decay == DecayScope::all || tensor.is_matrix;
    settings.weight_decay = decays ? static_cast<float>(optimizer.weight_decay) : 0.0f;
    auto const of = [&tensor](Vector<float> flat) { return part(flat, tensor.offset, tensor.size()); };
    adamw_update<float>(exec, of(m_state->gradients()), of(m_state->parameters()), of(m_state->first_moment()),
                        of(m_state->second_moment()), settings);
  }
  return gradient_norm;
}

bool DataParallel::has_non_finite(ExecutionSpace const& exec, Vector<float const> values) {
  count_non_finite<float>(exec, values, m_count);
  return copy_to_host(exec, m_count, "trainstone::parallel::has_non_finite: the host decides")[0] > 0;
}

std::int64_t DataParallel::find_non_finite_group(ExecutionSpace const& exec) {
  for (std::int64_t g = std::ssize(m_table->groups()) - 1; g >= 0; --g) {
    ParameterGroup const& group = m_table->groups()[static_cast<std::size_t>(g)];
    if (has_non_finite(exec, part(m_state->gradients(), group.offset, group.padded))) return g;
  }
  return -1;
}

} // namespace trainstone
