#include "model/config.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

/// Without padding, as the sizes are published: V h + s h + L (12 h^2 + 13 h) + 2 h.
std::int64_t parameters(GptConfig const& c) {
  return c.vocab * c.channels + c.context * c.channels + c.layers * (12 * c.channels * c.channels + 13 * c.channels) +
         2 * c.channels;
}

std::string problem_of(GptConfig const& config) {
  std::optional<ConfigProblem> const problem = find_problem(config);
  return problem ? problem->key + " | " + problem->message : "none";
}

} // namespace

TEST_CASE("the presets have the published numbers of parameters", "[config]") {
  CHECK(parameters(*find_preset("gpt2")) == 124439808);
  CHECK(parameters(*find_preset("gpt2-medium")) == 354823168);
  CHECK(parameters(*find_preset("gpt2-large")) == 774030080);
  CHECK(parameters(*find_preset("gpt2-xl")) == 1557611200);
  CHECK(!find_preset("gpt3"));
  CHECK(!find_preset(""));
}

TEST_CASE("all presets are legal", "[config]") {
  for (GptPreset const& preset : gpt_presets) CHECK(problem_of(preset.config) == "none");
}

TEST_CASE("the vocabulary is padded to the next multiple of 128", "[config]") {
  auto const padded = [](std::int64_t vocab) { return GptConfig{1, 1, 1, 1, vocab}.padded_vocab(); };
  CHECK(padded(1) == 128);
  CHECK(padded(128) == 128);
  CHECK(padded(129) == 256);
  CHECK(padded(50257) == 50304);
}

TEST_CASE("every number of a shape is at least one", "[config]") {
  CHECK(problem_of({1, 1, 1, 1, 1}) == "none");
  CHECK(problem_of({0, 1, 1, 1, 1}) == "model.layers | model.layers = 0: must be at least 1 (or give model.preset)");
  CHECK(problem_of({1, 0, 1, 1, 1}).starts_with("model.heads | "));
  CHECK(problem_of({1, 1, -3, 1, 1}).starts_with("model.channels | model.channels = -3"));
  CHECK(problem_of({1, 1, 1, 0, 1}).starts_with("model.context | "));
  CHECK(problem_of({1, 1, 1, 1, 0}).starts_with("model.vocab | "));
}

TEST_CASE("heads that do not divide channels come with the nearest that do", "[config]") {
  CHECK(problem_of({1, 5, 36, 1, 1}) ==
        "model.heads | model.heads = 5 does not divide model.channels = 36; nearest legal "
        "values: heads 4 or 6 or channels 35 or 40");
  CHECK(problem_of({1, 9, 7, 1, 1}) ==
        "model.heads | model.heads = 9 does not divide model.channels = 7; nearest legal "
        "values: heads 7 or channels 9");
}

TEST_CASE("an illegal shape is the user's error", "[config]") {
  CHECK_THROWS_AS(require_valid(GptConfig{1, 5, 36, 1, 1}), InputError);
  CHECK_NOTHROW(require_valid(GptConfig{3, 3, 36, 19, 97}));
}
