// The whole model against the reference model of fp64 loops, on shapes that the fixtures do not have, and the model's
// rules, such as repeatable bits.

#include "core/host_copy.hpp"
#include "model/gpt_comparison.hpp"
#include "model/llmc/llmc_parameters.hpp"
#include "support/compare.hpp"
#include "support/reference_model.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <ranges>
#include <string>

using namespace trainstone;
using namespace trainstone::test;

TEST_CASE("losses and every gradient equal the reference model's on odd shapes", "[model]") {
  auto const [config, rows] =
      GENERATE(std::pair{small, MicroBatchShape{3, 7}}, std::pair{GptConfig{1, 1, 1, 1, 1}, MicroBatchShape{1, 1}},
               std::pair{GptConfig{1, 2, 34, 13, 300}, MicroBatchShape{2, 13}});
  GptOptions const options = GENERATE(from_range(all_options()));
  ExecutionSpace const exec;
  Fp32Model model(exec, config, rows, options);
  model.forward_backward(exec, model.load());
  Expected expected_values(exec, model, 1);
  test::ReferenceModel& reference = expected_values.reference;

  // fp32 rounding of logits of size 1, over the longest sum (4 C terms) and the layers
  double const eps = 0x1p-23, bound = 8 * eps * std::sqrt(4.0 * static_cast<double>(config.channels));
  CHECK(std::abs(mean_loss(exec, model) - expected_values.mean_loss) <= bound * expected_values.mean_loss + 1e-12);
  for (LlmcTensor const& tensor : reference.tensors())
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      INFO(tensor.name << " layer " << layer);
      std::vector<float> const values =
          copy_to_host(exec, vector_of(table_entry(model.table, tensor, layer), model.gradients), "test");
      std::span<double const> const expected = reference.gradient(tensor.name, layer);
      // relative to the largest gradient of the model: tensors whose exact gradient is zero hold rounding alone
      double const scale =
          std::max(test::largest(expected), 1e-2 * test::largest(std::span<double const>(reference.gradients())));
      CHECK(test::mismatches(std::span<float const>(values), expected, 4 * bound * scale + 1e-12) == "");
    }
}

namespace {

/// Compares a micro-batch of a 16-bit model with the reference model's.
template <class T, class Gradient>
void check_narrow_model(ExecutionSpace const& exec, TestModel<T, Gradient>& model) {
  float const loss_scale = 1024; // fp16 has no gradients of the mean loss below 2^-24
  model.forward_backward(exec, model.load(loss_scale));
  Expected expected(exec, model, static_cast<double>(loss_scale));

  // A gradient has passed through the stored tensors of forward (12 of a block, embedded, lnf, logits), as many of
  // backward, and is stored itself. Each rounding is off by a uniformly distributed error of at most u of its value,
  // u / sqrt(3) in the quadratic mean, independently of the others; layer norms keep amplifications near 1.
  double const u = test::storing_error<T>(1.0), layers = static_cast<double>(model.config.layers);
  double const forward = u * std::sqrt((12 * layers + 3) / 3), both = u * std::sqrt((2 * (12 * layers + 3) + 1) / 3);
  // the loss of a row moves by at most twice the largest error of its logits: four deviations
  double const logit = test::largest(expected.reference.logits());
  CHECK(std::abs(mean_loss(exec, model) - expected.mean_loss) <= 2 * 4 * forward * logit);
  for (LlmcTensor const& tensor : expected.reference.tensors())
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      INFO(tensor.name << " layer " << layer);
      std::vector<double> error = test::widened(
          copy_to_host(exec, vector_of(table_entry(model.table, tensor, layer), model.gradients), "test"));
      std::span<double const> const wanted = expected.reference.gradient(tensor.name, layer);
      for (std::size_t i = 0; i < error.size(); ++i) error[i] -= wanted[i];
      CHECK(std::sqrt(reference::squared_norm(error)) <= both * std::sqrt(reference::squared_norm(wanted)));
    }
}

} // namespace

