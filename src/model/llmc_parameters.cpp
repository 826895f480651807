#include "model/llmc_parameters.hpp"

#include "core/error.hpp"
#include "core/host_copy.hpp"

#include <algorithm>

namespace trainstone {

namespace {

std::string describe(GptConfig const& config) {
  return fmt::format("{} layers, {} heads, {} channels, context {}, vocabulary {}", config.layers, config.heads,
                     config.channels, config.context, config.vocab);
}

} // namespace

GptConfig config_of(LlmcShape const& shape) {
  return {shape.layers, shape.heads, shape.channels, shape.context, shape.vocab};
}

LlmcShape llmc_shape_of(GptConfig const& config) {
  return {config.context, config.vocab, config.layers, config.heads, config.channels, config.padded_vocab()};
}

ParameterTensor const& table_entry(ParameterTable const& table, LlmcTensor const& tensor, Index layer) {
  for (int kind = 0; kind < tensor_kinds; ++kind)
    if (to_string(static_cast<Tensor>(kind)) == tensor.name)
      return table.find(static_cast<Tensor>(kind), is_per_block(static_cast<Tensor>(kind)) ? layer : -1);
  throw Error(fmt::format("no tensor {}", tensor.name));
}

Index common_elements(GptConfig const& config, LlmcTensor const& tensor) {
  return tensor.name == to_string(Tensor::wte) ? config.vocab * config.channels : tensor.extent();
}

void load_parameters(ExecutionSpace const& exec, std::filesystem::path const& path, GptConfig const& config,
                     ParameterTable const& table, Index group, Range part, Vector<float> values) {
  LlmcModelReader reader(path);
  TRAINSTONE_REQUIRE_INPUT(config_of(reader.shape()) == config, "{}: the model has {}; the deck asks for {}",
                           path.string(), describe(config_of(reader.shape())), describe(config));
  Index const offset = table.groups()[static_cast<std::size_t>(group)].offset;
  for (LlmcTensor const& tensor : llmc_tensors(reader.shape())) {
    std::vector<float> slice(static_cast<std::size_t>(tensor.extent()));
    Index const count = common_elements(config, tensor);
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      ParameterTensor const& entry = table_entry(table, tensor, layer);
      Index const first = entry.offset - offset;
      Range const here{std::max(first, part.begin), std::min(first + count, part.end)};
      if (entry.group != group || here.end <= here.begin) continue;
      reader.read(tensor, layer, slice);
      auto const size = static_cast<std::size_t>(here.size());
      copy_from_host<float>(exec,
                            std::span<float const>(slice).subspan(static_cast<std::size_t>(here.begin - first), size),
                            Vector<float>(values.data() + (here.begin - part.begin), size),
                            "trainstone::model::load_parameters: the host buffer is reused");
    }
  }
}

ParameterWriter::ParameterWriter(std::filesystem::path const& path, GptConfig const& config,
                                 ParameterTable const& table, Storage storage)
    : m_file(path, llmc_shape_of(config), storage), m_slices(table.groups().size()) {
  for (LlmcTensor const& tensor : llmc_tensors(llmc_shape_of(config)))
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      ParameterTensor const& entry = table_entry(table, tensor, layer);
      auto const group = static_cast<std::size_t>(entry.group);
      Index const first = entry.offset - table.groups()[group].offset;
      m_slices[group].push_back({{first, first + entry.size()}, tensor, layer, common_elements(config, tensor)});
    }
}

void ParameterWriter::write(Index group, Index first, std::span<float const> values) {
  std::vector<float> const zeros(std::min<std::size_t>(values.size(), 4096));
  Range const given{first, first + static_cast<Index>(values.size())};
  for (Slice const& slice : m_slices[static_cast<std::size_t>(group)]) {
    Range const here{std::max(given.begin, slice.range.begin), std::min(given.end, slice.range.end)};
    Index const own = std::clamp(slice.range.begin + slice.common, here.begin, std::max(here.begin, here.end));
    if (own > here.begin)
      m_file.write(
          slice.tensor, slice.layer, here.begin - slice.range.begin,
          values.subspan(static_cast<std::size_t>(here.begin - first), static_cast<std::size_t>(own - here.begin)));
    for (Index begin = own; begin < here.end; begin += std::ssize(zeros))
      m_file.write(slice.tensor, slice.layer, begin - slice.range.begin,
                   std::span(zeros).first(std::min(zeros.size(), static_cast<std::size_t>(here.end - begin))));
  }
}

} // namespace trainstone
