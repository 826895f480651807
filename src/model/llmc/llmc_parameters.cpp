#include "model/llmc/llmc_parameters.hpp"

#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "model/parameter_runs.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trainstone {

namespace {

std::string describe(GptConfig const& config) {
  return fmt::format("{} layers, {} heads, {} channels, context {}, vocabulary {}", config.layers, config.heads,
                     config.channels, config.context, config.vocab);
}

LlmcTensor const& tensor_of(std::array<LlmcTensor, 16> const& tensors, ParameterTensor const& entry) {
  return *std::ranges::find(tensors, to_string(entry.tensor), &LlmcTensor::name);
}

Index layer_of(ParameterTensor const& entry) { return std::max<Index>(entry.block, 0); }

} // namespace

GptConfig config_of(LlmcShape const& shape) {
  return {shape.layers, shape.heads, shape.channels, shape.context, shape.vocab};
}

LlmcShape llmc_shape_of(GptConfig const& config) {
  return {config.context, config.vocab, config.layers, config.heads, config.channels, config.padded_vocab()};
}

std::vector<ParameterTensor const*> find_entries(ParameterTable const& table, LlmcTensor const& tensor, Index layer) {
  std::vector<ParameterTensor const*> found;
  for (ParameterTensor const& entry : table.tensors())
    if (to_string(entry.tensor) == tensor.name && layer_of(entry) == layer) found.push_back(&entry);
  return found;
}

ParameterTensor const& table_entry(ParameterTable const& table, LlmcTensor const& tensor, Index layer) {
  std::vector<ParameterTensor const*> const found = find_entries(table, tensor, layer);
  if (found.empty()) throw Error(fmt::format("no tensor {} of layer {}", tensor.name, layer));
  return *found.front();
}

Index common_elements(GptConfig const& config, LlmcTensor const& tensor) {
  return tensor.name == to_string(Tensor::wte) ? config.vocab * config.channels : tensor.extent();
}

void load_parameters(ExecutionSpace const& exec, std::filesystem::path const& path, GptConfig const& config,
                     ParameterTable const& table, Index group, Range part, Vector<float> values) {
  LlmcModelReader reader(path);
  TRAINSTONE_REQUIRE_INPUT(config_of(reader.shape()) == config, "{}: the model has {}; the deck asks for {}",
                           path.string(), describe(config_of(reader.shape())), describe(config));
  std::array const tensors = llmc_tensors(reader.shape());
  std::vector<float> slice;
  ParameterTensor const* of = nullptr; // whose slice was read
  for_each_run(table, group, part, [&](ParameterRun const& run) {
    LlmcTensor const& tensor = tensor_of(tensors, run.tensor);
    Index const size = std::min(run.size, common_elements(config, tensor) - run.in_whole);
    if (size <= 0) return;
    if (std::exchange(of, &run.tensor) != &run.tensor) {
      slice.resize(static_cast<std::size_t>(tensor.extent()));
      reader.read(tensor, layer_of(run.tensor), slice);
    }
    auto const count = static_cast<std::size_t>(size);
    copy_from_host<float>(exec, std::span<float const>(slice).subspan(static_cast<std::size_t>(run.in_whole), count),
                          Vector<float>(values.data() + (run.in_group - part.begin), count),
                          "trainstone::model::load_parameters: the host buffer is reused");
  });
}

ParameterWriter::ParameterWriter(std::filesystem::path const& path, GptConfig const& config,
                                 ParameterTable const& table, Storage storage)
    : m_file(path, llmc_shape_of(config), storage), m_config(config), m_table(table) {
  std::vector<float> const zeros(static_cast<std::size_t>(config.channels));
  std::array const tensors = llmc_tensors(llmc_shape_of(config));
  LlmcTensor const& tokens = tensor_of(tensors, table.find(Tensor::wte));
  for (Index begin = common_elements(config, tokens); begin < tokens.extent(); begin += config.channels)
    m_file.write(tokens, 0, begin, zeros);
}

void ParameterWriter::write(Index group, Index first, std::span<float const> values) {
  std::array const tensors = llmc_tensors(llmc_shape_of(m_config));
  for_each_run(m_table, group, {first, first + std::ssize(values)}, [&](ParameterRun const& run) {
    LlmcTensor const& tensor = tensor_of(tensors, run.tensor);
    Index const own = std::min(common_elements(m_config, tensor) - run.in_whole, run.size);
    if (own > 0)
      m_file.write(tensor, layer_of(run.tensor), run.in_whole,
                   values.subspan(static_cast<std::size_t>(run.in_group - first), static_cast<std::size_t>(own)));
  });
}

} // namespace trainstone
