#pragma once

// A model with everything that it works on, and the shapes and options that tests of the model go through.

#include "core/random.hpp"
#include "kernels/cast.hpp"
#include "model/gpt.hpp"
#include "model/work.hpp"
#include "support/views.hpp"

#include <cstdint>
#include <optional>
#include <ranges>
#include <vector>

namespace trainstone::test {

/// A model, or a stage of one, with its memory, random parameters and a random batch. Parameters and activations are
/// stored as T.
template <class T, class Gradient>
struct TestModel {
  static constexpr ModelStorage storage{storage_of<T>(), storage_of<Gradient>()};

  TestModel(ExecutionSpace const& exec, GptConfig const& shape, MicroBatchShape batch_shape, GptOptions const& how = {},
            GemmProvider products = GemmProvider::automatic)
      : TestModel(exec, shape, batch_shape, how, ModelStage::whole(shape), {}, products) {}

  TestModel(ExecutionSpace const& exec, GptConfig const& shape, MicroBatchShape batch_shape, GptOptions const& how,
            ModelStage const& stage, ActivationCopies const& copies, GemmProvider products = GemmProvider::automatic)
      : config(shape),
        options(how),
        rows(batch_shape),
        table(config, 1, stage, options.slices),
        provider(resolve_gemm_provider(products)),
        state_memory(
            ledger, MemoryCategory::parameters, "state",
            total_bytes({planned<T>("parameters", table.size()), planned<Gradient>("gradients", table.size())})),
        activation_memory(ledger, MemoryCategory::activations, "activations",
                          total_bytes(activation_plan(config, rows, storage.values, options, stage, copies))),
        scratch(ledger, MemoryCategory::buffers, "scratch",
                gemm_scratch_bytes(config, rows, provider, storage, options)),
        state_arena(state_memory.bytes()),
        activation_arena(activation_memory.bytes()),
        parameters(state_arena.vector<T>("parameters", table.size())),
        gradients(state_arena.vector<Gradient>("gradients", table.size())),
        gemm(provider, scratch.bytes()),
        gpt(config, table, rows, Activations(config, rows, activation_arena, storage.values, options, stage, copies),
            gemm, options) {
    for (Index g = 0; g < std::ssize(table.groups()); ++g) {
      ParameterGroup const& group = table.groups()[static_cast<std::size_t>(g)];
      DeviceTensor<float> const values(group.padded, 0.0f);
      initialize_parameters(exec, table, g, 7, {0, group.padded}, values.vector());
      cast(exec, ConstStoredVector(values.vector()), StoredVector(parameters).part(group.offset, group.padded));
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
  Vector<Element> of_unit(Vector<Element> flat, Index unit) const {
    ParameterUnit const& entry = table.units()[static_cast<std::size_t>(unit)];
    return Vector<Element>(flat.data() + entry.offset, static_cast<std::size_t>(entry.padded));
  }

  /// Of the whole model. Embed leaves its part of the token table's gradient in `looked_up`, if that is given.
  void forward_backward(ExecutionSpace const& exec, MicroBatch const& batch, Write write = Write::overwrite,
                        StoredVector const& looked_up = {}) {
    std::vector<Part> const all = parts(config.layers);
    for (Part part : all) gpt.forward(exec, part, batch, of_unit(parameters, table.unit_of(part.block)));
    if (options.splits_loss())
      for (Index chunk = 0; chunk < options.loss_chunks; ++chunk) {
        gpt.loss(exec, batch, LossMode::training, of_unit(parameters, 0), chunk);
        gpt.backward(exec, {PartKind::head}, batch, of_unit(parameters, 0), {of_unit(gradients, 0), write}, chunk);
      }
    else
      gpt.loss(exec, batch, LossMode::training);
    for (Part part : all | std::views::reverse) {
      Index const unit = table.unit_of(part.block);
      if (part.kind == PartKind::mlp && options.recompute_of(part.block) != Recompute::none) {
        spoil_recomputed(exec);
        for (PartKind const kind : {PartKind::attention, PartKind::mlp})
          gpt.recompute(exec, {kind, part.block}, batch, of_unit(parameters, unit));
      }
      std::optional<Index> piece;
      if (part.kind == PartKind::head && options.splits_loss()) piece = options.loss_chunks; // the norm
      gpt.backward(exec, part, batch, of_unit(parameters, unit), {of_unit(gradients, unit), write, looked_up}, piece);
    }
  }

  /// What nobody computes again is NaN.
  void spoil_recomputed(ExecutionSpace const& exec) {
    std::uint64_t begin = 0;
    for (PlannedTensor const& tensor : activation_plan(config, rows, storage.values, options)) {
      if (tensor.name.starts_with("recomputed"))
        Kokkos::deep_copy(exec,
                          Vector<unsigned char>(
                              reinterpret_cast<unsigned char*>(activation_memory.bytes().data()) + begin, tensor.bytes),
                          0xff);
      begin += tensor.bytes;
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
  std::vector<DeviceTensor<std::int32_t>> arrays;
};

using Fp32Model = TestModel<float, float>;

inline GptConfig const small{2, 3, 12, 11, 29};
/// Where all extents of products are multiples of 8: there providers do biases and GELUs, too.
inline GptConfig const even{2, 2, 16, 11, 29};
inline MicroBatchShape const even_rows{3, 8};

/// Both kinds of attention, without dropout and with masks of both kinds.
inline std::vector<GptOptions> all_options() {
  std::vector<GptOptions> all;
  for (AttentionKind const attention : {AttentionKind::materialized, AttentionKind::flash}) {
    all.push_back({.attention = attention});
    for (DropoutMasks const masks : {DropoutMasks::recomputed, DropoutMasks::stored})
      all.push_back({.attention = attention, .dropout = 0.25, .dropout_masks = masks});
  }
  return all;
}

/// Four heads, a vocabulary of which the fourth slice has four tokens, and even positions.
inline GptConfig const sliced{2, 4, 24, 12, 100};
inline MicroBatchShape const sliced_rows{3, 8};

/// Of two blocks, with what their attention keeps.
inline std::vector<std::vector<Recompute>> all_recomputations(AttentionKind attention) {
  using enum Recompute;
  if (attention == AttentionKind::flash) return {{full}, {full, none}, {none, full}};
  return {{full}, {selective}, {full, none}, {selective, full}};
}

} // namespace trainstone::test
