#include "model/work.hpp"

#include "kernels/attention.hpp"
#include "kernels/flash_attention.hpp"

#include <algorithm>
#include <array>

namespace trainstone {

namespace {

/// A linear layer y (N, out) = x (N, in) W^T with W (out, in).
struct LinearLayer {
  char const* name;
  Index out;
  Index in;
  std::int64_t count;
  EpilogueKind forward = EpilogueKind::none;        ///< biases of the branches are added with the residual
  EpilogueKind input_gradient = EpilogueKind::none; ///< through the GELU before it
  EpilogueKind weight_gradient = EpilogueKind::bias_gradient;
};

std::array<LinearLayer, 5> linear_layers(GptConfig const& config) {
  Index const c = config.channels;
  using enum EpilogueKind;
  return {{{"qkv", 3 * c, c, config.layers, bias},
           {"attproj", c, c, config.layers},
           {"fc", 4 * c, c, config.layers, bias_gelu},
           {"fcproj", c, 4 * c, config.layers, none, gelu_gradient},
           {"head", config.padded_vocab(), c, 1, none, none, none}}};
}

std::uint64_t gemm_flops(std::vector<GemmUse> const& uses) {
  std::uint64_t sum = 0;
  for (GemmUse const& use : uses) sum += use.shape.flops() * static_cast<std::uint64_t>(use.count);
  return sum;
}

std::uint64_t gemm_launches(std::vector<GemmUse> const& uses, GemmChoice const& gemm) {
  std::uint64_t sum = 0;
  for (GemmUse const& use : uses)
    sum +=
        static_cast<std::uint64_t>(gemm_launches(gemm(use.shape), use.shape)) * static_cast<std::uint64_t>(use.count);
  return sum;
}

/// Of all blocks, by what attention of one of them takes: (batch, sequence, heads, head size).
template <class OfBlock>
std::uint64_t attention_flops(GptConfig const& config, MicroBatchShape shape, OfBlock const& of_block) {
  return static_cast<std::uint64_t>(config.layers) *
         of_block(shape.batch, shape.sequence, config.heads, config.head_size());
}

std::uint64_t attention_flops_forward(GptConfig const& config, MicroBatchShape shape, GptOptions const& options) {
  bool const flash = options.attention == AttentionKind::flash;
  return attention_flops(config, shape, flash ? flash_attention_forward_flops : attention_forward_flops);
}

std::uint64_t attention_flops_backward(GptConfig const& config, MicroBatchShape shape, GptOptions const& options) {
  bool const flash = options.attention == AttentionKind::flash;
  return attention_flops(config, shape, flash ? flash_attention_backward_flops : attention_backward_flops);
}

} // namespace

std::vector<GemmUse> forward_gemms(GptConfig const& config, MicroBatchShape shape, ModelStorage storage) {
  std::vector<GemmUse> uses;
  for (LinearLayer const& layer : linear_layers(config))
    uses.push_back({std::string(layer.name) + " forward",
                    {shape.rows(), layer.out, layer.in, Transpose::no, Transpose::yes, Write::overwrite, storage.values,
                     storage.values, layer.forward},
                    layer.count});
  return uses;
}

std::vector<GemmUse> backward_gemms(GptConfig const& config, MicroBatchShape shape, Write mode, ModelStorage storage) {
  std::vector<GemmUse> uses;
  for (LinearLayer const& layer : linear_layers(config)) {
    std::string const name = layer.name;
    uses.push_back({name + " input gradient",
                    {shape.rows(), layer.in, layer.out, Transpose::no, Transpose::no, Write::overwrite, storage.values,
                     storage.values, layer.input_gradient},
                    layer.count});
    uses.push_back({name + " weight gradient",
                    {layer.out, layer.in, shape.rows(), Transpose::yes, Transpose::no, mode, storage.values,
                     storage.gradients, layer.weight_gradient},
                    layer.count});
  }
  return uses;
}

std::set<GemmShape> gemm_shapes(GptConfig const& config, MicroBatchShape shape, ModelStorage storage) {
  std::set<GemmShape> shapes;
  for (auto const& uses :
       {forward_gemms(config, shape, storage), backward_gemms(config, shape, Write::overwrite, storage),
        backward_gemms(config, shape, Write::add, storage)})
    for (GemmUse const& use : uses) shapes.insert(use.shape);
  return shapes;
}

ModelFlops evaluation_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options) {
  return {gemm_flops(forward_gemms(config, shape)), attention_flops_forward(config, shape, options)};
}

ModelFlops training_flops(GptConfig const& config, MicroBatchShape shape, GptOptions const& options) {
  ModelFlops flops = evaluation_flops(config, shape, options);
  flops.gemm += gemm_flops(backward_gemms(config, shape, Write::overwrite));
  flops.attention += attention_flops_backward(config, shape, options);
  return flops;
}

std::uint64_t evaluation_launches(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                  ModelStorage storage) {
  auto const layers = static_cast<std::uint64_t>(config.layers);
  std::uint64_t const block = 4; // two norms (one with the residual), attention, residual
  std::uint64_t const ends = 3;  // embedding, last norm, losses
  return gemm_launches(forward_gemms(config, shape, storage), gemm) + block * layers + ends;
}

std::uint64_t training_launches(GptConfig const& config, MicroBatchShape shape, GptOptions const& options, Write mode,
                                GemmChoice const& gemm, ModelStorage storage) {
  auto const layers = static_cast<std::uint64_t>(config.layers);
  std::uint64_t const block = 2 * 2 + 1; // two norms (of inputs and of parameters), attention
  std::uint64_t const ends = 2 + 2;      // last norm, tables of tokens and positions
  std::uint64_t const drops = options.dropout > 0 ? 2 * (2 * layers + 1) : 0; // forward and backward of each site
  return evaluation_launches(config, shape, gemm, storage) +
         gemm_launches(backward_gemms(config, shape, mode, storage), gemm) + block * layers + ends + drops;
}

std::uint64_t gemm_scratch_bytes(GptConfig const& config, MicroBatchShape shape, GemmChoice const& gemm,
                                 ModelStorage storage) {
  std::uint64_t most = 0;
  for (GemmShape const& product : gemm_shapes(config, shape, storage))
    most = std::max(most, gemm_scratch_bytes(gemm(product), product));
  return most;
}

} // namespace trainstone
