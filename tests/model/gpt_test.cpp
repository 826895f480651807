// The whole model against the reference model of fp64 loops, on shapes that the fixtures do not have, and its rules:
// repeatable bits, counted work.

#include "model/gpt.hpp"

#include "core/counters.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "core/random.hpp"
#include "kernels/cast.hpp"
#include "model/llmc_parameters.hpp"
#include "model/work.hpp"
#include "support/compare.hpp"
#include "support/reference_model.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <ranges>
#include <string>

using namespace trainstone;

namespace {

/// A model with its memory, random parameters and a random batch. Parameters and activations are stored as T.
template <class T, class Gradient>
struct TestModel {
  static constexpr ModelStorage storage{storage_of<T>(), storage_of<Gradient>()};

  TestModel(ExecutionSpace const& exec, GptConfig const& shape, MicroBatchShape batch_shape, GptOptions const& how = {},
            GemmProvider products = GemmProvider::automatic)
      : config(shape),
        options(how),
        rows(batch_shape),
        table(config, 1),
        provider(resolve_gemm_provider(products)),
        state_memory(
            ledger, MemoryCategory::parameters, "state",
            total_bytes({planned<T>("parameters", table.size()), planned<Gradient>("gradients", table.size())})),
        activation_memory(ledger, MemoryCategory::activations, "activations",
                          total_bytes(activation_plan(config, rows, storage.values, options))),
        scratch(ledger, MemoryCategory::buffers, "scratch", gemm_scratch_bytes(config, rows, provider, storage)),
        state_arena(state_memory.bytes()),
        activation_arena(activation_memory.bytes()),
        parameters(state_arena.vector<T>("parameters", table.size())),
        gradients(state_arena.vector<Gradient>("gradients", table.size())),
        gemm(provider, scratch.bytes()),
        gpt(config, table, rows, bind_activations(config, rows, activation_arena, storage.values, options), gemm,
            options) {
    for (Index g = 0; g < std::ssize(table.groups()); ++g) {
      Index const padded = table.groups()[static_cast<std::size_t>(g)].padded;
      test::DeviceTensor<float> const values(padded, 0.0f);
      initialize_parameters(exec, table, g, 7, {0, padded}, values.vector());
      cast(exec, ConstStoredVector(values.vector()), StoredVector(of_group(parameters, g)));
    }
    Kokkos::deep_copy(exec, gradients, from_float<Gradient>(0.0f));
    for (Index i = 0; i < rows.rows(); ++i) {
      RandomBlock const random = random_block(5, RandomStream::tests, static_cast<std::uint64_t>(i));
      inputs.push_back(static_cast<std::int32_t>(random.words[0] % static_cast<std::uint32_t>(config.vocab)));
      targets.push_back(static_cast<std::int32_t>(random.words[1] % static_cast<std::uint32_t>(config.vocab)));
    }
  }

  /// `loss_scale` multiplies the gradient of the mean loss.
  MicroBatch load(float loss_scale = 1) {
    auto const count = inputs.size();
    std::vector<std::int32_t> order(count), begin(count + 1), bucket_token(count);
    build_token_buckets(inputs, config.vocab, order, begin, bucket_token);
    arrays.clear();
    for (auto const* values : {&inputs, &targets, &order, &begin, &bucket_token}) arrays.emplace_back(*values);
    return {.tokens = arrays[0].vector(),
            .targets = arrays[1].vector(),
            .buckets = {arrays[2].vector(), arrays[3].vector(), arrays[4].vector()},
            .gradient_scale = loss_scale / static_cast<float>(rows.rows()),
            .dropout = {.rate = options.dropout, .seed = 11, .first_sample = 40}};
  }

  template <class Element>
  Vector<Element> of_group(Vector<Element> flat, Index group) const {
    ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
    return Vector<Element>(flat.data() + entry.offset, static_cast<std::size_t>(entry.padded));
  }

  void forward_backward(ExecutionSpace const& exec, MicroBatch const& batch, Write write = Write::overwrite) {
    std::vector<Unit> const all = units(config.layers);
    for (Unit unit : all) gpt.forward(exec, unit, batch, of_group(parameters, group_read_by(unit)));
    gpt.loss(exec, batch, LossMode::training);
    for (Unit unit : all | std::views::reverse) {
      Index const group = group_read_by(unit);
      gpt.backward(exec, unit, batch, of_group(parameters, group), {of_group(gradients, group), write});
    }
  }

  GptConfig config;
  GptOptions options;
  MicroBatchShape rows;
  ParameterTable table;
  GemmProvider provider;
  MemoryLedger ledger;
  Allocation state_memory, activation_memory, scratch;
  Arena state_arena, activation_arena;
  Vector<T> parameters;
  Vector<Gradient> gradients;
  Gemm gemm;
  Gpt gpt;
  std::vector<std::int32_t> inputs, targets;
  std::vector<test::DeviceTensor<std::int32_t>> arrays;
};

using Fp32Model = TestModel<float, float>;

/// The reference model with the parameters of `model` as they are stored, after forward and backward.
template <class T, class Gradient>
struct Expected {
  Expected(ExecutionSpace const& exec, TestModel<T, Gradient> const& model, double loss_scale)
      : reference(llmc_shape_of(model.config)) {
    for (LlmcTensor const& tensor : reference.tensors())
      for (Index layer = 0; layer < tensor.layers; ++layer)
        std::ranges::copy(test::widened(copy_to_host(
                              exec, vector_of(table_entry(model.table, tensor, layer), model.parameters), "test")),
                          reference.parameter(tensor.name, layer).begin());
    reference::DropoutSite const first_site{.rate = model.options.dropout, .seed = 11, .first_sample = 40, .site = 0};
    reference.drop(first_site); // nvcc 13.0 loses the braces of an argument here
    mean_loss = reference.forward(model.inputs, model.targets, model.rows.sequence);
    reference.backward(loss_scale);
  }

