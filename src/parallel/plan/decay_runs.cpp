#include "parallel/plan/decay_runs.hpp"

#include "model/parameter_runs.hpp"

namespace trainstone {

std::vector<DecayRun> decay_runs(StateLayout const& layout, ParameterTable const& table) {
  std::vector<DecayRun> runs;
  for (Index group = 0; group < std::ssize(layout.groups); ++group) {
    Range const share = layout.share(group);
    for_each_tensor(table, group, share, [&](ParameterTensor const& tensor, Range const& here) {
      Range const range{here.begin - share.begin, here.end - share.begin};
      bool const goes_on = !runs.empty() && runs.back().group == group && runs.back().range.end == range.begin &&
                           runs.back().is_matrix == tensor.is_matrix;
      if (goes_on)
        runs.back().range.end = range.end;
      else
        runs.push_back({group, range, tensor.is_matrix});
    });
  }
  return runs;
}

} // namespace trainstone
