#include "model/reference_loss.hpp"

#include "core/error.hpp"
#include "model/gpt.hpp"
#include "support/fixtures.hpp"
#include "support/reference_model.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::WithinRel;

namespace {

GptConfig const small{3, 4, 64, 48, 300};

/// `count` tokens of a vocabulary, that follow from `first`.
std::vector<std::int32_t> tokens(std::int64_t count, std::int32_t first) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<std::int32_t>((first + 37 * i * i) % 300));
  return values;
}

double loss_of(ParameterValues const& values, std::int64_t positions = small.context, int threads = 2) {
  return reference_loss(small, values, tokens(positions, 5), tokens(positions, 11), threads);
}

/// The values of `reference`, which has llm.c's names.
ParameterValues values_of(ReferenceModel& reference) {
  return [&reference](ParameterTensor const& tensor, std::int64_t begin, std::span<float> out) {
    auto const all = reference.parameter(to_string(tensor.tensor), std::max<std::int64_t>(tensor.block, 0));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(all[static_cast<std::size_t>(begin) + i]);
  };
}

} // namespace

TEST_CASE("the first loss equals the float64 model's, on the fixtures", "[reference_loss]") {
  for (char const* name : {"gpt_odd", "gpt_even", "gpt_batch16"}) {
    INFO(name);
    std::string const stem = data_folder() / name;
    ReferenceModel reference(stem + ".model.bin");
    LlmcShape const& shape = reference.shape();
    GptConfig const config{shape.layers, shape.heads, shape.channels, shape.context, shape.vocab};
    std::vector<std::int32_t> inputs, targets;
    for (std::int64_t i = 0; i < shape.context; ++i) {
      inputs.push_back(static_cast<std::int32_t>((7 * i * i + 1) % shape.vocab));
      targets.push_back(static_cast<std::int32_t>((5 * i + 2) % shape.vocab));
    }
    double const expected = reference.forward(inputs, targets, shape.context);
    for (int const threads : {1, 3}) // sums of other orders: 1e-16 each, of some thousands
      CHECK_THAT(reference_loss(config, values_of(reference), inputs, targets, threads), WithinRel(expected, 1e-13));
  }
}

TEST_CASE("initial values are made anew as the model makes them", "[reference_loss]") {
  ExecutionSpace const exec;
  ParameterTable const table(small, 1);
  ParameterValues const values = initial_values(7);
  for (std::size_t group = 0; group < table.groups().size(); ++group) {
    Index const padded = table.groups()[group].padded;
    DeviceTensor<float> const made(padded, 0.0F);
    initialize_parameters(exec, table, static_cast<Index>(group), 7, {0, padded}, made.vector());
    std::vector<float> const expected = made.values();
    for (ParameterTensor const& tensor : table.tensors()) {
      if (tensor.group != static_cast<std::int64_t>(group)) continue;
      INFO(tensor.name);
      std::int64_t const begin = tensor.size() / 3; // no multiple of 4
      std::vector<float> found(static_cast<std::size_t>(tensor.size() - begin));
      values(tensor, begin, found);
      auto const first = expected.begin() + tensor.offset - table.groups()[group].offset + begin;
      CHECK(std::equal(found.begin(), found.end(), first));
    }
  }
}

TEST_CASE("the first loss does not depend on the number of threads", "[reference_loss]") {
  ParameterValues const values = initial_values(1);
  double const alone = loss_of(values, small.context, 1);
  CHECK(loss_of(values, small.context, 2) == alone);
  CHECK(loss_of(values, small.context, 7) == alone);
}

TEST_CASE("the first positions of a sample lose the same without the others", "[reference_loss]") {
  ParameterValues const values = initial_values(1);
  double sum = 0;
  for (std::int64_t positions = 1; positions <= 5; ++positions) {
    std::vector<std::int32_t> const inputs = tokens(5, 5), targets = tokens(5, 11);
    auto const count = static_cast<std::size_t>(positions);
    double const mean =
        reference_loss(small, values, std::span(inputs).first(count), std::span(targets).first(count), 1);
    double const last = mean * static_cast<double>(positions) - sum; // of the newest position
    sum += last;
    CHECK(last > 4);
    CHECK(last < 8);
  }
  CHECK_THAT(loss_of(values, 5), WithinRel(sum / 5, 1e-14));
}

TEST_CASE("every tensor that is five percent off moves the first loss beyond the bound", "[reference_loss]") {
  ParameterValues const values = initial_values(1);
  double const right = loss_of(values);
  double const bound = reference_loss_bound(small);
  ParameterTable const table(small, 1);
  for (ParameterTensor const& mutated : table.tensors()) {
    INFO(mutated.name);
    double const wrong = loss_of([&](ParameterTensor const& tensor, std::int64_t begin, std::span<float> out) {
      values(tensor, begin, out);
      if (tensor.name != mutated.name) return;
      for (std::size_t i = 0; i < out.size(); ++i) // biases begin with 0; a constant on all would be normalised away
        out[i] = out[i] * 1.05F + (tensor.is_matrix ? 0.0F : 0.05F * static_cast<float>((begin + i) % 3));
    });
    CHECK(std::abs(wrong / right - 1) > bound);
  }
}

TEST_CASE("another seed and a layer more or less move the first loss beyond the bound", "[reference_loss]") {
  double const right = loss_of(initial_values(1));
  double const bound = reference_loss_bound(small);
  CHECK(std::abs(loss_of(initial_values(2)) / right - 1) > 100 * bound);
  for (std::int64_t const layers : {2, 4}) {
    GptConfig other = small;
    other.layers = layers;
    double const wrong =
        reference_loss(other, initial_values(1), tokens(small.context, 5), tokens(small.context, 11), 2);
    CHECK(std::abs(wrong / right - 1) > 100 * bound);
  }
}

TEST_CASE("a first loss of tokens that do not fit is refused", "[reference_loss]") {
  ParameterValues const values = initial_values(1);
  auto const refuses = [&](std::vector<std::int32_t> const& inputs, std::vector<std::int32_t> const& targets) {
    CHECK_THROWS_AS(reference_loss(small, values, inputs, targets, 1), Error);
  };
  refuses({}, {});
  refuses({1, 2}, {1});
  refuses({300}, {1});
  refuses({1}, {-1});
  refuses(tokens(small.context + 1, 5), tokens(small.context + 1, 5));
}
