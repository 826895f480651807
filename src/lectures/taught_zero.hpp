#pragma once

// Taught figures about ZeRO, beside exact ones: memory per device, the largest model, the volume of communication. Owns
// the published digits and formulas. Exact bytes come from parallel/plan/recipe.hpp, exact volumes from a closed form,
// and counted volumes from the schedules of the collectives. Pure; renders no text (lectures/lecture_zero.hpp). Source:
// ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, arXiv:1910.02054.

#include "lectures/taught_gathers.hpp"
#include "lectures/taught_units.hpp"
#include "parallel/plan/config.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// Parameters and numbers of devices of the published table, its card, and the ranks that share a layer in it.
inline constexpr double taught_zero_parameters = 7.5e9;
inline constexpr std::array<std::int64_t, 6> taught_zero_ranks{1, 4, 16, 64, 256, 1024};
inline constexpr double taught_zero_card = 32e9;
inline constexpr std::int64_t taught_tensor_ranks = 16;
inline constexpr std::int64_t most_zero_lecture_ranks = 65536;

/// Bytes of model state per device at each of taught_zero_ranks, recipe mixed16.
struct ZeroMemoryRow {
  int stage = 0;
  std::string formula;                      ///< of N devices, in bytes per parameter
  std::array<double, 6> taught_gigabytes{}; ///< 10^9 bytes, as published
  std::array<double, 6> bytes{};
  std::string taught_limit; ///< per device, of many devices; empty: not taught
  double limit = 0;         ///< bytes of the same
};

/// How many times less memory a stage takes than plain data parallelism.
struct ZeroRatioRow {
  RecipeName recipe = RecipeName::fp32;
  std::array<std::string, 3> taught; ///< of stages 1 to 3, for many devices
  std::array<double, 3> exact{};     ///< of stages 1 to 3 on the given devices
};

/// The largest model in taught_zero_card, in parameters.
struct ZeroLargestRow {
  int stage = 0;
  std::string taught_measured; ///< in 10^9
  std::string taught_with_tensor_ranks;
  std::array<double, 3> exact{}; ///< on 64, on 1024 and on the given devices, model states alone
  double with_tensor_ranks = 0;  ///< on 64 x taught_tensor_ranks
};

/// What the busiest rank sends per step, in elements.
struct ZeroVolumeRow {
  std::string method;
  std::string taught; ///< relative to data parallelism; empty: not taught
  std::string formula;
  std::int64_t exact = 0;   ///< gradients reduced once
  std::int64_t counted = 0; ///< of the ring's schedules
  std::string formula_each; ///< gradients reduced after each of G micro-batches
};

struct TaughtZero {
  std::int64_t ranks = 0;
  std::int64_t padded_parameters = 0; ///< of the volumes: a multiple of 256 x ranks
  std::vector<ZeroMemoryRow> memory;
  std::vector<ZeroRatioRow> ratios;
  std::vector<ZeroLargestRow> largest;
  std::vector<ZeroVolumeRow> volumes;
  std::optional<TaughtGathers> gathers; ///< up to most_gather_ranks
  std::optional<TaughtUnits> units;     ///< likewise
};

/// \param[in] ranks 2 ... most_zero_lecture_ranks    \param[in] machine that gathers are priced on
/// \throws InputError
TaughtZero compare_taught_zero(std::int64_t ranks, MachineModel const& machine);

} // namespace trainstone
