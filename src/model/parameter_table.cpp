#include "model/parameter_table.hpp"

#include "core/error.hpp"
#include "kernels/norm_block.hpp"

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

/// A vector has one row, so its columns are cut.
std::pair<std::int64_t, std::int64_t> shape_of(Tensor tensor, GptConfig const& config, std::int64_t slices) {
  auto [rows, columns] = whole_shape(tensor, config);
  Split::Of const of = cut_of(tensor);
  if (slices == 1 || of == Split::Of::nothing) return {rows, columns};
  std::int64_t& extent = of == Split::Of::columns || rows == 1 ? columns : rows;
  std::int64_t const units = of == Split::Of::heads ? extent / 3 : extent;
  TRAINSTONE_REQUIRE_INPUT(units % slices == 0, "{} of {} cannot be cut into {} slices", units, to_string(tensor),
                           slices);
  extent /= slices;
  return {rows, columns};
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

ParameterTable::ParameterTable(GptConfig const& config, std::int64_t ranks, TensorSlices const& slices)
    : ParameterTable(config, ranks, ModelStage::whole(config), slices) {}

ParameterTable::ParameterTable(GptConfig const& config, std::int64_t ranks, ModelStage stage,
                               TensorSlices const& slices)
    : m_config(config), m_stage(std::move(stage)), m_slices(slices) {
  require_valid(config);
  TRAINSTONE_REQUIRE(ranks >= 1, "{} ranks", ranks);
  TRAINSTONE_REQUIRE(slices.ranks >= 1 && slices.count() >= 1 && slices.blocks % slices.ranks == 0 &&
                         0 <= slices.rank && slices.rank < slices.ranks,
                     "tensor rank {} of {} has no share of {} slices", slices.rank, slices.ranks, slices.blocks);
  TRAINSTONE_REQUIRE_INPUT(config.heads % slices.blocks == 0, "{} heads cannot be cut into {} slices", config.heads,
                           slices.blocks);
  std::vector<std::int64_t> const& blocks = m_stage.blocks;
  bool const ascends = std::ranges::adjacent_find(blocks, std::greater_equal()) == blocks.end();
  TRAINSTONE_REQUIRE(blocks.empty() || (ascends && blocks.front() >= 0 && blocks.back() < config.layers),
                     "the {} blocks of a stage are not ascending numbers below {}", blocks.size(), config.layers);
  bool const embed = m_stage.embed, head = m_stage.head;
  add_unit("root", -1,
           {{"token table", {Tensor::wte}, embed || head},
            {"position table", {Tensor::wpe}, embed},
            {"final norm", {Tensor::lnfw, Tensor::lnfb}, head}},
           ranks);
  std::vector<Tensor> block_members;
  for (int kind = 0; kind < tensor_kinds; ++kind)
    if (is_per_block(static_cast<Tensor>(kind))) block_members.push_back(static_cast<Tensor>(kind));
  for (std::int64_t block = 0; block < config.layers; ++block) {
    std::string const name = "block " + std::to_string(block);
    bool const is_here = std::ranges::binary_search(m_stage.blocks, block);
    add_unit(name, block, {{name, block_members, is_here}}, ranks);
  }
  TRAINSTONE_REQUIRE(!m_groups.empty(), "a stage has no parameters of {} blocks", config.layers);
}

void ParameterTable::add_unit(std::string const& name, std::int64_t block, std::vector<Members> const& groups,
                              std::int64_t ranks) {
  std::int64_t const first_group = std::ssize(m_groups), offset = m_groups.empty() ? 0 : size();
  std::size_t const first_tensor = m_tensors.size();
  for (Members const& members : groups) add_group(members, block, ranks);
  std::int64_t const groups_here = std::ssize(m_groups) - first_group;
  if (groups_here == 0) return;
  m_units.push_back({name, first_group, std::ssize(m_groups) - 1, offset, size() - offset});
  m_first_tensor.push_back(first_tensor);
}

std::int64_t ParameterTable::unit_of(std::int64_t block) const {
  bool const has_root = m_stage.embed || m_stage.head;
  if (block < 0 && has_root) return 0;
  auto const found = std::ranges::lower_bound(m_stage.blocks, block);
  TRAINSTONE_REQUIRE(block >= 0 && found != m_stage.blocks.end() && *found == block, "block {} is not here", block);
  return (found - m_stage.blocks.begin()) + (has_root ? 1 : 0);
}

/// Initial values and places in the whole group follow the order of llm.c's files. Memory goes section by section.
void ParameterTable::add_group(Members const& members, std::int64_t block, std::int64_t ranks) {
  std::vector<ParameterTensor> whole;
  std::int64_t whole_size = 0;
  for (Tensor const tensor : members.tensors) {
    auto const [rows, columns] = shape_of(tensor, m_config);
    ParameterTensor entry{.name = (block < 0 ? "" : members.name + " ") + std::string(to_string(tensor)),
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
  auto const is_cut = [&](Tensor tensor) { return m_slices.cuts() && cut_of(tensor) != Split::Of::nothing; };
  bool const has_slices = std::ranges::any_of(members.tensors, is_cut);
  bool const has_whole = !std::ranges::all_of(members.tensors, is_cut);
  std::int64_t const number = m_model_groups++, first_section = m_model_sections;
  std::int64_t const first_slice = first_section + (has_whole ? 1 : 0);
  m_model_sections = first_slice + (has_slices ? m_slices.blocks : 0);
  if (!members.is_here) return; // but its parameters are counted
  m_groups.push_back({members.name, m_groups.empty() ? 0 : size(), 0, 0, whole_size, number});
  if (has_whole) add_section(whole, ParameterSection::whole, first_section);
  for (std::int64_t slice = m_slices.first(); has_slices && slice < m_slices.first() + m_slices.count(); ++slice)
    add_section(whole, slice, first_slice + slice);
  std::int64_t const granule = ranks * norm_block, end = m_groups.back().end();
  m_groups.back().padded = (end + granule - 1) / granule * granule;
}

/// Of the tensors of the last group, those that slices do not cut, or their part in a slice.
void ParameterTable::add_section(std::vector<ParameterTensor> const& members, std::int64_t slice, std::int64_t number) {
  ParameterGroup& group = m_groups.back();
  std::int64_t const before = group.sections.empty() ? 0 : group.end();
  std::int64_t const begin = (before + norm_block - 1) / norm_block * norm_block;
  std::int64_t end = begin;
  for (ParameterTensor const& member : members) {
    Split::Of const of = m_slices.cuts() ? cut_of(member.tensor) : Split::Of::nothing;
    if ((of == Split::Of::nothing) != (slice == ParameterSection::whole)) continue;
    ParameterTensor entry = member;
    if (slice != ParameterSection::whole) {
      entry.name += " slice " + std::to_string(slice);
      entry.split = {of, m_slices.blocks, slice};
      std::tie(entry.rows, entry.columns) = shape_of(entry.tensor, m_config, m_slices.blocks);
    }
    entry.offset = group.offset + end;
    end += entry.size();
    m_tensors.push_back(std::move(entry));
  }
  group.sections.push_back({slice, {begin, end}, number});
  group.size += end - begin;
}

ParameterTensor const& ParameterTable::find(Tensor tensor, std::int64_t block, std::int64_t slice) const {
  auto const unit = static_cast<std::size_t>(unit_of(block));
  std::size_t const end = unit + 1 < m_first_tensor.size() ? m_first_tensor[unit + 1] : m_tensors.size();
  for (std::size_t i = m_first_tensor[unit]; i < end; ++i) {
    ParameterTensor const& entry = m_tensors[i];
    bool const is_cut = entry.split.of != Split::Of::nothing;
    if (entry.tensor == tensor && entry.block == block && (!is_cut || entry.split.part == m_slices.first() + slice))
      return entry;
  }
  throw Error(fmt::format("no tensor {} in block {}", to_string(tensor), block));
}

} // namespace trainstone
