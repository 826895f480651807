// The work that a model's kernels count, against the work that the plan predicts (model/work.hpp).

#include "core/counters.hpp"
#include "core/launch.hpp"
#include "model/gpt_comparison.hpp"
#include "support/compare.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

TEMPLATE_LIST_TEST_CASE("counted kernels of a micro-batch equal the plan in every type, with every option", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions const options = GENERATE(from_range(all_options()));
  Write const mode = GENERATE(Write::overwrite, Write::add);
  ExecutionSpace const exec;
  Model model(exec, small, {3, 7}, options);
  MicroBatch const batch = model.load();
  counters() = {};
  model.forward_backward(exec, batch, mode);
  CHECK(total_launches(counters()) == training_launches(small, {3, 7}, options, mode, model.provider, Model::storage));
}

TEMPLATE_LIST_TEST_CASE("counted kernels of a model of even extents equal the plan with every provider", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GemmProvider const provider = GENERATE(from_range(built_gemm_providers()));
  Write const mode = GENERATE(Write::overwrite, Write::add);
  INFO(to_string(provider));
  ExecutionSpace const exec;
  Model model(exec, even, even_rows, {}, provider);
  MicroBatch const batch = model.load();
  counters() = {};
  model.forward_backward(exec, batch, mode);
  CHECK(total_launches(counters()) == training_launches(even, even_rows, {}, mode, provider, Model::storage));
}

TEMPLATE_LIST_TEST_CASE("FLOPs and bytes of every kernel equal the plan in every type, with every option", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions const options = GENERATE(from_range(all_options()));
  GemmProvider const provider = GENERATE(from_range(built_gemm_providers()));
  Write const mode = GENERATE(Write::overwrite, Write::add);
  ExecutionSpace const exec;
  Model model(exec, even, even_rows, options, provider);
  CHECK(counted_works(exec, model, mode) == planned_works(model, mode));
}

TEMPLATE_LIST_TEST_CASE("FLOPs and bytes of every kernel equal the plan with every provider of attention", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptConfig const config{2, 2, 128, 11, 29};
  ExecutionSpace const exec;
  for (AttentionProvider const provider : built_attention_providers()) {
    for (double const dropout : {0.0, 0.25})
      for (Index const blocks : {1, 2}) {
        INFO(to_string(provider) << ", dropout " << dropout << ", slices " << blocks);
        GptOptions const options{.attention = AttentionKind::flash,
                                 .dropout = dropout,
                                 .recompute = {Recompute::full, Recompute::none},
                                 .slices = {.blocks = blocks},
                                 .attention_provider = provider};
        AttentionNeed const need = attention_need(config, even_rows, Model::storage.values, options);
        if (!attention_problem(provider, need).empty()) continue;
        Model model(exec, config, even_rows, options);
        CHECK(counted_works(exec, model, Write::overwrite) == planned_works(model, Write::overwrite));
      }
  }
}

TEMPLATE_LIST_TEST_CASE("a loss in chunks is counted as planned: FLOPs and bytes of every kernel", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions const options{.loss_chunks = GENERATE(2, 8)};
  Write const mode = GENERATE(Write::overwrite, Write::add);
  ExecutionSpace const exec;
  Model model(exec, even, even_rows, options);
  CHECK(counted_works(exec, model, mode) == planned_works(model, mode));
}

TEMPLATE_LIST_TEST_CASE("what is computed again is counted as planned: FLOPs and bytes of every kernel", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions options = GENERATE(from_range(all_options()));
  ExecutionSpace const exec;
  for (std::vector<Recompute> const& recompute : all_recomputations(options.attention)) {
    options.recompute = recompute;
    Model model(exec, even, even_rows, options);
    CHECK(counted_works(exec, model, Write::overwrite) == planned_works(model, Write::overwrite));
  }
}

TEST_CASE("a block starts these kernels, and the plan counts as many more for every block", "[model]") {
  ExecutionSpace const exec;
  Fp32Model model(exec, small, {3, 7}, {}, GemmProvider::kokkos);
  MicroBatch const batch = model.load();
  model.forward_backward(exec, batch); // what a block reads is there
  std::string seen;
  LaunchObserver::Scoped const observing(launch_observer(), [&seen](char const* label, ExecutionSpace const&) {
    seen += std::string(label).substr(std::string("trainstone::").size()) + ' ';
  });
  Index const unit = 1;
  for (PartKind const kind : {PartKind::attention, PartKind::mlp})
    model.gpt.forward(exec, {kind, 0}, batch, model.of_unit(model.parameters, unit));
  CHECK(seen == "layernorm::forward gemm bias::forward attention::forward gemm layernorm::residual_forward gemm "
                "bias_gelu::forward gemm residual::forward ");
  for (PartKind const kind : {PartKind::mlp, PartKind::attention})
    model.gpt.backward(exec, {kind, 0}, batch, model.of_unit(model.parameters, unit),
                       {model.of_unit(model.gradients, unit), Write::overwrite});
  // the MLP, then attention: the second layer's weight; through GELU or attention; the first layer's input, then its
  // weight; the norm
  CHECK(seen.ends_with("residual::forward bias::backward gemm gemm gelu::backward gemm bias::backward gemm "
                       "layernorm::backward layernorm::backward_parameters bias::backward gemm gemm "
                       "attention::backward gemm bias::backward gemm layernorm::backward "
                       "layernorm::backward_parameters "));
  GptConfig const more{small.layers + 1, 3, 12, 11, 29};
  GemmChoice const gemm = GemmProvider::kokkos;
  auto const training = [&](auto const& c) {
    return training_launches(c, {3, 7}, {}, Write::add, gemm, model.storage);
  };
  auto const evaluation = [&](auto const& c) { return evaluation_launches(c, {3, 7}, gemm, model.storage); };
  CHECK(training(more) - training(small) == static_cast<std::uint64_t>(std::ranges::count(seen, ' ')));
  CHECK(evaluation(more) - evaluation(small) == 10); // as listed for forward
}

TEST_CASE("counted FLOPs of a micro-batch equal the plan", "[model]") {
  GptOptions const options = GENERATE(from_range(all_options()));
  ExecutionSpace const exec;
  Fp32Model model(exec, small, {3, 7}, options);
  MicroBatch const batch = model.load();
  counters() = {};
  model.forward_backward(exec, batch);
  CHECK(counters().flops[Phase::gemm] == training_flops(small, {3, 7}, options).gemm);
  CHECK(counters().flops[Phase::attention] == training_flops(small, {3, 7}, options).attention);
}