TEMPLATE_LIST_TEST_CASE("losses and every gradient of 16-bit models equal the reference model's", "[model]",
                        SixteenBitTypes) {
  auto const [config, rows] = GENERATE(std::pair{small, MicroBatchShape{3, 7}},
                                       std::pair{GptConfig{3, 2, 34, 13, 300}, MicroBatchShape{5, 13}});
  GptOptions const options = GENERATE(from_range(all_options()));
  ExecutionSpace const exec;
  TestModel<typename TestType::Storage, typename TestType::Gradient> model(exec, config, rows, options);
  check_narrow_model(exec, model);
}

TEMPLATE_LIST_TEST_CASE("16-bit models of even extents equal the reference model's with every provider", "[model]",
                        SixteenBitTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GemmProvider const provider = GENERATE(from_range(built_gemm_providers()));
  INFO(to_string(provider));
  ExecutionSpace const exec;
  Model model(exec, even, even_rows, {}, provider);
  check_narrow_model(exec, model);
}

TEST_CASE("a 16-bit model refuses parameters and gradients of other types", "[model]") {
  ExecutionSpace const exec;
  TestModel<bf16, float> model(exec, small, {2, 5});
  MicroBatch const batch = model.load();
  test::DeviceTensor<bf16> const memory(model.table.size(), bf16{});
  test::DeviceTensor<fp16> const other(model.table.size(), fp16{});
  Vector<bf16> const right = memory.vector();
  Vector<fp16> const wrong = other.vector();
  Part const block{PartKind::mlp, 0};
  CHECK(model.gpt.storage() == Storage::bf16);
  CHECK_NOTHROW(model.gpt.forward(exec, block, batch, model.of_unit(right, 1)));
  CHECK_THROWS_AS(model.gpt.forward(exec, block, batch, model.of_unit(wrong, 1)), Error);
  CHECK_THROWS_AS(
      model.gpt.backward(exec, block, batch, model.of_unit(right, 1), {model.of_unit(wrong, 1), Write::overwrite}),
      Error);
}

TEST_CASE("a second micro-batch adds to the gradients of the first", "[model]") {
  ExecutionSpace const exec;
  Fp32Model model(exec, small, {2, 5});
  MicroBatch const batch = model.load();
  model.forward_backward(exec, batch);
  std::vector<float> const once = copy_to_host(exec, model.gradients, "test");
  model.forward_backward(exec, batch, Write::add);
  std::vector<float> const twice = copy_to_host(exec, model.gradients, "test");
  std::vector<double> expected(once.begin(), once.end());
  for (double& value : expected) value *= 2;
  double const bound = 4 * 0x1p-23 * test::largest(std::span<float const>(once)) * std::sqrt(10.0); // N = 10 rows
  CHECK(test::mismatches(std::span<float const>(twice), std::span<double const>(expected), bound) == "");
  CHECK(test::largest(std::span<float const>(once)) > 0);
}

TEST_CASE("the same batch gives the same bits in every run", "[model]") {
  ExecutionSpace const exec;
  Fp32Model model(exec, small, {3, 7});
  MicroBatch const batch = model.load();
  model.forward_backward(exec, batch);
  std::vector<float> const first = copy_to_host(exec, model.gradients, "test");
  for (int repeat = 0; repeat < 3; ++repeat) {
    model.forward_backward(exec, batch);
    CHECK(copy_to_host(exec, model.gradients, "test") == first);
  }
}

TEST_CASE("masks that are stored and masks that are recomputed give the same bits", "[model]") {
  AttentionKind const attention = GENERATE(AttentionKind::materialized, AttentionKind::flash);
  ExecutionSpace const exec;
  std::vector<std::vector<float>> gradients;
  for (DropoutMasks const masks : {DropoutMasks::recomputed, DropoutMasks::stored}) {
    Fp32Model model(exec, small, {3, 7}, {attention, 0.25, masks});
    model.forward_backward(exec, model.load());
    gradients.push_back(copy_to_host(exec, model.gradients, "test"));
  }
  CHECK(gradients[0] == gradients[1]);
}

