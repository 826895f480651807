// The work that a model's kernels count, against the work that the plan predicts (model/work.hpp).

#include "core/counters.hpp"
#include "core/launch.hpp"
#include "model/gpt_fixture.hpp"
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

namespace {

/// Launches, FLOPs and bytes of all kernels of one name.
using Works = std::map<std::string, std::array<std::uint64_t, 3>>;

void add(Works& works, std::string const& name, std::uint64_t launches, std::uint64_t flops, std::uint64_t bytes) {
  auto& sum = works[name];
  sum[0] += launches;
  sum[1] += flops;
  sum[2] += bytes;
}

Works works_of(KernelTable const& counted) {
  Works works;
  for (auto const& [label, times] : counted) {
    std::string const name = label.substr(std::string("trainstone::").size());
    add(works, name.starts_with("gemm") ? "gemm" : name, times.launches, times.flops, times.bytes);
  }
  return works;
}

Works works_of(std::vector<KernelUse> const& uses, GemmChoice const& gemm) {
  Works works;
  for (KernelUse const& use : uses)
    for (KernelUse const& started : started_kernels(use, gemm)) {
      auto const count = static_cast<std::uint64_t>(started.count);
      add(works, started.product ? "gemm" : started.name, count, count * started.work.flops,
          count * started.work.bytes);
    }
  return works;
}

} // namespace

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
  MicroBatch const batch = model.load();
  KernelTable counted;
  {
    ThreadKernelTable const counting(&counted);
    model.forward_backward(exec, batch, mode);
  }
  auto const uses = training_kernels(even, even_rows, options, mode, Model::storage);
  CHECK(works_of(counted) == works_of(uses, provider));
}

TEMPLATE_LIST_TEST_CASE("a loss in chunks is counted as planned: FLOPs and bytes of every kernel", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions const options{.loss_chunks = GENERATE(2, 8)};
  Write const mode = GENERATE(Write::overwrite, Write::add);
  ExecutionSpace const exec;
  Model model(exec, even, even_rows, options);
  MicroBatch const batch = model.load();
  KernelTable counted;
  {
    ThreadKernelTable const counting(&counted);
    model.forward_backward(exec, batch, mode);
  }
  CHECK(works_of(counted) ==
        works_of(training_kernels(even, even_rows, options, mode, Model::storage), model.provider));
}

TEMPLATE_LIST_TEST_CASE("what is computed again is counted as planned: FLOPs and bytes of every kernel", "[model]",
                        test::StorageAndGradientTypes) {
  using Model = TestModel<typename TestType::Storage, typename TestType::Gradient>;
  GptOptions options = GENERATE(from_range(all_options()));
  ExecutionSpace const exec;
  for (std::vector<Recompute> const& recompute : all_recomputations(options.attention)) {
    options.recompute = recompute;
    Model model(exec, even, even_rows, options);
    MicroBatch const batch = model.load();
    KernelTable counted;
    {
      ThreadKernelTable const counting(&counted);
      model.forward_backward(exec, batch);
    }
    auto uses = training_kernels(even, even_rows, options, Write::overwrite, Model::storage);
    for (Index block = 0; block < even.layers; ++block)
      for (PartKind const kind : {PartKind::attention, PartKind::mlp}) {
        PartPass const again{.part = kind, .pass = Pass::recompute, .recompute = options.recompute_of(block)};
        std::ranges::copy(part_kernels(again, even, even_rows, options, Model::storage), std::back_inserter(uses));
      }
    CHECK(works_of(counted) == works_of(uses, model.provider));
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
  // the MLP, then attention: gradients of a bias and its weight, then of the input
  CHECK(seen.ends_with("residual::forward bias::backward gemm gemm gelu::backward bias::backward gemm gemm "
                       "layernorm::backward layernorm::backward_parameters bias::backward gemm gemm "
                       "attention::backward bias::backward gemm gemm layernorm::backward "
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
