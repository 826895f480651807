// The stages of a pipeline, one after the other in one process, against the whole model: the same bits.

#include "core/host_copy.hpp"
#include "model/gpt_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <ranges>
#include <string>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Values = std::vector<float>;

constexpr Index micro_batches = 2;
MicroBatchShape const rows{2, 6};

/// What a training of two micro-batches leaves. The token table's gradient is there by the part that wrote it.
struct Trained {
  std::vector<Values> outputs; ///< of head's forward, by micro-batch
  std::vector<Values> losses;
  std::map<std::string, Values> gradients;
};

/// Micro-batches of different tokens.
class Batches {
public:
  Batches(GptConfig const& config, GptOptions const& options) {
    for (Index number = 0; number < micro_batches; ++number) add(config, options, number);
  }
  MicroBatch const& operator[](Index number) const { return m_batches[static_cast<std::size_t>(number)]; }

private:
  static std::vector<std::int32_t> random_tokens(GptConfig const& config, Index seed) {
    std::vector<std::int32_t> tokens;
    for (float const value : random_values(rows.rows(), static_cast<std::uint64_t>(seed), 0, 1))
      tokens.push_back(static_cast<std::int32_t>(value * 0.999F * static_cast<float>(config.vocab)));
    return tokens;
  }

  void add(GptConfig const& config, GptOptions const& options, Index number) {
    std::vector<std::int32_t> tokens = random_tokens(config, number), targets = random_tokens(config, number + 9);
    std::vector<std::int32_t> order(tokens.size()), begin(tokens.size() + 1), bucket_token(tokens.size());
    build_token_buckets(tokens, config.vocab, order, begin, bucket_token);
    std::vector<Vector<std::int32_t>> on_device;
    for (auto const* values : {&tokens, &targets, &order, &begin, &bucket_token})
      on_device.push_back(m_arrays.emplace_back(*values).vector());
    m_batches.push_back({.tokens = on_device[0],
                         .targets = on_device[1],
                         .buckets = {on_device[2], on_device[3], on_device[4]},
                         .gradient_scale = 1 / static_cast<float>(micro_batches * rows.rows()),
                         .dropout = {.rate = options.dropout,
                                     .seed = 11,
                                     .first_sample = static_cast<std::uint64_t>(number * rows.batch)}});
  }

  std::vector<DeviceTensor<std::int32_t>> m_arrays;
  std::vector<MicroBatch> m_batches;
};

Write write_of(Index micro_batch) { return micro_batch == 0 ? Write::overwrite : Write::add; }

void add_gradients(ExecutionSpace const& exec, Fp32Model const& model, DeviceTensor<float> const& looked_up,
                   Trained& trained) {
  bool const embed = model.table.stage().embed, head = model.table.stage().head;
  for (ParameterTensor const& tensor : model.table.tensors()) {
    bool const is_table = tensor.tensor == Tensor::wte;
    std::string const name = !is_table ? tensor.name : head ? "wte of head" : "wte of embed";
    REQUIRE(trained.gradients.emplace(name, copy_to_host(exec, vector_of(tensor, model.gradients), "test")).second);
  }
  if (embed && head) trained.gradients["wte of embed"] = looked_up.values();
}

DeviceTensor<float> zeros_of_table(GptConfig const& config) { return {config.padded_vocab() * config.channels, 0.0f}; }

Trained train_whole(ExecutionSpace const& exec, GptConfig const& config, GptOptions const& options) {
  Fp32Model model(exec, config, rows, options);
  Batches const batches(config, options);
  DeviceTensor<float> const looked_up = zeros_of_table(config);
  Trained trained;
  for (Index i = 0; i < micro_batches; ++i) {
    for (Part const part : parts(config.layers))
      model.gpt.forward(exec, part, batches[i], model.of_unit(model.parameters, model.table.unit_of(part.block)));
    trained.outputs.push_back(copy_to_host(exec, model.gpt.output({PartKind::head}).flat(), "test"));
    model.forward_backward(exec, batches[i], write_of(i), looked_up.vector());
    trained.losses.push_back(copy_to_host(exec, model.gpt.losses(), "test"));
  }
  add_gradients(exec, model, looked_up, trained);
  return trained;
}

