#include "model/part.hpp"

#include "core/error.hpp"
#include "model/part_lists.hpp"

#include <algorithm>
#include <ranges>

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

PartTable::PartTable(ParameterTable const& table) : m_layers(std::ssize(table.groups()) - 1) {
  ParameterGroup const &root = table.groups()[0], &block = table.groups()[1]; // all blocks are alike
  at(PartKind::head) = {{{0, root.padded}, false}};
  at(PartKind::embed) = {{{0, root.padded}}};
  Index end = block.padded;
  for (PartKind const kind : {PartKind::mlp, PartKind::attention})
    for (std::vector<Tensor> const& written : gradients_written(kind)) {
      auto const place = [&](Tensor tensor) { return table.find(tensor, 0).offset - block.offset; };
      Index const begin = std::ranges::min(written | std::views::transform(place));
      at(kind).push_back({{begin, end}});
      end = begin;
    }
}

Part PartTable::operator[](Index number) const {
  if (number == 0) return {PartKind::embed};
  if (number == size() - 1) return {PartKind::head};
  return {number % 2 == 1 ? PartKind::attention : PartKind::mlp, (number - 1) / 2};
}

} // namespace trainstone
