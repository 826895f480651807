#include "parallel/tensor_share.hpp"

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

} // namespace trainstone
