// The whole model against the reference model of fp64 loops, on shapes that the fixtures do not have, and its rules:
// repeatable bits, counted work.

#include "model/gpt.hpp"

#include "core/counters.hpp"
#include "core/host_copy.hpp"
#include "core/random.hpp"
#include "model/llmc_parameters.hpp"
#include "model/work.hpp"
#include "support/compare.hpp"
#include "support/reference_model.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <ranges>

using namespace trainstone;

namespace {

/// A model with its memory, random parameters and a random batch.
struct TestModel {
  TestModel(ExecutionSpace const& exec, GptConfig const& shape, MicroBatchShape batch_shape)
      : config(shape),
        rows(batch_shape),
        table(config, 1),
        state_memory(ledger, MemoryCategory::parameters, "state",
                     2 * Arena::footprint(static_cast<std::uint64_t>(table.size()) * sizeof(float))),
        activation_memory(ledger, MemoryCategory::activations, "activations",
                          total_bytes(activation_plan(config, rows))),
        scratch(ledger, MemoryCategory::buffers, "scratch",
                gemm_scratch_bytes(config, rows, resolve_gemm_provider(GemmProvider::automatic))),
        state_arena(state_memory.bytes()),
        activation_arena(activation_memory.bytes()),
        parameters(state_arena.vector<float>("parameters", table.size())),
        gradients(state_arena.vector<float>("gradients", table.size())),
        gemm(GemmProvider::automatic, scratch.bytes()),
        gpt(config, table, rows, bind_activations(config, rows, activation_arena), gemm) {
    for (Index group = 0; group < std::ssize(table.groups()); ++group)
      initialize_parameters(exec, table, group, 7, of_group(parameters, group));
    Kokkos::deep_copy(exec, gradients, 0.0f);
    for (Index i = 0; i < rows.rows(); ++i) {
      RandomBlock const random = random_block(5, RandomStream::tests, static_cast<std::uint64_t>(i));
      inputs.push_back(static_cast<std::int32_t>(random.words[0] % static_cast<std::uint32_t>(config.vocab)));
      targets.push_back(static_cast<std::int32_t>(random.words[1] % static_cast<std::uint32_t>(config.vocab)));
    }
  }

  MicroBatch load() {
    auto const count = inputs.size();
    std::vector<std::int32_t> order(count), begin(count + 1), bucket_token(count);
    build_token_buckets(inputs, config.vocab, order, begin, bucket_token);
    arrays.clear();
    for (auto const* values : {&inputs, &targets, &order, &begin, &bucket_token}) arrays.emplace_back(*values);
    return {.tokens = arrays[0].vector(),
            .targets = arrays[1].vector(),
            .buckets = {arrays[2].vector(), arrays[3].vector(), arrays[4].vector()},
            .gradient_scale = 1.0f / static_cast<float>(rows.rows())};
  }

  Vector<float> of_group(Vector<float> flat, Index group) const {
    ParameterGroup const& entry = table.groups()[static_cast<std::size_t>(group)];
    return Vector<float>(flat.data() + entry.offset, static_cast<std::size_t>(entry.padded));
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
  MicroBatchShape rows;
  ParameterTable table;
  MemoryLedger ledger;
  Allocation state_memory, activation_memory, scratch;
  Arena state_arena, activation_arena;
  Vector<float> parameters, gradients;
  Gemm gemm;
  Gpt gpt;
  std::vector<std::int32_t> inputs, targets;
  std::vector<test::DeviceTensor<std::int32_t>> arrays;
};

GptConfig const small{2, 3, 12, 11, 29};

} // namespace

TEST_CASE("losses and every gradient equal the reference model's on odd shapes", "[model]") {
  auto const [config, rows] =
      GENERATE(std::pair{small, MicroBatchShape{3, 7}}, std::pair{GptConfig{1, 1, 1, 1, 1}, MicroBatchShape{1, 1}},
               std::pair{GptConfig{1, 2, 34, 13, 300}, MicroBatchShape{2, 13}});
  ExecutionSpace const exec;
  TestModel model(exec, config, rows);
  MicroBatch const batch = model.load();
  model.forward_backward(exec, batch);

  LlmcShape const shape = llmc_shape_of(config);
  test::ReferenceModel reference(shape);
  for (LlmcTensor const& tensor : reference.tensors())
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      std::vector<float> const values =
          copy_to_host(exec, vector_of(table_entry(model.table, tensor, layer), model.parameters), "test");
      std::ranges::copy(values, reference.parameter(tensor.name, layer).begin());
    }
  double const mean_loss = reference.forward(model.inputs, model.targets, rows.sequence);
  reference.backward();

  double sum = 0;
  for (float loss : copy_to_host(exec, model.gpt.activations().losses, "test")) sum += static_cast<double>(loss);
  // fp32 rounding of logits of size 1, over the longest sum (4 C terms) and the layers
  double const eps = 0x1p-23, bound = 8 * eps * std::sqrt(4.0 * static_cast<double>(config.channels));
  CHECK(std::abs(sum / static_cast<double>(rows.rows()) - mean_loss) <= bound * mean_loss + 1e-12);
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

TEST_CASE("a second micro-batch adds to the gradients of the first", "[model]") {
  ExecutionSpace const exec;
  TestModel model(exec, small, {2, 5});
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
  TestModel model(exec, small, {3, 7});
  MicroBatch const batch = model.load();
  model.forward_backward(exec, batch);
  std::vector<float> const first = copy_to_host(exec, model.gradients, "test");
  for (int repeat = 0; repeat < 3; ++repeat) {
    model.forward_backward(exec, batch);
    CHECK(copy_to_host(exec, model.gradients, "test") == first);
  }
}

TEST_CASE("counted FLOPs of a micro-batch equal the plan", "[model]") {
  ExecutionSpace const exec;
  TestModel model(exec, small, {3, 7});
  MicroBatch const batch = model.load();
  counters() = {};
  model.forward_backward(exec, batch);
  CHECK(counters().flops[Phase::gemm] == training_flops(small, {3, 7}).gemm);
  CHECK(counters().flops[Phase::attention] == training_flops(small, {3, 7}).attention);
}

TEST_CASE("tokens whose rows pad the vocabulary have neither probability nor gradient", "[model]") {
  ExecutionSpace const exec;
  TestModel model(exec, small, {2, 5});
  model.forward_backward(exec, model.load());
  std::vector<float> const d_wte =
      copy_to_host(exec, vector_of(model.table.find(Tensor::wte), model.gradients), "test");
  auto const used = static_cast<std::size_t>(small.vocab * small.channels);
  CHECK(test::largest(std::span<float const>(d_wte).first(used)) > 0);
  CHECK(test::largest(std::span<float const>(d_wte).subspan(used)) == 0);
}
