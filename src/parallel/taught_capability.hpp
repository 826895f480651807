#pragma once

// What is taught about how large a model each kind of parallelism can train, beside what is exact: model state against
// the memory of a card, and the limits of each degree. Owns the taught figures; shapes are model/config.hpp's, bytes
// parallel/recipe.hpp's. Pure; renders no text (report/lecture_capability.hpp).

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
  std::optional<std::int64_t> degree; ///< the largest legal one of GPT-3's shape and batch; of what is implemented here
  std::optional<double> exact;        ///< parameters, if that degree divides what the method divides
  std::string limit;
};

/// The least degrees at which the largest rank's state of a model fits on a card; nothing where no legal one does.
struct LeastDegrees {
  std::optional<std::int64_t> tensor;   ///< a divisor of the heads
  std::optional<std::int64_t> pipeline; ///< at most the layers
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

/// Parameters on the rank that has most of them. Of t tensor ranks each holds a share of every matrix and of the biases
/// of split outputs, of the token table whole rows, and all else. Of p stages with the same number of blocks, give or
/// take one, the first also holds the tables of tokens and positions, the last its own copy of the token table.
/// \param[in] tensor 1 to heads, a divisor    \param[in] stages 1 to layers
std::int64_t largest_rank_parameters(GptConfig const& config, std::int64_t tensor, std::int64_t stages);

} // namespace trainstone
