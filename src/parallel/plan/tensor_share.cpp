#include "parallel/plan/tensor_share.hpp"

#include <algorithm>

namespace trainstone {

Range range_in_share(ShardPlan const& plan, ParameterTensor const& tensor) {
  Range const share = plan.share(tensor.group);
  if (share.empty()) return {0, 0};
  Index const first = tensor.offset - plan.groups[static_cast<std::size_t>(tensor.group)].offset;
  Index const begin = std::max(first, share.begin), end = std::min(first + tensor.size(), share.end);
  return {begin - share.begin, std::max(begin, end) - share.begin};
}

std::vector<TensorShare> tensor_shares(ShardPlan const& plan, ParameterTable const& table) {
  std::vector<TensorShare> shares;
  for (ParameterTensor const& tensor : table.tensors()) {
    Range const range = range_in_share(plan, tensor);
    if (!range.empty()) shares.push_back({tensor.group, range, tensor.is_matrix});
  }
  return shares;
}

} // namespace trainstone
