#pragma once

// Parameters between llm.c's files and our flat vector: which slice of a file is which tensor of the table. The two may
// pad the vocabulary differently; rows beyond it are not read, and written as zeros.

#include "comm/schedule/partition.hpp"
#include "core/views.hpp"
#include "model/config.hpp"
#include "model/llmc/llmc_files.hpp"
#include "model/parameter_table.hpp"

#include <filesystem>
#include <span>
#include <vector>

namespace trainstone {

GptConfig config_of(LlmcShape const& shape);
LlmcShape llmc_shape_of(GptConfig const& config);

/// The tensor of `table` that is slice `layer` of the file's tensor.
ParameterTensor const& table_entry(ParameterTable const& table, LlmcTensor const& tensor, Index layer);
/// The same, or those of its slices that are here; none: it is on another stage.
std::vector<ParameterTensor const*> find_entries(ParameterTable const& table, LlmcTensor const& tensor, Index layer);

/// Number of first elements of a slice that both sides have: all elements, or for the token table the elements of the
/// vocabulary.
Index common_elements(GptConfig const& config, LlmcTensor const& tensor);

/// Fills `values` from the file with the parameters of a group (padded) in `part`; padding is left alone. Complete on
/// return.
/// \throws InputError if the file is damaged or of another shape than `config` (message names both)
void load_parameters(ExecutionSpace const& exec, std::filesystem::path const& path, GptConfig const& config,
                     ParameterTable const& table, Index group, Range part, Vector<float> values);

/// A model file that is written from our groups, in as small parts as the caller likes, so that no memory has to hold
/// the model. In fp32, or rounded to bf16.
class ParameterWriter {
public:
  /// \throws InputError if no file can be made there. What follows throws Error if it cannot be written.
  ParameterWriter(std::filesystem::path const& path, GptConfig const& config, ParameterTable const& table,
                  Storage storage = Storage::fp32);
  /// Elements [first, first + values.size()) of a group, in any order; padding may be left out.
  void write(Index group, Index first, std::span<float const> values);
  /// Gives the file its name. Without this call nothing stays.
  void finish() { m_file.finish(); }

private:
  LlmcModelWriter m_file;
  GptConfig m_config;
  ParameterTable m_table;
};

} // namespace trainstone
