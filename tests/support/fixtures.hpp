#pragma once

// The reference runs in tests/data: model, debug state and ten steps in two recipes, computed in fp64 by an independent
// program. Finds and reads them.

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace trainstone::test {

inline constexpr std::array<char const*, 4> fixture_names{"gpt_even", "gpt_odd", "gpt_batch16", "gpt_mesh"};

/// How to train, and what must come out.
struct Recipe {
  std::string name;
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  bool decay_matrices_only;
  double clip; ///< 0: none
  std::vector<double> losses, norms;
};

struct Fixture {
  std::filesystem::path model, state;
  std::vector<Recipe> recipes;
};

/// `tests/data`: what $TRAINSTONE_TEST_DATA names, for tests that were carried to another machine, else that of the
/// source that they were built from.
std::filesystem::path data_folder();

/// `inputs`, which lies beside `tests`.
std::filesystem::path inputs_folder();

/// The fixture of that name; `tests/data/NAME.model.bin` and so on.
Fixture find_fixture(std::string const& name);

} // namespace trainstone::test
