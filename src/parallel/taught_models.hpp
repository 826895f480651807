#pragma once

// What is taught about named models, beside what is exact: their sizes, how much they compute, what their state takes.
// Owns the nominal figures and which cards hold how much; exact counts are those of the parameter table, exact bytes
// parallel/recipe.hpp's. Pure; renders no text (report/lecture_models.hpp).

#include "model/config.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainstone {

/// Memory of the cards that lectures compare, in GB or GiB.
inline constexpr std::array<int, 4> card_sizes{16, 32, 40, 80};

inline constexpr double gigabyte = 1e9;
inline constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;

/// Those of card_sizes, in units of `unit` bytes, that hold so many bytes.
std::vector<int> cards_that_hold(double bytes, double unit);

struct ModelRow {
  std::string name;
  double nominal = 0;              ///< parameters, as the model is called
  std::int64_t computed = 0;       ///< of its shape, unpadded
  double taught_computation = 0;   ///< nominal parameters, relative to the smallest of the lecture's four
  double exact_computation = 0;    ///< FLOP per token at full context, relative to the same
  bool in_lecture = false;         ///< one of the four that are taught
  double taught_bytes = 0;         ///< 16 per nominal parameter
  std::int64_t exact_bytes_16 = 0; ///< of mixed16
  std::int64_t exact_bytes_20 = 0; ///< of mixed20
};

/// One kind of state of GPT-3.
struct StateRow {
  std::string kind;
  int bytes_per_parameter = 0;
  double taught = 0; ///< bytes, of nominal parameters
  std::int64_t exact = 0;
};

struct TaughtModels {
  std::vector<ModelRow> models;
  std::vector<StateRow> states;
};

TaughtModels compare_taught_models();

/// Floating-point operations of a training step per token, matrix products and attention (its full square), unpadded.
double flops_per_token(GptConfig const& config);

} // namespace trainstone
