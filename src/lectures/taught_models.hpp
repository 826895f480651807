#pragma once

// Taught figures about named models, beside exact ones: sizes, computation, and memory of state and activations. Owns
// the taught figures and the sizes of cards. Exact counts come from the parameter table, exact bytes from
// parallel/plan/recipe.hpp and the activation plan. Pure; renders no text (lectures/lecture_models.hpp).

#include "model/config.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// Memory of the cards that lectures compare, in GB or GiB.
inline constexpr std::array<int, 4> card_sizes{16, 32, 40, 80};

inline constexpr double gigabyte = 1e9;
inline constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;

/// The sizes in card_sizes, in units of `unit` bytes, that hold this number of bytes.
std::vector<int> cards_that_hold(double bytes, double unit);

/// As a slide prints it, rounded.
struct TaughtModel {
  std::string_view name;
  double computation = 0; ///< relative to the smallest of the four
  double gigabytes = 0;   ///< of model state
};

struct ModelRow {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t channels = 0; ///< hidden dimension
  double nominal = 0;        ///< parameters, as the model is called
  std::int64_t computed = 0; ///< of its shape, unpadded
  std::optional<TaughtModel> taught;
  double exact_computation = 0;    ///< FLOP per token at full context, relative to the smallest taught model
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

/// Activations of GPT-3 that are kept for backward, in 16 bits, with dropout.
struct ActivationRow {
  std::string kind;
  double sample = 0; ///< bytes of a micro-batch of one sequence, all layers
  double batch = 0;  ///< bytes of taught_batch_tokens
};

inline constexpr double taught_batch_tokens = 3.2e6;

struct TaughtModels {
  std::vector<ModelRow> models;
  std::vector<StateRow> states;
  std::vector<ActivationRow> activations; ///< first closed forms, then this program's plan
};

TaughtModels compare_taught_models();

/// Floating-point operations of a training step per token, matrix products and attention (its full square), unpadded.
double flops_per_token(GptConfig const& config);

} // namespace trainstone
