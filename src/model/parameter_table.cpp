#include "model/parameter_table.hpp"

#include "core/error.hpp"
#include "kernels/norm_block.hpp"
#include "model/part.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

namespace trainstone {

namespace {

constexpr double initial_deviation = 0.02; // Language Models are Unsupervised Multitask Learners

constexpr std::array<std::string_view, tensor_kinds> names{"wte",      "wpe",      "ln1w", "ln1b", "qkvw", "qkvb",
                                                           "attprojw", "attprojb", "ln2w", "ln2b", "fcw",  "fcb",
                                                           "fcprojw",  "fcprojb",  "lnfw", "lnfb"};

bool is_matrix(Tensor tensor) {
  switch (tensor) {
  case Tensor::wte:
  case Tensor::wpe:
  case Tensor::qkvw:
  case Tensor::attprojw:
  case Tensor::fcw:
  case Tensor::fcprojw: return true;
  default: return false;
  }
}

std::pair<std::int64_t, std::int64_t> whole_shape(Tensor tensor, GptConfig const& config) {
  std::int64_t const c = config.channels;
  switch (tensor) {
  case Tensor::wte: return {config.padded_vocab(), c};
  case Tensor::wpe: return {config.context, c};
  case Tensor::qkvw: return {3 * c, c};
  case Tensor::qkvb: return {1, 3 * c};
  case Tensor::attprojw: return {c, c};
  case Tensor::fcw: return {4 * c, c};
  case Tensor::fcb: return {1, 4 * c};
  case Tensor::fcprojw: return {c, 4 * c};
  default: return {1, c};
  }
}

InitialValue initial_value(ParameterTensor const& entry, GptConfig const& config, std::int64_t first_counter) {
  Tensor const tensor = entry.tensor;
  if (tensor == Tensor::ln1w || tensor == Tensor::ln2w || tensor == Tensor::lnfw) return {.constant = 1.0};
  if (!entry.is_matrix) return {};
  bool const residual_projection = tensor == Tensor::attprojw || tensor == Tensor::fcprojw;
  double const scale = residual_projection ? 1.0 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 1.0;
  std::int64_t const elements = tensor == Tensor::wte ? config.vocab * config.channels : entry.whole_size();
  return {.deviation = initial_deviation * scale, .random_elements = elements, .first_counter = first_counter};
}

} // namespace

std::string_view to_string(Tensor tensor) { return names.at(static_cast<std::size_t>(tensor)); }

Split::Of cut_of(Tensor tensor) {
  switch (tensor) {
  case Tensor::wte:
  case Tensor::fcw:
  case Tensor::fcb: return Split::Of::rows;
  case Tensor::qkvw:
  case Tensor::qkvb: return Split::Of::heads;
  case Tensor::attprojw:
  case Tensor::fcprojw: return Split::Of::columns;
  default: return Split::Of::nothing;
  }
}

/// What slices cut, they cut along the features of a layer's inside. The other dimension is that of the stream.
Split::Of features_cut_of(Tensor tensor) {
  switch (tensor) {
  case Tensor::wte:
  case Tensor::wpe:
  case Tensor::qkvw:
  case Tensor::fcw: return Split::Of::columns;
  case Tensor::qkvb:
  case Tensor::fcb: return Split::Of::nothing;
  default: return Split::Of::rows;
  }
}

namespace {

/// A vector has one row, so its columns are cut.
void cut_shape(Tensor tensor, Split::Of of, std::int64_t parts, char const* what,
               std::pair<std::int64_t, std::int64_t>& shape) {
  if (parts == 1 || of == Split::Of::nothing) return;
  std::int64_t& extent = of == Split::Of::columns || !is_matrix(tensor) ? shape.second : shape.first;
  std::int64_t const units = of == Split::Of::heads ? extent / 3 : extent;
  TRAINSTONE_REQUIRE_INPUT(units % parts == 0, "{} of {} cannot be cut into {} {}", units, to_string(tensor), parts,
                           what);
  extent /= parts;
}

} // namespace

std::pair<std::int64_t, std::int64_t> shape_of(Tensor tensor, GptConfig const& config, TensorSlices const& slices) {
  std::pair<std::int64_t, std::int64_t> shape = whole_shape(tensor, config);
  cut_shape(tensor, cut_of(tensor), slices.blocks, "slices", shape);
  cut_shape(tensor, features_cut_of(tensor), slices.feature_parts, "parts of the features", shape);
  return shape;
}

bool is_per_block(Tensor tensor) { return tensor >= Tensor::ln1w && tensor <= Tensor::fcprojb; }

std::vector<Range> ParameterGroup::padding() const {
  std::vector<Range> behind;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    std::int64_t const end = i + 1 < sections.size() ? sections[i + 1].elements.begin : padded;
    if (sections[i].elements.end < end) behind.push_back({sections[i].elements.end, end});
  }
  return behind;
}

ParameterTable::ParameterTable(GptConfig const& config, std::int64_t ranks, TensorSlices const& slices,
                               std::int64_t unit_blocks)
    : ParameterTable(config, ranks, ModelStage::whole(config), slices, unit_blocks) {}

