#include "model/part.hpp"

#include "core/error.hpp"
#include "model/part_lists.hpp"

#include <algorithm>
#include <numeric>
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

std::vector<Part> parts(Index layers) { return parts(ModelStage::whole({.layers = layers})); }

std::vector<Part> parts(ModelStage const& stage) {
  std::vector<Part> all;
  if (stage.embed) all.push_back({PartKind::embed});
  for (Index const block : stage.blocks) {
    all.push_back({PartKind::attention, block});
    all.push_back({PartKind::mlp, block});
  }
  if (stage.head) all.push_back({PartKind::head});
  return all;
}

std::vector<Index> blocks_by_chunk(ModelStage const& stage) {
  if (stage.chunks.empty()) return {std::ssize(stage.blocks)};
  Index const blocks = std::accumulate(stage.chunks.begin(), stage.chunks.end(), Index{0});
  TRAINSTONE_REQUIRE(blocks == std::ssize(stage.blocks), "the chunks of a stage have {} blocks, the stage has {}",
                     blocks, stage.blocks.size());
  return stage.chunks;
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

/// Where the tensors of a block lie in its group, as few ranges, ascending.
std::vector<Range> ranges_in_group(ParameterTable const& table, ParameterGroup const& group, Index block,
                                   std::vector<Tensor> const& tensors) {
  std::vector<std::pair<Index, bool>> begins; // of every tensor of the block; whether it is one of these
  for (ParameterTensor const& tensor : table.tensors())
    if (tensor.block == block)
      begins.emplace_back(tensor.offset - group.offset, std::ranges::find(tensors, tensor.tensor) != tensors.end());
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    auto const [begin, is_one] = begins[i];
    if (!is_one) continue;
    Index const end = i + 1 < begins.size() ? begins[i + 1].first : group.padded;
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  }
  return ranges;
}

} // namespace

PartTable::PartTable(ParameterTable const& table, GptOptions options)
    : m_layers(table.layers()), m_stage(table.stage()), m_options(std::move(options)), m_of_unit(table.units().size()) {
  for (Part const part : parts(table.stage())) {
    Index const unit = table.unit_of(part.block);
    std::vector<Index>& of_unit = m_of_unit[static_cast<std::size_t>(unit)];
    m_parts.push_back({part, unit, part.block < 0 ? 0 : std::ssize(of_unit) / 2});
    of_unit.push_back(size() - 1);
  }
  add_chunks(table.stage());
  if (table.stage().embed || table.stage().head) add_root_pieces(table);
  if (!table.stage().blocks.empty()) add_block_pieces(table);
}

void PartTable::add_chunks(ModelStage const& stage) {
  Index end = stage.embed ? 1 : 0;
  for (Index const blocks : blocks_by_chunk(stage)) {
    Index const begin = m_chunks.empty() ? 0 : end;
    end += 2 * blocks;
    m_chunks.push_back({begin, end});
  }
  if (stage.head) ++m_chunks.back().end;
}

void PartTable::add_root_pieces(ParameterTable const& table) {
  bool const embed = table.stage().embed, head = table.stage().head;
  Index const padded = table.units().front().padded;
  if (head)
    for (std::vector<Tensor> const& written : gradients_written(PartKind::head, m_options))
      at(PartKind::head).push_back({groups_in_root(table, written), padded});
  if (head && !embed) at(PartKind::head).back().complete_from = 0;
  if (!embed) return;
  for (std::vector<Tensor> const& written : gradients_written(PartKind::embed, m_options))
    at(PartKind::embed).push_back({groups_in_root(table, written), padded});
  at(PartKind::embed).back().complete_from = 0;
}

namespace {

BackwardPiece shifted(BackwardPiece piece, Index elements) {
  piece.complete_from += elements;
  for (Range& range : piece.written) range = {range.begin + elements, range.end + elements};
  return piece;
}

} // namespace

/// All blocks are alike, and lie in their unit side by side. What lies behind a tensor belongs to it.
void PartTable::add_block_pieces(ParameterTable const& table) {
  Index const block = table.stage().blocks.front();
  ParameterGroup const& group = table.groups()[static_cast<std::size_t>(table.find(Tensor::ln1w, block).group)];
  Index const places = std::ranges::max(m_parts, {}, &PlacedPart::place).place + 1;
  m_backward.resize(static_cast<std::size_t>(places));
  std::vector<Range> later; // what pieces write that come later
  for (PartKind const kind : {PartKind::attention, PartKind::mlp}) {
    std::vector<BackwardPiece>& pieces = at(kind);
    for (std::vector<Tensor> const& written : std::views::reverse(gradients_written(kind, m_options))) {
      std::vector<Range> const ranges = ranges_in_group(table, group, block, written);
      Index const complete_from = later.empty() ? 0 : std::ranges::max(later, {}, &Range::end).end;
      pieces.insert(pieces.begin(), {ranges, complete_from});
      later.insert(later.end(), ranges.begin(), ranges.end());
    }
    for (Index place = 1; place < places; ++place)
      for (BackwardPiece const& piece : pieces)
        m_backward[static_cast<std::size_t>(place)][static_cast<std::size_t>(kind)].push_back(
            shifted(piece, place * group.padded));
  }
}

} // namespace trainstone
