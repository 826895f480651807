#include "support/reference_model.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone::test {

namespace {

/// y += x w^T for x (rows, IC), w (OC, IC), y (rows, OC).
void linear(std::span<double const> x, std::span<double const> w, std::span<double> y, Index rows) {
  Index const inner = std::ssize(x) / rows;
  reference::gemm({.m = rows, .n = std::ssize(w) / inner, .k = inner, .transpose_b = true}, x, w, y);
}

/// d_x += d_y w, d_w += d_y^T x.
void linear_backward(std::span<double const> d_y, std::span<double const> x, std::span<double const> w,
                     std::span<double> d_x, std::span<double> d_w, Index rows) {
  Index const inner = std::ssize(x) / rows;
  Index const outer = std::ssize(d_y) / rows;
  reference::gemm({.m = rows, .n = inner, .k = outer}, d_y, w, d_x);
  reference::gemm({.m = outer, .n = inner, .k = rows, .transpose_a = true}, d_y, x, d_w);
}

} // namespace

ReferenceModel::ReferenceModel(LlmcShape const& shape)
    : m_shape(shape),
      m_tensors(llmc_tensors(shape)),
      m_parameters(llmc_parameter_count(shape)),
      m_gradients(m_parameters.size()),
      m_first_moment(m_parameters.size()),
      m_second_moment(m_parameters.size()) {}

ReferenceModel::ReferenceModel(std::filesystem::path const& model_file)
    : ReferenceModel(LlmcModelReader(model_file).shape()) {
  LlmcModelReader reader(model_file);
  for (LlmcTensor const& tensor : m_tensors)
    for (Index layer = 0; layer < tensor.layers; ++layer) {
      std::vector<float> values(tensor.extent());
      reader.read(tensor, layer, values);
      std::ranges::copy(values, parameter(tensor.name, layer).begin());
    }
}

LlmcTensor const& ReferenceModel::tensor(std::string_view name) const {
  auto const found = std::ranges::find(m_tensors, name, &LlmcTensor::name);
  TRAINSTONE_REQUIRE(found != m_tensors.end(), "no tensor is called {}", name);
  return *found;
}

std::span<double> ReferenceModel::parameter(std::string_view name, Index layer) {
  LlmcTensor const& t = tensor(name);
  return parameters().subspan(t.offset + layer * t.extent(), t.extent());
}

std::span<double> ReferenceModel::gradient(std::string_view name, Index layer) {
  LlmcTensor const& t = tensor(name);
  return gradients().subspan(t.offset + layer * t.extent(), t.extent());
}

ReferenceModel::Table ReferenceModel::table(Index columns) const { return Table(m_inputs.size() * columns); }

ReferenceModel::Table ReferenceModel::factors(std::uint32_t site) const {
  Table values = table(m_shape.channels);
  reference::DropoutSite const at{m_dropout.rate, m_dropout.seed, m_dropout.first_sample, site};
  reference::dropout_factors(at, m_sequence, 0, m_shape.channels, values);
  return values;
}

/// (B, NH, T, T)
ReferenceModel::Table ReferenceModel::attention_factors(std::uint32_t site) const {
  auto const [batch, sequence, heads, head_size] = attention_shape();
  Table values = table(heads * sequence);
  for (Index i = 0; i < batch * heads; ++i) {
    reference::DropoutSite const at{m_dropout.rate, m_dropout.seed,
                                    m_dropout.first_sample + static_cast<std::uint64_t>(i / heads), site};
    reference::dropout_factors(at, sequence, i % heads, sequence,
                               std::span(values).subspan(i * sequence * sequence, sequence * sequence));
  }
  return values;
}

reference::AttentionShape ReferenceModel::attention_shape() const {
  return {std::ssize(m_inputs) / m_sequence, m_sequence, m_shape.heads, m_shape.channels / m_shape.heads};
}

double ReferenceModel::forward(std::span<std::int32_t const> inputs, std::span<std::int32_t const> targets,
                               Index sequence) {
  m_inputs.assign(inputs.begin(), inputs.end());
  m_targets.assign(targets.begin(), targets.end());
  m_sequence = sequence;
  m_blocks.resize(m_shape.layers);

  Table x = table(m_shape.channels);
  reference::embedding_forward(m_inputs, parameter("wte"), parameter("wpe"), sequence, x);
  m_embedded_factors = factors(0);
  reference::dropout(m_embedded_factors, x);
  for (Index layer = 0; layer < m_shape.layers; ++layer) {
    Table next = table(m_shape.channels);
    forward_block(layer, x, next);
    x = next;
  }
  m_last = x;
  m_lnf = table(m_shape.channels);
  m_lnf_mean = m_lnf_rstd = table(1);
  reference::layernorm_forward(m_last, parameter("lnfw"), parameter("lnfb"), m_lnf, m_lnf_mean, m_lnf_rstd);
  m_logits = table(m_shape.padded_vocab);
  linear(m_lnf, parameter("wte"), m_logits, std::ssize(m_inputs));

  Table losses = table(1);
  reference::cross_entropy_forward(m_logits, m_targets, m_shape.vocab, losses);
  return reference::sum(losses) / static_cast<double>(losses.size());
}