ParameterTable::ParameterTable(GptConfig const& config, std::int64_t ranks, ModelStage stage,
                               TensorSlices const& slices, std::int64_t unit_blocks)
    : m_config(config), m_stage(std::move(stage)), m_slices(slices) {
  require_valid(config);
  TRAINSTONE_REQUIRE(ranks >= 1, "{} ranks", ranks);
  TRAINSTONE_REQUIRE(slices.ranks >= 1 && slices.count() >= 1 && slices.blocks % slices.ranks == 0 &&
                         0 <= slices.rank && slices.rank < slices.ranks,
                     "tensor rank {} of {} has no share of {} slices", slices.rank, slices.ranks, slices.blocks);
  TRAINSTONE_REQUIRE(0 <= slices.feature_part && slices.feature_part < slices.feature_parts,
                     "part {} of {} of the features", slices.feature_part, slices.feature_parts);
  TRAINSTONE_REQUIRE_INPUT(config.heads % slices.blocks == 0, "{} heads cannot be cut into {} slices", config.heads,
                           slices.blocks);
  std::vector<std::int64_t> const& blocks = m_stage.blocks;
  bool const ascends = std::ranges::adjacent_find(blocks, std::greater_equal()) == blocks.end();
  TRAINSTONE_REQUIRE(blocks.empty() || (ascends && blocks.front() >= 0 && blocks.back() < config.layers),
                     "the {} blocks of a stage are not ascending numbers below {}", blocks.size(), config.layers);
  TRAINSTONE_REQUIRE(unit_blocks >= 1, "units of {} blocks", unit_blocks);
  bool const embed = m_stage.embed, head = m_stage.head;
  add_group({"token table", {Tensor::wte}, embed || head}, -1, ranks);
  add_group({"position table", {Tensor::wpe}, embed}, -1, ranks);
  add_group({"final norm", {Tensor::lnfw, Tensor::lnfb}, head}, -1, ranks);
  std::vector<Tensor> block_members;
  for (int kind = 0; kind < tensor_kinds; ++kind)
    if (is_per_block(static_cast<Tensor>(kind))) block_members.push_back(static_cast<Tensor>(kind));
  m_tensors.reserve(static_cast<std::size_t>(slices.count()) * (4 + block_members.size() * blocks.size()));
  for (std::int64_t block = 0; block < config.layers; ++block) {
    bool const is_here = std::ranges::binary_search(m_stage.blocks, block);
    add_group({"block " + std::to_string(block), block_members, is_here}, block, ranks);
  }
  TRAINSTONE_REQUIRE(!m_groups.empty(), "a stage has no parameters of {} blocks", config.layers);
  make_units(unit_blocks);
}

void ParameterTable::make_units(std::int64_t unit_blocks) {
  if (groups_of_root() > 0) add_unit("root", groups_of_root());
  auto first = m_stage.blocks.begin();
  for (std::int64_t const of_chunk : blocks_by_chunk(m_stage))
    for (auto const end = first + of_chunk; first < end;) {
      std::int64_t const blocks = std::min<std::int64_t>(unit_blocks, end - first);
      auto const last = first + blocks - 1;
      m_unit_of_block.insert(m_unit_of_block.end(), static_cast<std::size_t>(blocks), std::ssize(m_units));
      add_unit(blocks == 1 ? fmt::format("block {}", *first) : fmt::format("blocks {} to {}", *first, *last), blocks);
      first = last + 1;
    }
}

/// Of the next groups.
void ParameterTable::add_unit(std::string name, std::int64_t groups) {
  std::int64_t const first = m_units.empty() ? 0 : m_units.back().last_group + 1, last = first + groups - 1;
  std::int64_t const begin = m_groups[static_cast<std::size_t>(first)].offset;
  ParameterGroup const& end = m_groups[static_cast<std::size_t>(last)];
  m_units.push_back({std::move(name), first, last, begin, end.offset + end.padded - begin});
}

/// Among the blocks that are here.
std::int64_t ParameterTable::place_of(std::int64_t block) const {
  auto const found = std::ranges::lower_bound(m_stage.blocks, block);
  TRAINSTONE_REQUIRE(found != m_stage.blocks.end() && *found == block, "block {} is not here", block);
  return found - m_stage.blocks.begin();
}

std::int64_t ParameterTable::unit_of(std::int64_t block) const {
  if (block < 0 && groups_of_root() > 0) return 0;
  return m_unit_of_block[static_cast<std::size_t>(place_of(block))];
}

