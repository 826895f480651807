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

void save_parameters(std::filesystem::path const& path, GptConfig const& config, ParameterTable const& table,
                     std::span<float const> parameters, Storage storage) {
  LlmcShape const shape = llmc_shape_of(config);
  LlmcModelWriter writer(path, shape, storage);
  for (LlmcTensor const& tensor : llmc_tensors(shape)) {
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      ParameterTensor const& entry = table_entry(table, tensor, layer);
      auto const part =
          parameters.subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.size()));
      std::vector<float> values(part.begin(), part.end());
      std::fill(values.begin() + common_elements(config, tensor), values.end(), 0.0f);
      writer.write(tensor, layer, values);
    }
  }
  writer.finish();
}

} // namespace trainstone
