#include "model/parameter_runs.hpp"

#include <algorithm>

namespace trainstone {

std::vector<GroupRun> group_runs(ParameterTable const& table, Index group, Range const& part,
                                 std::function<bool(ParameterTensor const&)> const& has) {
  std::vector<GroupRun> runs;
  Index const size = table.groups()[static_cast<std::size_t>(group)].whole_size;
  for_each_run(table, group, part, [&](ParameterRun const& run) {
    Index const begin = run.tensor.whole_offset + run.in_whole, end = std::min(begin + run.size, size);
    if (begin >= end || (has && !has(run.tensor))) return;
    bool const follows = !runs.empty() && runs.back().in_group + runs.back().in_whole.size() == run.in_group;
    if (follows && runs.back().in_whole.end == begin)
      runs.back().in_whole.end = end;
    else
      runs.push_back({run.in_group, {begin, end}});
  });
  return runs;
}

} // namespace trainstone