void ReferenceModel::forward_block(Index layer, Table const& input, Table& output) {
  Index const rows = std::ssize(m_inputs);
  Index const channels = m_shape.channels;
  Block& b = m_blocks[layer];
  b.input = input;
  b.ln1_mean = b.ln1_rstd = b.ln2_mean = b.ln2_rstd = table(1);

  b.ln1 = table(channels);
  reference::layernorm_forward(b.input, parameter("ln1w", layer), parameter("ln1b", layer), b.ln1, b.ln1_mean,
                               b.ln1_rstd);
  b.qkv = table(3 * channels);
  linear(b.ln1, parameter("qkvw", layer), b.qkv, rows);
  reference::add_bias(parameter("qkvb", layer), b.qkv);
  b.probabilities = table(m_shape.heads * m_sequence);
  b.attention = table(channels);
  auto const site = 1 + 3 * static_cast<std::uint32_t>(layer);
  b.attention_factors = attention_factors(site);
  b.attproj_factors = factors(site + 1);
  b.fcproj_factors = factors(site + 2);
  reference::attention_forward(attention_shape(), b.qkv, b.probabilities, b.attention, b.attention_factors);
  Table branch = table(channels);
  Table const no_bias(static_cast<std::size_t>(channels));
  linear(b.attention, parameter("attprojw", layer), branch, rows);
  reference::add_bias(parameter("attprojb", layer), branch);
  reference::dropout(b.attproj_factors, branch);

  b.middle = table(channels);
  b.ln2 = table(channels);
  reference::residual_layernorm_forward(b.input, branch, no_bias, parameter("ln2w", layer), parameter("ln2b", layer),
                                        b.middle, b.ln2, b.ln2_mean, b.ln2_rstd);
  b.fc = table(4 * channels);
  b.gelu = table(4 * channels);
  linear(b.ln2, parameter("fcw", layer), b.fc, rows);
  reference::bias_gelu_forward(parameter("fcb", layer), b.fc, b.gelu);
  branch = table(channels);
  linear(b.gelu, parameter("fcprojw", layer), branch, rows);
  reference::add_bias(parameter("fcprojb", layer), branch);
  reference::dropout(b.fcproj_factors, branch);
  reference::residual_forward(b.middle, branch, no_bias, output);
}

void ReferenceModel::backward(double scale) {
  Index const rows = std::ssize(m_inputs);
  Table d_logits = m_logits;
  Table losses = table(1);
  reference::cross_entropy_backward_fused(d_logits, m_targets, m_shape.vocab, scale / static_cast<double>(rows),
                                          losses);
  Table d_lnf = table(m_shape.channels);
  linear_backward(d_logits, m_lnf, parameter("wte"), d_lnf, gradient("wte"), rows);
  Table d_x = table(m_shape.channels);
  reference::layernorm_backward(d_lnf, m_last, parameter("lnfw"), m_lnf_mean, m_lnf_rstd, d_x, gradient("lnfw"),
                                gradient("lnfb"));
  for (Index layer = m_shape.layers - 1; layer >= 0; --layer) backward_block(layer, d_x);
  reference::dropout(m_embedded_factors, d_x);
  reference::embedding_backward(m_inputs, d_x, m_sequence, gradient("wte"), gradient("wpe"));
}

/// d_x: gradient of the block's output before, of its input after. The residual stream adds, so it stays one table.
void ReferenceModel::backward_block(Index layer, Table& d_x) {
  Index const rows = std::ssize(m_inputs);
  Index const channels = m_shape.channels;
  Block const& b = m_blocks[layer];

  Table d_branch = d_x;
  reference::dropout(b.fcproj_factors, d_branch);
  reference::bias_backward(d_branch, gradient("fcprojb", layer));
  Table d_fc = table(4 * channels);
  linear_backward(d_branch, b.gelu, parameter("fcprojw", layer), d_fc, gradient("fcprojw", layer), rows);
  reference::gelu_backward(b.fc, d_fc);
  reference::bias_backward(d_fc, gradient("fcb", layer));
  Table d_ln2 = table(channels);
  linear_backward(d_fc, b.ln2, parameter("fcw", layer), d_ln2, gradient("fcw", layer), rows);
  reference::layernorm_backward(d_ln2, b.middle, parameter("ln2w", layer), b.ln2_mean, b.ln2_rstd, d_x,
                                gradient("ln2w", layer), gradient("ln2b", layer));

  d_branch = d_x;
  reference::dropout(b.attproj_factors, d_branch);
  reference::bias_backward(d_branch, gradient("attprojb", layer));
  Table d_attention = table(channels);
  linear_backward(d_branch, b.attention, parameter("attprojw", layer), d_attention, gradient("attprojw", layer), rows);
  Table d_qkv = table(3 * channels);
  reference::attention_backward(attention_shape(), b.qkv, b.probabilities, d_attention, d_qkv, b.attention_factors);
  reference::bias_backward(d_qkv, gradient("qkvb", layer));
  Table d_ln1 = table(channels);
  linear_backward(d_qkv, b.ln1, parameter("qkvw", layer), d_ln1, gradient("qkvw", layer), rows);
  reference::layernorm_backward(d_ln1, b.input, parameter("ln1w", layer), b.ln1_mean, b.ln1_rstd, d_x,
                                gradient("ln1w", layer), gradient("ln1b", layer));
}

double ReferenceModel::gradient_norm() const { return std::sqrt(reference::squared_norm(m_gradients)); }

void ReferenceModel::update(Recipe const& recipe, Index step) {
  double const gradient_scale = reference::clip_scale(gradient_norm(), recipe.clip);
  for (LlmcTensor const& t : m_tensors) {
    bool const decays = t.dimensions == 2 || !recipe.decay_matrices_only;
    auto const part = [&](Table& values) { return std::span(values).subspan(t.offset, t.layers * t.extent()); };
    reference::adamw_update(part(m_gradients), part(m_parameters), part(m_first_moment), part(m_second_moment),
                            {.learning_rate = recipe.learning_rate,
                             .beta1 = recipe.beta1,
                             .beta2 = recipe.beta2,
                             .epsilon = recipe.epsilon,
                             .weight_decay = decays ? recipe.weight_decay : 0,
                             .gradient_scale = gradient_scale,
                             .step = step});
  }
}

} // namespace trainstone::test
