#include "parallel/plan/recipe.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <vector>

using namespace trainstone;
using enum trainstone::RecipeName;

namespace {

OptimizerConfig optimizer(OptimizerType type, double momentum = 0) {
  OptimizerConfig config;
  config.type = type;
  config.momentum = momentum;
  return config;
}

std::vector<std::int64_t> bytes(Recipe const& recipe) { return {recipe.parameter, recipe.gradient, recipe.optimizer}; }

} // namespace

TEST_CASE("recipes keep the published bytes per parameter", "[recipe]") {
  using Bytes = std::vector<std::int64_t>;
  for (OptimizerType const type : {OptimizerType::adamw, OptimizerType::adam}) {
    CHECK(bytes(recipe(fp32, optimizer(type))) == Bytes{4, 4, 8});
    CHECK(bytes(recipe(mixed16, optimizer(type))) == Bytes{2, 2, 12});
    CHECK(bytes(recipe(mixed18, optimizer(type))) == Bytes{2, 4, 12});
    CHECK(bytes(recipe(mixed20, optimizer(type))) == Bytes{2, 2, 16});
  }
  CHECK(bytes(recipe(fp32, optimizer(OptimizerType::sgd))) == Bytes{4, 4, 0});
  CHECK(bytes(recipe(fp32, optimizer(OptimizerType::sgd, 0.9))) == Bytes{4, 4, 4});
  CHECK(bytes(recipe(mixed16, optimizer(OptimizerType::sgd))) == Bytes{2, 2, 4});
  CHECK(bytes(recipe(mixed18, optimizer(OptimizerType::sgd, 0.9))) == Bytes{2, 4, 8});
  CHECK(bytes(recipe(mixed20, optimizer(OptimizerType::sgd, 0.9))) == Bytes{2, 2, 12});
  CHECK(recipe(mixed18).total() == 18);
}

TEST_CASE("a rank holds its share of what a stage shards, and all of the rest", "[recipe]") {
  // 4 + 12 / N, 2 + 14 / N and 16 / N bytes of mixed16, and 16 of plain data parallelism
  constexpr std::int64_t parameters = 768 * 5, ranks = 3;
  constexpr std::array<std::int64_t, 4> thirds_of_bytes{3 * 16, 3 * 4 + 12, 3 * 2 + 14, 16};
  for (int stage = 0; stage < 4; ++stage)
    CHECK(3 * state_bytes(recipe(mixed16), stage, parameters, ranks).total() ==
          thirds_of_bytes.at(static_cast<std::size_t>(stage)) * parameters);
  StateBytes<std::int64_t> const bytes = state_bytes(recipe(mixed20), 2, parameters, ranks);
  CHECK(bytes.parameters == 2 * parameters);
  CHECK(bytes.gradients == 2 * parameters / ranks);
  CHECK(bytes.optimizer == 16 * parameters / ranks);
  for (int stage = 0; stage < 4; ++stage)
    CHECK(state_bytes(recipe(fp32), stage, parameters, std::int64_t{1}).total() == 16 * parameters);
}

TEST_CASE("other stages and uneven shares are refused", "[recipe]") {
  CHECK_THROWS_AS(state_bytes(recipe(fp32), 4, 8.0, 2.0), Error);
  CHECK_THROWS_AS(state_bytes(recipe(fp32), -1, 8.0, 2.0), Error);
  CHECK_THROWS_AS(state_bytes(recipe(fp32), 1, std::int64_t{7}, std::int64_t{2}), Error);
  CHECK_THROWS_AS(state_bytes(recipe(fp32), 1, 8.0, 0.0), Error);
}

TEST_CASE("what a run stores adds up to the bytes of its recipe", "[recipe]") {
  for (RecipeName const name : {fp32, mixed16, mixed18, mixed20}) {
    for (Storage const storage : {Storage::bf16, Storage::fp16}) {
      INFO(to_string(name) << ' ' << to_string(storage));
      Recipe const expected = recipe(name);
      StateTypes const types = state_types({.recipe = name, .storage = storage});
      CHECK(static_cast<std::int64_t>(bytes_per_value(types.parameters)) == expected.parameter);
      CHECK(static_cast<std::int64_t>(bytes_per_value(types.gradients)) == expected.gradient);
      CHECK(8 + (types.master ? 4 : 0) + (types.gradient_copy ? 4 : 0) == expected.optimizer);
      CHECK((types.parameters == storage) == (name != fp32));
    }
  }
}