/// The stages of one model. Chunk 0 of all stages comes first, then chunk 1.
class Stages {
public:
  Stages(ExecutionSpace const& exec, GptConfig const& config, GptOptions const& options,
         std::vector<ModelStage> const& stages)
      : m_exec(exec), m_options(options), m_batches(config, options), m_looked_up(zeros_of_table(config)) {
    m_chunks = std::ssize(blocks_by_chunk(stages.front()));
    for (ModelStage const& stage : stages) {
      ActivationCopies const copies{
          .slots = micro_batches * m_chunks, .inputs = micro_batches * m_chunks, .gradients = micro_batches};
      m_models.push_back(std::make_unique<Fp32Model>(exec, config, rows, options, stage, copies));
      m_parts.emplace_back(m_models.back()->table, options);
    }
    for (Index chunk = 0; chunk < m_chunks; ++chunk)
      for (Index stage = 0; stage < std::ssize(stages); ++stage) m_order.push_back({stage, chunk});
  }

  /// All forwards before all backwards: every micro-batch is in its slots at once.
  Trained train() {
    for (Index i = 0; i < micro_batches; ++i) forward(i);
    for (Index i = 0; i < micro_batches; ++i) backward(i);
    for (auto const& model : m_models) add_gradients(m_exec, *model, m_looked_up, m_trained);
    return m_trained;
  }

private:
  struct Place {
    Index stage, chunk;
  };

  /// All different, and in other orders than micro-batches have.
  ActivationBuffers buffers(Place const& place, Index micro_batch) const {
    Index const number = micro_batch * m_chunks + place.chunk;
    return {
        .slot = micro_batches * m_chunks - 1 - number, .input = number, .gradient = micro_batches - 1 - micro_batch};
  }
  Fp32Model& model(Place const& place) { return *m_models[static_cast<std::size_t>(place.stage)]; }
  PartTable const& parts_of(Place const& place) const { return m_parts[static_cast<std::size_t>(place.stage)]; }

  void send(StoredMatrix const& from, StoredMatrix const& to) const {
    Kokkos::deep_copy(m_exec, to.as<float>(), from.as<float>());
  }

  void forward(Index micro_batch) {
    Place const* before = nullptr;
    for (Place const& place : m_order) {
      ActivationBuffers const with = buffers(place, micro_batch);
      Fp32Model& here = model(place);
      if (before != nullptr)
        send(model(*before).gpt.chunk_output(before->chunk, buffers(*before, micro_batch).slot),
             here.gpt.input(with.input));
      Range const numbers = parts_of(place).chunk_parts(place.chunk);
      for (Index number = numbers.begin; number < numbers.end; ++number)
        here.gpt.forward(m_exec, parts_of(place)[number], m_batches[micro_batch],
                         here.of_unit(here.parameters, parts_of(place).unit(number)), {}, with);
      before = &place;
    }
    turn_round(m_order.back(), micro_batch);
  }

  /// Loss and head's backward, at once.
  void turn_round(Place const& place, Index micro_batch) {
    ActivationBuffers const with = buffers(place, micro_batch);
    MicroBatch const& batch = m_batches[micro_batch];
    Fp32Model& here = model(place);
    Part const head{PartKind::head};
    Vector<float> const parameters = here.of_unit(here.parameters, 0);
    GradientTarget const target{here.of_unit(here.gradients, 0), write_of(micro_batch)};
    m_trained.outputs.push_back(copy_to_host(m_exec, here.gpt.output(head, with).flat(), "test"));
    if (m_options.splits_loss()) {
      for (Index chunk = 0; chunk < m_options.loss_chunks; ++chunk) {
        here.gpt.loss(m_exec, batch, LossMode::training, parameters, chunk, with);
        here.gpt.backward(m_exec, head, batch, parameters, target, chunk, with);
      }
      here.gpt.backward(m_exec, head, batch, parameters, target, m_options.loss_chunks, with); // the norm
    } else {
      here.gpt.loss(m_exec, batch, LossMode::training, {}, {}, with);
      here.gpt.backward(m_exec, head, batch, parameters, target, {}, with);
    }
    m_trained.losses.push_back(copy_to_host(m_exec, here.gpt.losses(), "test"));
  }

  void backward(Index micro_batch) {
    Place const* behind = nullptr;
    for (Place const& place : m_order | std::views::reverse) {
      Index const gradient = buffers(place, micro_batch).gradient;
      if (behind != nullptr)
        send(model(*behind).gpt.stream_gradient(buffers(*behind, micro_batch).gradient),
             model(place).gpt.stream_gradient(gradient));
      Range const numbers = parts_of(place).chunk_parts(place.chunk);
      for (Index number = numbers.end - 1; number >= numbers.begin; --number)
        if (parts_of(place)[number].kind != PartKind::head) backward(place, number, micro_batch);
      behind = &place;
    }
  }

