#pragma once

// The taught rule for when to use which parallelism: "If single GPU cannot hold single tensor manipulation: Tensor
// Parallel. Else if single GPU cannot hold whole model: Model Parallel. Else: Data Parallel." The second branch means
// a pipeline. Owns the rule, its figures, and what to do where its answer alone does not fit. Memory is that of
// complete plans; only the bytes of a single operation are counted here. Pure.

#include "advice/way.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// A matrix product of the model with what it needs: its parameters with gradient and optimizer state, its input and
/// its output for one sample.
struct ModelProduct {
  std::string name; ///< "token table"
  std::int64_t parameters = 0;
  std::int64_t state = 0;  ///< bytes
  std::int64_t in_out = 0; ///< bytes
  std::int64_t bytes() const { return state + in_out; }
};

/// Products with a matrix of parameters: the token table, and those of a block.
std::vector<ModelProduct> operations_of(RunConfig const& config);
/// The one with most bytes.
ModelProduct largest_operation(RunConfig const& config);

enum class RuleAnswer { data, pipeline, tensor };

struct RuleAdvice {
  ModelProduct operation;
  std::uint64_t model_bytes = 0; ///< of the whole model on one rank: state, activations and buffers
  RuleAnswer answer = RuleAnswer::data;
  std::optional<Way> way; ///< of one model: the least legal degree that fits; nothing: none does
  bool alone = true;      ///< whether the rule's answer is enough; else `way` combines tensor and pipeline
  std::optional<std::int64_t> with_ends; ///< stages that fit where embedding and head are stages of their own
  std::vector<std::string> keys;         ///< of `way`
  std::uint64_t needed = 0;              ///< bytes of `way`
};

/// Tensor ranks beside stages, unless the nodes say otherwise: those of a node of the cluster that the limits of the
/// lectures were measured on.
inline constexpr std::int64_t taught_node_ranks = 16;

/// \param[in] memory  bytes per rank     \param[in] batch  of the ways; one data rank has its micro-batches
RuleAdvice apply_rule(DeckOnRanks const& asked, WayBatch const& batch, std::uint64_t memory);

/// Three questions with their figures, and the answer. Lines, each with its end.
std::string rule_text(RuleAdvice const& advice, std::uint64_t memory);

} // namespace trainstone
