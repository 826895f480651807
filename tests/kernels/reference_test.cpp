// The reference loops against an independent fp64 program: logits, loss, every gradient and ten steps of the fixtures.
//
// Bounds. Inputs are exact in fp32. An expected value in a .bin is rounded to fp32: at most 2^-24 of itself. Both sides
// round in fp64: an element is the end of sums of at most N or 4 C <= 256 terms, a handful of them per layer and two or
// three layers deep, so about 1000 roundings of 2^-53: 1e-13 of the tensor's largest element. Ten steps: 1e-12.

#include "support/compare.hpp"
#include "support/fixtures.hpp"
#include "support/reference_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr double fp32_rounding = 0x1p-24;
constexpr double fp64_rounding = 1e-13;
constexpr double ten_steps = 1e-12;

std::string compare_with_file(std::span<double const> actual, std::span<float const> expected, double largest_element) {
  return mismatches(actual, expected, [largest_element](double value) {
    return fp32_rounding * std::abs(value) + fp64_rounding * largest_element;
  });
}

/// The first `vocab` columns of the reference's logits (B T, Vp).
std::vector<double> unpadded_logits(ReferenceModel const& model) {
  std::vector<double> result;
  auto const vocab = static_cast<std::size_t>(model.shape().vocab);
  auto const padded = static_cast<std::size_t>(model.shape().padded_vocab);
  for (std::size_t row = 0; row < model.logits().size(); row += padded) {
    std::span<double const> const columns = model.logits().subspan(row, vocab);
    result.insert(result.end(), columns.begin(), columns.end());
  }
  return result;
}

} // namespace

TEST_CASE("the reference gives the fixtures' logits, loss and every gradient", "[reference]") {
  auto const name = GENERATE(from_range(fixture_names));
  INFO(name);
  Fixture const fixture = find_fixture(name);
  ReferenceModel model(fixture.model);
  LlmcStateReader state(fixture.state, model.shape());

  double const loss = model.forward(state.inputs(), state.targets(), state.sequence());
  CHECK(std::abs(loss - state.loss()) <= fp32_rounding * loss);

  std::vector<double> const logits = unpadded_logits(model);
  std::vector<float> expected(logits.size());
  state.read_logits(0, expected);
  CHECK(compare_with_file(logits, expected, largest<float>(expected)) == "");

  model.backward();
  for (LlmcTensor const& tensor : model.tensors()) {
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      INFO(tensor.name << " of layer " << layer);
      expected.resize(static_cast<std::size_t>(tensor.extent()));
      state.read_gradient(tensor, layer, expected);
      CHECK(compare_with_file(model.gradient(tensor.name, layer), expected, largest<float>(expected)) == "");
    }
  }
}

TEST_CASE("ten steps of the reference give the fixtures' losses and norms in both recipes", "[reference]") {
  auto const name = GENERATE(from_range(fixture_names));
  for (Recipe const& recipe : find_fixture(name).recipes) {
    INFO(name << " " << recipe.name);
    Fixture const fixture = find_fixture(name);
    ReferenceModel model(fixture.model);
    LlmcStateReader state(fixture.state, model.shape());

    std::vector<double> losses, norms;
    for (Index step = 1; step <= 10; ++step) {
      std::ranges::fill(model.gradients(), 0.0);
      losses.push_back(model.forward(state.inputs(), state.targets(), state.sequence()));
      model.backward();
      norms.push_back(model.gradient_norm());
      model.update(recipe, step);
    }
    auto const bound = [](double value) { return ten_steps * value; };
    CHECK(mismatches<double, double>(losses, recipe.losses, bound) == "");
    CHECK(mismatches<double, double>(norms, recipe.norms, bound) == "");
  }
}

TEST_CASE("the fixtures notice one changed parameter", "[reference]") {
  Fixture const fixture = find_fixture("gpt_odd");
  ReferenceModel model(fixture.model);
  LlmcStateReader state(fixture.state, model.shape());
  model.parameter("fcw", 1)[17] += 1e-4;
  CHECK(std::abs(model.forward(state.inputs(), state.targets(), state.sequence()) - fixture.recipes[0].losses[0]) >
        ten_steps * fixture.recipes[0].losses[0]);
}

TEST_CASE("gradients of micro-batches add up to the gradient of the batch", "[reference]") {
  Fixture const fixture = find_fixture("gpt_batch16");
  ReferenceModel whole(fixture.model);
  LlmcStateReader state(fixture.state, whole.shape());
  whole.forward(state.inputs(), state.targets(), state.sequence());
  whole.backward();

  ReferenceModel parts(fixture.model);
  std::size_t const quarter = state.inputs().size() / 4;
  for (std::size_t part = 0; part < 4; ++part) {
    parts.forward(std::span(state.inputs()).subspan(part * quarter, quarter),
                  std::span(state.targets()).subspan(part * quarter, quarter), state.sequence());
    parts.backward(0.25);
  }
  CHECK(mismatches<double, double>(parts.gradients(), whole.gradients(),
                                   fp64_rounding * largest<double>(whole.gradients())) == "");
}