  test::ReferenceModel reference;
  double mean_loss;
};

template <class T, class Gradient>
double mean_loss(ExecutionSpace const& exec, TestModel<T, Gradient> const& model) {
  double sum = 0;
  for (float loss : copy_to_host(exec, model.gpt.losses(), "test")) sum += static_cast<double>(loss);
  return sum / static_cast<double>(model.rows.rows());
}

using SixteenBitTypes = std::tuple<test::Stored<bf16, bf16>, test::Stored<bf16, float>, test::Stored<fp16, fp16>,
                                   test::Stored<fp16, float>>;
GptConfig const small{2, 3, 12, 11, 29};
/// Where all extents of products are multiples of 8: there providers do biases and GELUs, too.
GptConfig const even{2, 2, 16, 11, 29};
MicroBatchShape const even_rows{3, 8};

/// Both kinds of attention, without dropout and with masks of both kinds.
std::vector<GptOptions> all_options() {
  std::vector<GptOptions> all;
  for (AttentionKind const attention : {AttentionKind::materialized, AttentionKind::flash}) {
    all.push_back({.attention = attention});
    for (DropoutMasks const masks : {DropoutMasks::recomputed, DropoutMasks::stored})
      all.push_back({.attention = attention, .dropout = 0.25, .dropout_masks = masks});
  }
  return all;
}

} // namespace

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
  Unit const block{UnitKind::block, 0};
  CHECK(model.gpt.storage() == Storage::bf16);
  CHECK_NOTHROW(model.gpt.forward(exec, block, batch, model.of_group(right, 1)));
  CHECK_THROWS_AS(model.gpt.forward(exec, block, batch, model.of_group(wrong, 1)), Error);
  CHECK_THROWS_AS(
      model.gpt.backward(exec, block, batch, model.of_group(right, 1), {model.of_group(wrong, 1), Write::overwrite}),
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

TEST_CASE("a block starts these kernels, and the plan counts as many more for every block", "[model]") {
  ExecutionSpace const exec;
  Fp32Model model(exec, small, {3, 7}, {}, GemmProvider::kokkos);
  MicroBatch const batch = model.load();
  model.forward_backward(exec, batch); // what a block reads is there
  std::string seen;
  LaunchObserver::Scoped const observing(launch_observer(), [&seen](char const* label, ExecutionSpace const&) {
    seen += std::string(label).substr(std::string("trainstone::").size()) + ' ';
  });
  Unit const block = units(small.layers).at(1);
  Index const group = group_read_by(block);
  model.gpt.forward(exec, block, batch, model.of_group(model.parameters, group));
  CHECK(seen == "layernorm::forward gemm bias::forward attention::forward gemm layernorm::residual_forward gemm "
                "bias_gelu::forward gemm residual::forward ");
  model.gpt.backward(exec, block, batch, model.of_group(model.parameters, group),
                     {model.of_group(model.gradients, group), Write::overwrite});
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

TEST_CASE("a block announces gradients that stay as they are, from its end to its begin", "[model]") {
  ExecutionSpace const exec;
  TestModel<float, float> model(exec, {1, 3, 12, 11, 29}, {2, 5});
  MicroBatch const batch = model.load();
  for (Unit const unit : units(1))
    model.gpt.forward(exec, unit, batch, model.of_group(model.parameters, group_read_by(unit)));
  model.gpt.loss(exec, batch, LossMode::training);
  model.gpt.backward(exec, {UnitKind::head}, batch, model.of_group(model.parameters, 0),
                     {model.of_group(model.gradients, 0), Write::overwrite});
  Vector<float> const gradients = model.of_group(model.gradients, 1);
  std::vector<std::pair<Index, std::vector<float>>> announced;
  GradientTarget target{gradients, Write::overwrite};
  target.completed = [&](Index begin) { announced.emplace_back(begin, copy_to_host(exec, gradients, "test")); };
  model.gpt.backward(exec, {UnitKind::block, 0}, batch, model.of_group(model.parameters, 1), target);
  std::vector<float> const complete = copy_to_host(exec, gradients, "test");
  REQUIRE(announced.size() == 5);
  Index last = static_cast<Index>(complete.size());
  for (auto const& [begin, values] : announced) {
    INFO("from " << begin);
    CHECK(begin < last);
    CHECK(std::equal(values.begin() + begin, values.end(), complete.begin() + begin));
    CHECK_FALSE(std::equal(values.begin(), values.begin() + begin, complete.begin())); // the rest comes later
    last = begin;
  }
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
