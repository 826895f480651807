#pragma once

// Where the elements that are here lie in the whole model. One walk knows where tensors begin, how splits cut them, and
// where padding is. It goes over a part of a group: a rank's share, a chunk of it, or all. Initial values, model files,
// the optimizer, the changes of parameters, the hash and checkpoints go over it. Plain values.

#include "comm/schedule/partition.hpp"
#include "model/parameter_table.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace trainstone {

/// Calls visit(ParameterTensor, Range) for each tensor that has elements in the part of a group, in order, with the
/// range of these elements, counted from the group's begin here.
template <class Visit>
void for_each_tensor(ParameterTable const& table, Index group, Range const& part, Visit const& visit) {
  Index const offset = table.groups()[static_cast<std::size_t>(group)].offset;
  for (ParameterTensor const& tensor : std::ranges::equal_range(table.tensors(), group, {}, &ParameterTensor::group)) {
    Index const first = tensor.offset - offset;
    Range const here{std::max(first, part.begin), std::min(first + tensor.size(), part.end)};
    if (here.begin < here.end) visit(tensor, here);
  }
}

/// Elements that lie side by side here and in the whole tensor, row after row.
struct ParameterRun {
  ParameterTensor const& tensor;
  Index in_group; ///< its first element, counted from the group's begin here
  Index in_whole; ///< its first element, counted from the whole tensor's begin
  Index size;
};

/// Calls visit(ParameterRun) for the elements `part` of a group, in order. Padding is left out. A tensor that is whole,
/// or whose rows are cut, is one run; if its heads are cut, it is three runs; if its columns are cut, every row is one,
/// or, of a vector, its heads.
template <class Visit>
void for_each_run(ParameterTable const& table, Index group, Range const& part, Visit const& visit) {
  Index const offset = table.groups()[static_cast<std::size_t>(group)].offset;
  for_each_tensor(table, group, part, [&](ParameterTensor const& tensor, Range const& here) {
    DimensionCut const of_rows = tensor.cut_of_rows(), of_columns = tensor.cut_of_columns();
    bool const cuts_columns = of_columns.parts > 1;
    Index const first = tensor.offset - offset, group_rows = tensor.rows / of_rows.groups;
    Index const length = cuts_columns ? tensor.columns / of_columns.groups : group_rows * tensor.columns;
    auto const begin_in_whole = [&](Index number) {
      if (!cuts_columns) return of_rows.begin(number, length);
      Index const row = number / of_columns.groups,
                  whole_row = of_rows.begin(row / group_rows, group_rows) + row % group_rows;
      return whole_row * tensor.columns * of_columns.parts + of_columns.begin(number % of_columns.groups, length);
    };
    for (Index begin = here.begin; begin < here.end;) {
      Index const number = (begin - first) / length, place = (begin - first) % length;
      Index const size = std::min(length - place, here.end - begin);
      visit(ParameterRun{tensor, begin, begin_in_whole(number) + place, size});
      begin += size;
    }
  });
}

/// Elements that lie side by side here and in the group of whole tensors, across the borders of tensors.
struct GroupRun {
  Index in_group; ///< its first element, counted from the group's begin here
  Range in_whole; ///< counted from the begin of the group of whole tensors, which is the same for every split
  bool operator==(GroupRun const&) const = default;
};

/// The elements `part` of a group as few runs, in order, without padding, also without that of the vocabulary. Where no
/// tensor is split, they are one run, or none.
/// \param[in] has  the tensors whose elements count; empty: all
std::vector<GroupRun> group_runs(ParameterTable const& table, Index group, Range const& part,
                                 std::function<bool(ParameterTensor const&)> const& has = {});

} // namespace trainstone
