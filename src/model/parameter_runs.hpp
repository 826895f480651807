#pragma once

// Where the elements that are here lie in whole tensors. One walk knows how splits cut tensors, and where padding is.
// Initial values, model files and the changes of parameters go over it. Plain values.

#include "comm/schedule/partition.hpp"
#include "model/parameter_table.hpp"

#include <algorithm>

namespace trainstone {

/// Elements that lie side by side here and in the whole tensor, row after row.
struct ParameterRun {
  ParameterTensor const& tensor;
  Index in_group; ///< its first element, counted from the group's begin here
  Index in_whole; ///< its first element, counted from the whole tensor's begin
  Index size;
};

/// Calls visit(ParameterRun) for the elements `part` of a group, in order. Padding behind the tensors is left out. A
/// tensor that is whole, or whose rows are split, is one run; if its columns are split, every row is one.
template <class Visit>
void for_each_run(ParameterTable const& table, Index group, Range const& part, Visit const& visit) {
  Index const offset = table.groups()[static_cast<std::size_t>(group)].offset;
  for (ParameterTensor const& tensor : table.tensors()) {
    if (tensor.group != group) continue;
    Split const& split = tensor.split;
    Index const first = tensor.offset - offset, end = std::min(first + tensor.size(), part.end);
    Index const length = split.of == Split::Of::columns ? tensor.columns : tensor.size();
    for (Index begin = std::max(first, part.begin); begin < end;) {
      Index const number = (begin - first) / length, place = (begin - first) % length;
      Index const size = std::min(length - place, end - begin);
      visit(ParameterRun{tensor, begin, (number * split.parts + split.part) * length + place, size});
      begin += size;
    }
  }
}

} // namespace trainstone
