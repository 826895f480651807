#pragma once

// Parameters between llm.c's files and our flat vector: which slice of a file is which tensor of the table. The two may
// pad the vocabulary differently; rows beyond it are not read, and written as zeros.

#include "comm/partition.hpp"
#include "core/views.hpp"
#include "model/config.hpp"
#include "model/llmc_files.hpp"
#include "model/parameter_table.hpp"

#include <filesystem>
#include <span>

namespace trainstone {

GptConfig config_of(LlmcShape const& shape);
LlmcShape llmc_shape_of(GptConfig const& config);

/// The tensor of `table` that is slice `layer` of the file's tensor.
ParameterTensor const& table_entry(ParameterTable const& table, LlmcTensor const& tensor, Index layer);

/// The first elements of a slice that both sides have: all, or for the token table those of the vocabulary.
Index common_elements(GptConfig const& config, LlmcTensor const& tensor);

/// Fills `values` from the file with the parameters of a group (padded) in `part`; padding is left alone. Complete on
/// return.
/// \throws InputError if the file is damaged or of another shape than `config` (message names both)
void load_parameters(ExecutionSpace const& exec, std::filesystem::path const& path, GptConfig const& config,
                     ParameterTable const& table, Index group, Range part, Vector<float> values);

/// Writes `parameters` (table.size()), which lie on the host, as a model file in fp32, or rounded to bf16.
/// \throws InputError if it cannot be written
void save_parameters(std::filesystem::path const& path, GptConfig const& config, ParameterTable const& table,
                     std::span<float const> parameters, Storage storage = Storage::fp32);

} // namespace trainstone
