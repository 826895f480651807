#pragma once

// Taught figures about activations that are kept for backward, beside what this program keeps: tensor by tensor of a
// block, of GPT-3 with the batch of the lecture, of named models; and what it costs to compute them again. Owns the
// taught figures. What the program keeps comes from the activation plan, what it computes from model/work.hpp. Pure;
// renders no text (lectures/lecture_activations.hpp).
// Source: Reducing Activation Recomputation in Large Transformer Models, arXiv:2205.05198.

#include "lectures/taught_models.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Bytes of a block as lectures count them, 2 for a number and 1 for an element of a mask: of b samples of s tokens, h
/// channels and a heads.
struct TaughtBytes {
  double sbh = 0;  ///< times s b h
  double abss = 0; ///< times a s^2 b

  double of_sample(GptConfig const& config) const;
};

/// What a block keeps of one kind, for one sequence of GPT-3.
struct KeptTensorRow {
  std::string kind;
  TaughtBytes taught;
  std::string tensors; ///< of the activation plan; empty: none
  double kept = 0;     ///< bytes that this program keeps, with stored masks
};

/// A sum that a slide prints: of all rows so far.
struct RunningTotal {
  std::size_t rows = 0;
  std::string_view printed; ///< as on the slide
  TaughtBytes taught;
  double kept = 0;
};

/// Bytes of GPT-3.
struct KeptBytes {
  double block = 0;  ///< of one block, for taught_batch_tokens
  double batch = 0;  ///< of all blocks, for taught_batch_tokens
  double sample = 0; ///< of all blocks, for one sequence
};

/// What is kept in one way. Nothing where it is not taught, or where this program does not do so.
struct KeptRow {
  std::string way;
  std::string taught_formula;
  std::optional<KeptBytes> taught;
  std::string formula; ///< of what this program keeps, without statistics
  std::optional<KeptBytes> kept;
  bool of_paper = false; ///< the taught ones are a paper's, not the slides'
};

/// A named model: bytes of one sequence, all blocks.
struct KeptOfModelRow {
  std::string name;
  std::int64_t context = 0;
  double state = 0; ///< of mixed16
  double taught = 0, taught_selective = 0, taught_full = 0;
  double kept = 0, kept_flash = 0, kept_selective = 0, kept_full = 0; ///< masks are recomputed
  double block_again = 0;                                             ///< of one block, beside kept_full
};

/// What recomputation adds, as a share of forward and backward without it. Operations, which are no times.
struct RecomputationRow {
  std::string name;
  double full_products = 0;   ///< of the matrix products of a block
  double full_block = 0;      ///< of its products and attention
  double full_step = 0;       ///< of the whole model's
  double selective_block = 0; ///< the scores of attention, of its products and attention
  double selective_step = 0;
};

inline constexpr std::string_view activations_model = "gpt3-175b";
inline constexpr int paper_tensor_ranks = 8; ///< of a node, in the paper

/// One forward of a step, whose backward is two.
inline constexpr double taught_full_recomputation = 1.0 / 3;
inline constexpr std::string_view slides_full_recomputation = "30%~40%";
inline constexpr std::string_view taught_selective_recomputation = "2-5 %"; ///< on no slide

struct TaughtActivations {
  std::vector<KeptTensorRow> tensors;
  std::vector<RunningTotal> totals;
  std::vector<KeptRow> ways;
  double state = 0; ///< bytes of GPT-3's, mixed16, of nominal parameters
  std::vector<KeptOfModelRow> models;
  std::vector<RecomputationRow> recomputation;
};

TaughtActivations compare_taught_activations();

} // namespace trainstone
