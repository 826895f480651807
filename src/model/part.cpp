#include "model/part.hpp"

#include "core/error.hpp"
#include "model/part_lists.hpp"

#include <algorithm>
#include <ranges>
#include <set>

namespace trainstone {

std::string_view to_string(PartKind kind) {
  switch (kind) {
  case PartKind::embed: return "embed";
  case PartKind::attention: return "attention";
  case PartKind::mlp: return "mlp";
  case PartKind::head: return "head";
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(kind)));
}

std::string to_string(Part part) {
  std::string const kind(to_string(part.kind));
  return part.block < 0 ? kind : fmt::format("{} {}", kind, part.block);
}

std::vector<Part> parts(Index layers) {
  std::vector<Part> all{{PartKind::embed}};
  for (Index block = 0; block < layers; ++block) {
    all.push_back({PartKind::attention, block});
    all.push_back({PartKind::mlp, block});
  }
  all.push_back({PartKind::head});
  return all;
}

namespace {

/// Where the groups of these tensors lie in root.
std::vector<Range> groups_in_root(ParameterTable const& table, std::vector<Tensor> const& tensors) {
  std::set<Index> groups;
  for (Tensor const tensor : tensors) groups.insert(table.find(tensor).group);
  std::vector<Range> ranges;
  for (Index const group : groups) {
    ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
    Index const begin = entry.offset - table.units().front().offset;
    ranges.push_back({begin, begin + entry.padded});
  }
  return ranges;
}

} // namespace

PartTable::PartTable(ParameterTable const& table, GptOptions options)
    : m_layers(std::ssize(table.units()) - 1), m_options(std::move(options)) {
  at(PartKind::head) = {
      {groups_in_root(table, gradients_written(PartKind::head).front()), table.units().front().padded}};
  at(PartKind::embed) = {{groups_in_root(table, gradients_written(PartKind::embed).front()), 0}};
  Index end = table.units()[1].padded; // all blocks are alike
  for (PartKind const kind : {PartKind::mlp, PartKind::attention})
    for (std::vector<Tensor> const& written : gradients_written(kind)) {
      auto const place = [&](Tensor tensor) { return table.offset_in_unit(table.find(tensor, 0)); };
      Index const begin = std::ranges::min(written | std::views::transform(place));
      at(kind).push_back({{{begin, end}}, begin});
      end = begin;
    }
}

Part PartTable::operator[](Index number) const {
  if (number == 0) return {PartKind::embed};
  if (number == size() - 1) return {PartKind::head};
  return {number % 2 == 1 ? PartKind::attention : PartKind::mlp, (number - 1) / 2};
}

} // namespace trainstone
