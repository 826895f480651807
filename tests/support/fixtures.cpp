#include "support/fixtures.hpp"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>

namespace trainstone::test {

std::filesystem::path data_folder() {
  char const* const carried = std::getenv("TRAINSTONE_TEST_DATA");
  return carried ? carried : TRAINSTONE_TEST_DATA;
}

std::filesystem::path inputs_folder() { return data_folder() / ".." / ".." / "inputs"; }

Fixture find_fixture(std::string const& name) {
  std::filesystem::path const folder = data_folder();
  Fixture fixture{folder / (name + ".model.bin"), folder / (name + ".state.bin"), {}};
  std::ifstream stream(folder / (name + ".losses.json"));
  nlohmann::json const json = nlohmann::json::parse(stream);
  nlohmann::json const& adamw = json.at("adamw");
  for (auto const& [recipe_name, recipe] : json.at("recipes").items())
    fixture.recipes.push_back({.name = recipe_name,
                               .learning_rate = recipe.at("lr"),
                               .beta1 = adamw.at("beta1"),
                               .beta2 = adamw.at("beta2"),
                               .epsilon = adamw.at("eps"),
                               .weight_decay = recipe.at("weight_decay"),
                               .decay_matrices_only = recipe.at("decay") == "matrices",
                               .clip = recipe.at("clip"),
                               .losses = recipe.at("losses"),
                               .norms = recipe.at("grad_norms")});
  return fixture;
}

} // namespace trainstone::test
