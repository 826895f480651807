#include "model/parameter_table.hpp"

#include "core/error.hpp"
#include "kernels/norm_block.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
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

/// Rows and columns of a part.
std::pair<std::int64_t, std::int64_t> part_of(std::pair<std::int64_t, std::int64_t> whole, Split const& split,
                                              Tensor tensor) {
  std::int64_t& cut = split.of == Split::Of::rows ? whole.first : whole.second;
  bool const fits = split.of == Split::Of::nothing ? split.parts == 1 : cut % split.parts == 0;
  TRAINSTONE_REQUIRE_INPUT(fits && 0 <= split.part && split.part < split.parts, "{} of {} cannot be cut into {} parts",
                           cut, to_string(tensor), split.parts);
  if (split.of != Split::Of::nothing) cut /= split.parts;
  return whole;
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

std::pair<std::int64_t, std::int64_t> shape_of(Tensor tensor, GptConfig const& config) {
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

bool is_per_block(Tensor tensor) { return tensor >= Tensor::ln1w && tensor <= Tensor::fcprojb; }

ParameterTable::ParameterTable(GptConfig const& config, std::int64_t ranks,
                               std::function<Split(Tensor)> const& split_of)
    : ParameterTable(config, ranks, ModelStage::whole(config), split_of) {}

ParameterTable::ParameterTable(GptConfig const& config, std::int64_t ranks, ModelStage stage,
                               std::function<Split(Tensor)> const& split_of)
    : m_config(config), m_stage(std::move(stage)) {
  require_valid(config);
  TRAINSTONE_REQUIRE(ranks >= 1, "{} ranks", ranks);
  std::vector<std::int64_t> const& blocks = m_stage.blocks;
  bool const ascends = std::ranges::adjacent_find(blocks, std::greater_equal()) == blocks.end();
  TRAINSTONE_REQUIRE(blocks.empty() || (ascends && blocks.front() >= 0 && blocks.back() < config.layers),
                     "the {} blocks of a stage are not ascending numbers below {}", blocks.size(), config.layers);
  bool const embed = m_stage.embed, head = m_stage.head;
  add_unit("root", -1,
           {{"token table", {Tensor::wte}, embed || head},
            {"position table", {Tensor::wpe}, embed},
            {"final norm", {Tensor::lnfw, Tensor::lnfb}, head}},
           ranks, split_of);
  std::vector<Tensor> block_members;
  for (int kind = 0; kind < tensor_kinds; ++kind)
    if (is_per_block(static_cast<Tensor>(kind))) block_members.push_back(static_cast<Tensor>(kind));
  for (std::int64_t block = 0; block < config.layers; ++block) {
    std::string const name = "block " + std::to_string(block);
    bool const is_here = std::ranges::binary_search(m_stage.blocks, block);
    add_unit(name, block, {{name, block_members, is_here}}, ranks, split_of);
  }
  TRAINSTONE_REQUIRE(!m_groups.empty(), "a stage has no parameters of {} blocks", config.layers);
}

void ParameterTable::add_unit(std::string const& name, std::int64_t block, std::vector<Members> const& groups,
                              std::int64_t ranks, std::function<Split(Tensor)> const& split_of) {
  std::int64_t const first_group = std::ssize(m_groups), offset = m_groups.empty() ? 0 : size();
  for (Members const& members : groups) add_group(members, block, ranks, split_of);
  std::int64_t const groups_here = std::ssize(m_groups) - first_group;
  if (groups_here > 0) m_units.push_back({name, first_group, std::ssize(m_groups) - 1, offset, size() - offset});
}

std::int64_t ParameterTable::unit_of(std::int64_t block) const {
  bool const has_root = m_stage.embed || m_stage.head;
  if (block < 0 && has_root) return 0;
  auto const found = std::ranges::lower_bound(m_stage.blocks, block);
  TRAINSTONE_REQUIRE(block >= 0 && found != m_stage.blocks.end() && *found == block, "block {} is not here", block);
  return (found - m_stage.blocks.begin()) + (has_root ? 1 : 0);
}

void ParameterTable::add_group(Members const& members, std::int64_t block, std::int64_t ranks,
                               std::function<Split(Tensor)> const& split_of) {
  std::int64_t const group = std::ssize(m_groups);
  std::int64_t const first = m_groups.empty() ? 0 : size();
  std::int64_t offset = first, whole_offset = 0;
  for (Tensor tensor : members.tensors) {
    Split const split = split_of ? split_of(tensor) : Split();
    auto const [rows, columns] = part_of(shape_of(tensor, m_config), split, tensor);
    std::string const prefix = block < 0 ? "" : members.name + " ";
    ParameterTensor entry{prefix + std::string(to_string(tensor)),
                          tensor,
                          block,
                          group,
                          rows,
                          columns,
                          offset,
                          is_matrix(tensor),
                          {},
                          split,
                          whole_offset};
    entry.initial = initial_value(entry, m_config, m_model_parameters);
    m_model_parameters += tensor == Tensor::wte ? m_config.vocab * m_config.channels : entry.whole_size();
    offset += entry.size();
    whole_offset += entry.whole_size();
    if (members.is_here) m_tensors.push_back(std::move(entry));
  }
  std::int64_t const number = m_model_groups++;
  if (!members.is_here) return; // but its parameters are counted
  std::int64_t const granule = ranks * norm_block;
  std::int64_t const elements = offset - first;
  m_groups.push_back(
      {members.name, first, elements, (elements + granule - 1) / granule * granule, whole_offset, number});
}

ParameterTensor const& ParameterTable::find(Tensor tensor, std::int64_t block) const {
  for (ParameterTensor const& entry : m_tensors)
    if (entry.tensor == tensor && entry.block == block) return entry;
  throw Error(fmt::format("no tensor {} in block {}", to_string(tensor), block));
}

} // namespace trainstone