  void backward(Place const& place, Index number, Index micro_batch) {
    ActivationBuffers const with = buffers(place, micro_batch);
    MicroBatch const& batch = m_batches[micro_batch];
    Fp32Model& here = model(place);
    Part const part = parts_of(place)[number];
    Index const unit = parts_of(place).unit(number);
    Vector<float> const parameters = here.of_unit(here.parameters, unit);
    if (part.kind == PartKind::mlp)
      for (PartKind const kind : {PartKind::attention, PartKind::mlp})
        here.gpt.recompute(m_exec, {kind, part.block}, batch, parameters, {}, with);
    GradientTarget target{here.of_unit(here.gradients, unit), write_of(micro_batch)};
    if (here.table.stage().head) target.looked_up = m_looked_up.vector();
    here.gpt.backward(m_exec, part, batch, parameters, target, {}, with);
  }

  ExecutionSpace m_exec;
  GptOptions m_options;
  Batches m_batches;
  DeviceTensor<float> m_looked_up;
  std::vector<std::unique_ptr<Fp32Model>> m_models;
  std::vector<PartTable> m_parts;
  Index m_chunks = 1;
  std::vector<Place> m_order; ///< of the model
  Trained m_trained;
};

struct Cut {
  Index layers;
  std::vector<ModelStage> stages;
};

/// One to three stages, some without a block; then two stages of two chunks each, also of unequal ones.
std::vector<Cut> cuts() {
  return {{2, {{true, {0, 1}, true}}},
          {5, {{true, {0, 1, 2}, false}, {false, {3, 4}, true}}},
          {5, {{true, {0, 1}, false}, {false, {2, 3}, false}, {false, {4}, true}}},
          {2, {{true, {0, 1}, false}, {false, {}, true}}},
          {2, {{true, {}, false}, {false, {0, 1}, true}}},
          {4, {{true, {0, 2}, false, {1, 1}}, {false, {1, 3}, true, {1, 1}}}},
          {5, {{true, {0, 1, 3}, false, {2, 1}}, {false, {2, 4}, true, {1, 1}}}},
          {2, {{true, {1}, false, {0, 1}}, {false, {0}, true, {1, 0}}}}};
}

std::vector<GptOptions> options_of_stages() {
  using enum DropoutMasks;
  std::vector<Recompute> const full{Recompute::full}, selective{Recompute::selective};
  return {{},
          {.recompute = full},
          {.loss_chunks = 2},
          {.dropout = 0.1, .dropout_masks = recomputed},
          {.dropout = 0.1, .dropout_masks = stored, .recompute = selective},
          {.dropout = 0.1, .dropout_masks = stored, .recompute = full, .loss_chunks = 2},
          {.attention = AttentionKind::flash, .dropout = 0.1, .recompute = full}};
}

} // namespace

TEST_CASE("stages of a model have the bits of the whole model, with several micro-batches in their slots", "[model]") {
  Cut const cut = GENERATE(from_range(cuts()));
  GptOptions const options = GENERATE(from_range(options_of_stages()));
  GptConfig const config{cut.layers, 3, 12, 11, 29};
  ExecutionSpace const exec;
  Trained const whole = train_whole(exec, config, options);
  Trained const staged = Stages(exec, config, options, cut.stages).train();
  CHECK(staged.outputs == whole.outputs);
  CHECK(staged.losses == whole.losses);
  REQUIRE(staged.gradients.size() == whole.gradients.size());
  for (auto const& [name, values] : whole.gradients) {
    INFO(name);
    CHECK(staged.gradients.at(name) == values);
    CHECK(std::ranges::any_of(values, [](float value) { return value != 0; }));
  }
  CHECK(whole.outputs[0] != whole.outputs[1]);
}

TEST_CASE("a model refuses activations of another stage, and a stage without head has no loss", "[model]") {
  GptConfig const config{2, 3, 12, 11, 29};
  ModelStage const first{true, {0}, false};
  ExecutionSpace const exec;
  Fp32Model model(exec, config, rows, {}, first, {1, 0, 1});
  Arena arena(model.activation_memory.bytes());
  Activations const activations(config, rows, arena, Storage::fp32, {}, first);
  CHECK_THROWS_AS(Gpt(config, ParameterTable(config, 1), rows, activations, model.gemm), Error);
  CHECK_THROWS_AS(model.gpt.loss(exec, Batches(config, {})[0], LossMode::training), Error);
  CHECK_THROWS_AS(model.gpt.input(0), Error); // there is none
}
