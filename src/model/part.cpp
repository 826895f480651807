#include "model/part.hpp"

#include "core/error.hpp"

namespace trainstone {

std::string to_string(Part part) {
  switch (part.kind) {
  case PartKind::embed: return "embed";
  case PartKind::attention: return fmt::format("attention {}", part.block);
  case PartKind::mlp: return fmt::format("mlp {}", part.block);
  case PartKind::head: return "head";
  }
  throw Error(fmt::format("no kind of part {}", static_cast<int>(part.kind)));
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

std::vector<Tensor> first_tensors_of_pieces(PartKind kind) {
  using enum Tensor;
  switch (kind) {
  case PartKind::mlp: return {fcprojw, fcw, ln2w};
  case PartKind::attention: return {attprojw, qkvw, ln1w};
  default: return {wte};
  }
}

PartTable::PartTable(ParameterTable const& table) : m_layers(std::ssize(table.groups()) - 1) {
  ParameterGroup const &root = table.groups().front(), &block = table.groups().back();
  m_backward[static_cast<std::size_t>(PartKind::head)] = {{{0, root.padded}, false}};
  m_backward[static_cast<std::size_t>(PartKind::embed)] = {{{0, root.padded}}};
  Index end = block.padded;
  for (PartKind const kind : {PartKind::mlp, PartKind::attention})
    for (Tensor const first : first_tensors_of_pieces(kind)) {
      Index const begin = table.find(first, m_layers - 1).offset - block.offset;
      m_backward[static_cast<std::size_t>(kind)].push_back({{begin, end}});
      end = begin;
    }
}

Part PartTable::operator[](Index number) const {
  if (number == 0) return {PartKind::embed};
  if (number == size() - 1) return {PartKind::head};
  return {number % 2 == 1 ? PartKind::attention : PartKind::mlp, (number - 1) / 2};
}

} // namespace trainstone