/// Initial values and places in the whole group follow the order of llm.c's files. Memory goes section by section.
void ParameterTable::add_group(Members const& members, std::int64_t block, std::int64_t ranks) {
  std::vector<ParameterTensor> whole;
  whole.reserve(members.tensors.size());
  std::int64_t whole_size = 0;
  std::string const prefix = block < 0 ? "" : members.name + " ";
  for (Tensor const tensor : members.tensors) {
    auto const [rows, columns] = shape_of(tensor, m_config);
    ParameterTensor entry{.name = members.is_here ? prefix + std::string(to_string(tensor)) : "",
                          .tensor = tensor,
                          .block = block,
                          .group = std::ssize(m_groups),
                          .rows = rows,
                          .columns = columns,
                          .offset = 0,
                          .is_matrix = is_matrix(tensor),
                          .initial = {},
                          .whole_offset = whole_size};
    entry.initial = initial_value(entry, m_config, m_model_parameters);
    std::int64_t const published = tensor == Tensor::wte ? m_config.vocab * m_config.channels : entry.size();
    m_model_parameters += published;
    whole_size += published;
    whole.push_back(std::move(entry));
  }
  std::int64_t const number = m_model_groups++;
  if (members.is_here) {
    m_first_tensor.push_back(m_tensors.size());
    m_groups.push_back({members.name, m_groups.empty() ? 0 : size(), 0, 0, whole_size, number});
  }
  for (bool const by_slice : {false, true})
    for (bool const by_part : {false, true}) add_sections(whole, by_slice, by_part, members.is_here);
  if (!members.is_here) return; // but its parameters and sections are counted
  std::int64_t const granule = ranks * norm_block, end = m_groups.back().end();
  m_groups.back().padded = (end + granule - 1) / granule * granule;
}

/// Whether it is a tensor that slices cut, or do not, and parts of the features, too.
bool ParameterTable::cuts(Tensor tensor, bool by_slice, bool by_part) const {
  bool const cut_by_slices = m_slices.cuts() && cut_of(tensor) != Split::Of::nothing;
  bool const cut_by_parts = m_slices.cut_features() && features_cut_of(tensor) != Split::Of::nothing;
  return cut_by_slices == by_slice && cut_by_parts == by_part;
}

/// Of all tensors that are cut so there is a section for every slice and part, of which some are here.
void ParameterTable::add_sections(std::vector<ParameterTensor> const& members, bool by_slice, bool by_part,
                                  bool are_here) {
  auto const is_one = [&](ParameterTensor const& member) { return cuts(member.tensor, by_slice, by_part); };
  if (std::ranges::none_of(members, is_one)) return;
  std::int64_t const first = m_model_sections, parts = by_part ? m_slices.feature_parts : 1;
  m_model_sections += (by_slice ? m_slices.blocks : 1) * parts;
  std::int64_t const part = by_part ? m_slices.feature_part : 0, begin = by_slice ? m_slices.first() : 0,
                     end = by_slice ? begin + m_slices.count() : 1;
  for (std::int64_t slice = begin; are_here && slice < end; ++slice)
    add_section(members, {by_slice ? slice : ParameterSection::whole,
                          {},
                          first + slice * parts + part,
                          by_part ? part : ParameterSection::whole});
}

/// Of the tensors of the last group, those that are cut like the section: their part that is in it.
void ParameterTable::add_section(std::vector<ParameterTensor> const& members, ParameterSection section) {
  ParameterGroup& group = m_groups.back();
  std::int64_t const before = group.sections.empty() ? 0 : group.end();
  std::int64_t const begin = (before + norm_block - 1) / norm_block * norm_block;
  std::int64_t end = begin;
  for (ParameterTensor const& member : members) {
    if (!cuts(member.tensor, section.is_of_slice(), section.is_of_part())) continue;
    ParameterTensor entry = member;
    if (section.is_of_slice()) {
      entry.name += " slice " + std::to_string(section.slice);
      entry.split = {cut_of(entry.tensor), m_slices.blocks, section.slice};
    }
    if (section.is_of_part()) {
      entry.name += " part " + std::to_string(section.feature_part);
      entry.features = {features_cut_of(entry.tensor), m_slices.feature_parts, section.feature_part};
    }
    std::tie(entry.rows, entry.columns) = shape_of(entry.tensor, m_config, m_slices);
    entry.offset = group.offset + end;
    end += entry.size();
    m_tensors.push_back(std::move(entry));
  }
  section.elements = {begin, end};
  group.sections.push_back(section);
  group.size += end - begin;
}

ParameterTensor const& ParameterTable::find(Tensor tensor, std::int64_t block, std::int64_t slice) const {
  bool const is_of_block = block >= 0;
  auto const first = static_cast<std::size_t>(is_of_block ? groups_of_root() + place_of(block) : 0);
  auto const behind = is_of_block ? first + 1 : static_cast<std::size_t>(groups_of_root());
  std::size_t const end = behind < m_first_tensor.size() ? m_first_tensor[behind] : m_tensors.size();
  for (std::size_t i = m_first_tensor[first]; i < end; ++i) {
    ParameterTensor const& entry = m_tensors[i];
    if (entry.tensor == tensor && entry.block == block &&
        (!entry.split.cuts() || entry.split.part == m_slices.first() + slice))
      return entry;
  }
  throw Error(fmt::format("no tensor {} in block {}", to_string(tensor), block));
}

} // namespace trainstone
