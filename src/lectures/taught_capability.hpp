#pragma once

// Taught figures about the largest model of each kind of parallelism, beside exact ones: model state against the memory
// of a card, and the limits of each degree. Owns the taught figures. Shapes come from model/config.hpp, bytes from
// parallel/plan/recipe.hpp. Pure; renders no text (lectures/lecture_capability.hpp).

#include "model/config.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// One kind of parallelism and the largest model that it trains on cards of capability_card bytes.
struct CapabilityRow {
  std::string method;
  std::string taught_parameters; ///< in 10^9
  std::string taught_degree;
  std::string taught_efficiency;
  std::string taught_usability;
  std::int64_t degree; ///< the largest legal one of GPT-3's shape and batch
  double exact;        ///< parameters of the largest model on the largest legal degree of tensor ranks and stages
  std::string limit;
};

/// The least degrees at which the state of the largest rank fits on a card; nothing if no legal degree does.
struct LeastDegrees {
  std::optional<std::int64_t> tensor;   ///< a divisor of the heads
  std::optional<std::int64_t> pipeline; ///< stages, at most two more than layers
  std::optional<std::int64_t> both;     ///< pipeline stages of taught tensor ranks each
  std::int64_t zero3 = 1;               ///< ranks
};

struct DegreeRow {
  std::string name;
  GptConfig config;
  std::int64_t node_tensor_ranks = 1;   ///< the largest divisor of the heads up to 16
  std::array<LeastDegrees, 2> on_cards; ///< of capability_cards
};

struct TaughtCapability {
  std::vector<CapabilityRow> methods;
  std::vector<DegreeRow> models;
};

inline constexpr double capability_card = 32e9;
inline constexpr std::array<double, 2> capability_cards{capability_card, 80e9};

TaughtCapability compare_taught_capability();

/// Parameters on the rank that has most of them. Each tensor rank holds a share of every matrix and of the biases of
/// split outputs, whole rows of the token table, and all other parameters. Stages have the same number of blocks, give
/// or take one. The first stage also holds the tables of tokens and positions. The last stage also holds its own copy
/// of the token table.
/// \param[in] tensor 1 to heads, a divisor    \param[in] stages 1 to layers + 2
std::int64_t largest_rank_parameters(GptConfig const& config, std::int64_t tensor, std::int64_t stages);

} // namespace trainstone