TEST_CASE("a loss in chunks has the losses of the whole one, and its gradients but for the order of a sum", "[model]") {
  Index const chunks = GENERATE(3, 7, 21);
  ExecutionSpace const exec;
  auto const trained = [&](Index in) {
    Fp32Model model(exec, small, {3, 7}, {.loss_chunks = in});
    MicroBatch const batch = model.load();
    model.forward_backward(exec, batch);
    model.forward_backward(exec, batch, Write::add); // to the gradients of an earlier micro-batch
    return std::pair(copy_to_host(exec, model.gpt.losses(), "test"), copy_to_host(exec, model.gradients, "test"));
  };
  auto const [losses, gradients] = trained(1);
  auto const [losses_in_chunks, gradients_in_chunks] = trained(chunks);
  std::vector<double> const expected(gradients.begin(), gradients.end());
  double const bound = 8 * 0x1p-23 * test::largest(std::span<float const>(gradients)) * std::sqrt(21.0); // N = 21 rows
  CHECK(test::mismatches(std::span<float const>(gradients_in_chunks), std::span<double const>(expected), bound) == "");
  std::vector<double> const wanted(losses.begin(), losses.end());
  CHECK(test::mismatches(std::span<float const>(losses_in_chunks), std::span<double const>(wanted), 1e-6) == "");
  CHECK(gradients_in_chunks != std::vector<float>(gradients.size(), 0));
}

TEST_CASE("what is computed again gives the bits of what is kept", "[model]") {
  GptOptions options = GENERATE(from_range(all_options()));
  ExecutionSpace const exec;
  auto const gradients_with = [&](std::vector<Recompute> const& recompute) {
    options.recompute = recompute;
    Fp32Model model(exec, small, {3, 7}, options);
    model.forward_backward(exec, model.load());
    return copy_to_host(exec, model.gradients, "test");
  };
  std::vector<float> const kept = gradients_with({});
  for (std::vector<Recompute> const& recompute : all_recomputations(options.attention))
    CHECK(gradients_with(recompute) == kept);
}

TEST_CASE("each piece of a block's backward completes the elements that the table says, and writes no others",
          "[model]") {
  ExecutionSpace const exec;
  TestModel<float, float> model(exec, {1, 3, 12, 11, 29}, {2, 5});
  MicroBatch const batch = model.load();
  for (Part const part : parts(1))
    model.gpt.forward(exec, part, batch, model.of_unit(model.parameters, model.table.unit_of(part.block)));
  model.gpt.loss(exec, batch, LossMode::training);
  model.gpt.backward(exec, {PartKind::head}, batch, model.of_unit(model.parameters, 0),
                     {model.of_unit(model.gradients, 0), Write::overwrite});
  PartTable const table(model.table);
  Vector<float> const gradients = model.of_unit(model.gradients, 1);
  constexpr float untouched = 12345;
  Kokkos::deep_copy(exec, gradients, untouched);
  std::vector<std::pair<Range, std::vector<float>>> after;
  Index const padding = model.table.units()[1].padded - model.table.groups().back().size;
  for (Index const part : {2, 1}) // mlp 0, attention 0
    for (Index piece = 0; piece < std::ssize(table.backward(part)); ++piece) {
      model.gpt.backward(exec, table[part], batch, model.of_unit(model.parameters, 1), {gradients, Write::overwrite},
                         piece);
      after.emplace_back(table.backward(part)[static_cast<std::size_t>(piece)].written.front(),
                         copy_to_host(exec, gradients, "test"));
    }
  std::vector<float> const& complete = after.back().second;
  REQUIRE(after.size() == 6);
  Index last = static_cast<Index>(complete.size());
  for (auto const& [written, values] : after) {
    INFO("from " << written.begin);
    CHECK(written.end == last);
    CHECK(std::equal(values.begin() + written.begin, values.end(), complete.begin() + written.begin));
    CHECK(std::ranges::count(std::span(values).first(static_cast<std::size_t>(written.begin)), untouched) ==
          written.begin); // the rest comes later
    last = written.begin;
  }
  CHECK(last == 0);
  CHECK(std::ranges::count(complete, untouched) == padding);
}

TEST_CASE("tokens whose rows pad the vocabulary have neither probability nor gradient", "[model]") {
  ExecutionSpace const exec;
  Fp32Model model(exec, small, {2, 5});
  model.forward_backward(exec, model.load());
  std::vector<float> const d_wte =
      copy_to_host(exec, vector_of(model.table.find(Tensor::wte), model.gradients), "test");
  auto const used = static_cast<std::size_t>(small.vocab * small.channels);
  CHECK(test::largest(std::span<float const>(d_wte).first(used)) > 0);
  CHECK(test::largest(std::span<float const>(d_wte).subspan(used)) == 0);
}
