#include "model/parameter_runs.hpp"

namespace trainstone {

std::vector<GroupRun> group_runs(ParameterTable const& table, Index group, Range const& part) {
  std::vector<GroupRun> runs;
  for_each_run(table, group, part, [&](ParameterRun const& run) { // here, a run begins where the one before ends
    Index const begin = run.tensor.whole_offset + run.in_whole, end = begin + run.size;
    if (!runs.empty() && runs.back().in_whole.end == begin)
      runs.back().in_whole.end = end;
    else
      runs.push_back({run.in_group, {begin, end}});
  });
  return runs;
}

} // namespace trainstone
