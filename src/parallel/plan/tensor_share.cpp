#include "parallel/plan/tensor_share.hpp"

#include "model/parameter_runs.hpp"

namespace trainstone {

std::vector<TensorShare> tensor_shares(StateLayout const& layout, ParameterTable const& table) {
  std::vector<TensorShare> shares;
  for (Index group = 0; group < std::ssize(layout.groups); ++group) {
    Range const share = layout.share(group);
    for_each_tensor(table, group, share, [&](ParameterTensor const& tensor, Range const& here) {
      shares.push_back({group, {here.begin - share.begin, here.end - share.begin}, tensor.is_matrix});
    });
  }
  return shares;
}

} // namespace trainstone
