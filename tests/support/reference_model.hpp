#pragma once

// A GPT-2 made of the reference loops, in fp64 on one thread: what the model of the library is tested against. Tensors
// have llm.c's names and order. Owns parameters, gradients, optimizer state and the activations of the last forward.

#include "kernels/reference/reference.hpp"
#include "model/llmc/llmc_files.hpp"
#include "support/fixtures.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace trainstone::test {

class ReferenceModel {
public:
  /// All parameters 0.
  explicit ReferenceModel(LlmcShape const& shape);
  /// The parameters of an llm.c model file.
  explicit ReferenceModel(std::filesystem::path const& model_file);

  LlmcShape const& shape() const { return m_shape; }
  std::array<LlmcTensor, 16> const& tensors() const { return m_tensors; }

  /// All tensors in the file's order, and one slice of them; name e.g. "qkvw".
  std::span<double> parameters() { return m_parameters; }
  std::span<double> gradients() { return m_gradients; }
  std::span<double> parameter(std::string_view name, Index layer = 0);
  std::span<double> gradient(std::string_view name, Index layer = 0);

  /// Drops with that rate, seed and first sample from the next forward on; 0: not.
  void drop(reference::DropoutSite const& dropout) { m_dropout = dropout; }
  /// Mean cross-entropy over the (B, T) tokens; keeps what backward needs.
  double forward(std::span<std::int32_t const> inputs, std::span<std::int32_t const> targets, Index sequence);
  /// After forward: logits (B T, Vp).
  std::span<double const> logits() const { return m_logits; }
  /// Adds the gradient of the last forward's mean loss times `scale` to gradients().
  void backward(double scale = 1);

  /// Norm of gradients().
  double gradient_norm() const;
  /// Clips and applies gradients(); `step` from 1.
  void update(Recipe const& recipe, Index step);

private:
  using Table = std::vector<double>;
  struct Block {
    Table input, ln1, ln1_mean, ln1_rstd, qkv, probabilities, attention;
    Table middle, ln2, ln2_mean, ln2_rstd, fc, gelu;
    Table attention_factors, attproj_factors, fcproj_factors;
  };

  LlmcTensor const& tensor(std::string_view name) const;
  reference::AttentionShape attention_shape() const;
  Table table(Index columns) const;        ///< (N, columns) of zeros
  Table factors(std::uint32_t site) const; ///< (N, C) of dropout, 1 without
  Table attention_factors(std::uint32_t site) const;
  void forward_block(Index layer, Table const& input, Table& output);
  void backward_block(Index layer, Table& d_x);

  LlmcShape m_shape;
  std::array<LlmcTensor, 16> m_tensors;
  Table m_parameters, m_gradients, m_first_moment, m_second_moment;

  Index m_sequence = 0;
  std::vector<std::int32_t> m_inputs, m_targets;
  std::vector<Block> m_blocks;
  reference::DropoutSite m_dropout{};
  Table m_embedded_factors;
  Table m_last, m_lnf, m_lnf_mean, m_lnf_rstd, m_logits;
};

} // namespace trainstone::test
