#include "parallel/share_update.hpp"

#include "kernels/optimizer.hpp"

#include <algorithm>

namespace trainstone {

std::vector<TensorShare> tensor_shares(ShardPlan const& plan, ParameterTable const& table) {
  std::vector<TensorShare> shares;
  for (ParameterTensor const& tensor : table.tensors()) {
    Range const share = plan.share(tensor.group);
    Index const first = tensor.offset - plan.groups[static_cast<std::size_t>(tensor.group)].offset;
    Range const common{std::max(first, share.begin), std::min(first + tensor.size(), share.end)};
    if (common.begin >= common.end) continue;
    shares.push_back({tensor.group, {common.begin - share.begin, common.end - share.begin}, tensor.is_matrix});
  }
  return shares;
}

double clip_factor(OptimizerConfig const& optimizer, double norm) {
  return optimizer.clip > 0 ? std::min(1.0, optimizer.clip / (norm + 1e-6)) : 1.0;
}

void update_share(ExecutionSpace const& exec, OptimizerConfig const& optimizer, UpdateStep const& step,
                  TensorShare const& share, Vector<float const> gradient, Vector<float> parameter, Vector<float> first,
                  Vector<float> second) {
  AdamStep settings{};
  settings.learning_rate = static_cast<float>(step.learning_rate);
  settings.beta1 = static_cast<float>(optimizer.betas[0]);
  settings.beta2 = static_cast<float>(optimizer.betas[1]);
  settings.epsilon = static_cast<float>(optimizer.epsilon);
  settings.gradient_scale = static_cast<float>(step.gradient_scale);
  settings.step = step.number;
  bool const decays = optimizer.decay == DecayScope::all || share.is_matrix;
  settings.weight_decay = decays ? static_cast<float>(optimizer.weight_decay) : 0.0f;
  adamw_update<float, float>(exec, gradient, parameter, first, second, parameter, settings);
}

} // namespace trainstone
