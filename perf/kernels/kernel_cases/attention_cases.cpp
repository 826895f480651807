// Attention, materialised and flash, and the loss. Bounds hold for sums in any order, but for the errors of storing,
// which have random signs.

#include "kernel_cases/cases.hpp"
#include "kernel_cases/plain_kernels.hpp"

#include "core/stored.hpp"
#include "kernels/attention/attend.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/reference/reference.hpp"

#include <ranges>

namespace trainstone {

namespace {

using Values = std::vector<std::vector<double>>;

/// Makes the cases of one shape and type. All values are at most 1, so that a score of HS products is at most sqrt(HS).
template <class T>
struct Attention {
  explicit Attention(BenchmarkShape const& shape)
      : batch(shape.batch.batch),
        sequence(shape.batch.sequence),
        heads(shape.config.heads),
        channels(shape.config.channels),
        size(shape.config.head_size()) {}

  Index batch, sequence, heads, channels, size;
  Index rows = batch * sequence, pairs = batch * heads * sequence * sequence;
  double t = static_cast<double>(sequence), hs = static_cast<double>(size);
  /// Of a weight: twice its score's, a few roundings of the exponential, the sum of T of them.
  double weight_error = unit_roundoff * (2 * hs * std::sqrt(hs) + t + 16);
  /// Of a weighted mean of T values.
  double out_error = weight_error + t * unit_roundoff;
  /// A row of scores' gradients adds up to 2 HS / sqrt(HS) and is off by HS + T roundings; T rows add up to a key's.
  double gradient_error = 2 * std::sqrt(hs) * (hs + t + 16) * unit_roundoff;

  static constexpr Storage storage = storage_of<T>();
  static BenchmarkTensor in(Index count) { return {count, element_of(storage)}; }
  static BenchmarkTensor out(Index count, double error) {
    return {count, element_of(storage), 1, 0, stored_within(storage, error)};
  }
  static std::vector<std::string> variants() { return {"ours", "plain"}; }

  AttentionNeed need() const { return {batch, sequence, heads, size, storage}; }
  /// Scratch of a provider's pass.
  Kokkos::View<float*, MemorySpace> scratch(AttentionProvider by, AttentionPass pass) const {
    return Kokkos::View<float*, MemorySpace>("scratch", static_cast<std::size_t>(attention_scratch(by, pass, need())));
  }
  static Vector<float> whole(Kokkos::View<float*, MemorySpace> const& memory) {
    return Vector<float>(memory.data(), memory.extent(0));
  }
  /// Those of this build that can compute it, flash first: it is ours. Others come behind the plain form.
  std::vector<AttentionProvider> providers() const {
    std::vector<AttentionProvider> some{AttentionProvider::flash};
    for (AttentionProvider const one : built_attention_providers())
      if (one != some.front() && attention_problem(one, need()).empty()) some.push_back(one);
    return some;
  }
  std::vector<std::string> flash_variants() const {
    std::vector<std::string> names = variants();
    for (AttentionProvider const other : providers() | std::views::drop(1)) names.emplace_back(to_string(other));
    return names;
  }
  /// Of a variant but the plain one.
  AttentionProvider provider(std::size_t variant) const { return providers()[variant == 0 ? 0 : variant - 1]; }
  /// Of weights that other providers than flash round before they multiply them.
  double narrow_error() const { return providers().size() > 1 ? storing_error(storage, 1) : 0; }
  reference::AttentionShape reference_shape() const { return {batch, sequence, heads, size}; }

  Tensor4<T> probabilities(BenchmarkMemory const& m) const {
    auto const length = static_cast<std::size_t>(sequence);
    return Tensor4<T>(m.vector<T>(1).data(), static_cast<std::size_t>(batch), static_cast<std::size_t>(heads), length,
                      length);
  }

  KernelCase forward() const {
    // storing moves a row's weights by as much as one of its sum, 1
    double const error = out_error + storing_error(storage, 1 + weight_error);
    return {"attention_forward",
            variants(),
            {in(rows * 3 * channels), out(pairs, weight_error), out(rows * channels, error)},
            [a = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Matrix<T> const qkv = m.matrix<T>(0, 3 * a.channels), out = m.matrix<T>(2, a.channels);
              return [=, probabilities = a.probabilities(m), heads = a.heads] {
                if (variant == 0)
                  attention_forward<T>(exec, qkv, heads, probabilities, out);
                else
                  plain::attention_forward<T>(exec, qkv, heads, probabilities, out);
              };
            },
            [a = *this](Values& v) { reference::attention_forward(a.reference_shape(), v[0], v[1], v[2]); }};
  }

  /// Of the probabilities that forward has stored.
  KernelCase backward() const {
    return {"attention_backward",
            variants(),
            {in(rows * 3 * channels), in(pairs), in(rows * channels), in(rows * channels),
             out(rows * 3 * channels, gradient_error * t)},
            [a = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Matrix<T> const qkv = m.matrix<T>(0, 3 * a.channels), d_out = m.matrix<T>(3, a.channels),
                              d_qkv = m.matrix<T>(4, 3 * a.channels);
              Tensor4<T> const probabilities = a.probabilities(m);
              attention_forward<T>(exec, qkv, a.heads, probabilities, m.matrix<T>(2, a.channels));
              return [=] {
                if (variant == 0)
                  attention_backward<T>(exec, qkv, probabilities, d_out, d_qkv);
                else
                  plain::attention_backward<T>(exec, qkv, probabilities, d_out, d_qkv);
              };
            },
            [a = *this](Values& v) { reference::attention_backward(a.reference_shape(), v[0], v[1], v[3], v[4]); }};
  }

  /// The reference's probabilities, and its `out`.
  std::vector<double> forward_of(std::vector<double> const& qkv, std::vector<double>& out) const {
    std::vector<double> probabilities(static_cast<std::size_t>(pairs));
    reference::attention_forward(reference_shape(), qkv, probabilities, out);
    return probabilities;
  }

  /// Of each query: its own score less the logarithm of that score's probability.
  std::vector<double> log_sum_exp(std::vector<double> const& qkv, std::vector<double> const& probabilities) const {
    std::vector<double> result;
    for (Index query = 0; query < batch * heads * sequence; ++query) {
      Index const position = query % sequence, head = query / sequence;
      double const* const q = qkv.data() + (head / heads * sequence + position) * 3 * channels + head % heads * size;
      double score = 0;
      for (Index d = 0; d < size; ++d) score += q[d] * q[channels + d];
      double const probability = probabilities[static_cast<std::size_t>(query * sequence + position)];
      result.push_back(score / std::sqrt(hs) - std::log(probability));
    }
    return result;
  }

  BenchmarkTensor log_sums(bool given) const {
    BenchmarkTensor tensor{batch * heads * sequence, Element::fp32};
    double const error = weight_error + 2 * unit_roundoff * (std::sqrt(hs) + std::log(t) + 1);
    if (!given) tensor.bound = stored_within(Storage::fp32, error);
    return tensor;
  }

  KernelCase flash_forward() const {
    return {"flash_attention_forward",
            flash_variants(),
            {in(rows * 3 * channels), log_sums(false), out(rows * channels, out_error + narrow_error())},
            [a = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Matrix<T> const qkv = m.matrix<T>(0, 3 * a.channels), out = m.matrix<T>(2, a.channels);
              Vector<float> const log_sum_exp = m.vector<float>(1);
              if (variant == 1)
                return [=] { plain::flash_attention_forward<T>(exec, qkv, a.batch, a.heads, log_sum_exp, out); };
              AttentionProvider const by = a.provider(variant);
              return [=, memory = a.scratch(by, AttentionPass::forward)] {
                attend_forward<T>(exec, by, qkv, a.batch, a.heads, {}, whole(memory), log_sum_exp, out);
              };
            },
            [a = *this](Values& v) { v[1] = a.log_sum_exp(v[0], a.forward_of(v[0], v[2])); }};
  }

  KernelCase flash_backward() const {
    // Probabilities are computed again, and the mean of their gradients is made of `out` as it is stored, whose HS
    // errors have random signs, as have those that a key gets from all queries: probabilities' squares add up to 2 at
    // most.
    double const error = gradient_error * t + 2 * std::sqrt(hs) * 2 * (weight_error + narrow_error()) +
                         4 * 1.5 * storing_error(storage, 1);
    return {"flash_attention_backward",
            flash_variants(),
            {in(rows * 3 * channels), log_sums(true), in(rows * channels), in(rows * channels),
             out(rows * 3 * channels, error)},
            [a = *this](ExecutionSpace const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              Matrix<T> const qkv = m.matrix<T>(0, 3 * a.channels), out = m.matrix<T>(2, a.channels),
                              d_out = m.matrix<T>(3, a.channels), d_qkv = m.matrix<T>(4, 3 * a.channels);
              Vector<float> const log_sum_exp = m.vector<float>(1);
              AttentionProvider const by = variant == 1 ? AttentionProvider::flash : a.provider(variant);
              Kokkos::View<float*, MemorySpace> const ahead = a.scratch(by, AttentionPass::forward);
              attend_forward<T>(exec, by, qkv, a.batch, a.heads, {}, whole(ahead), log_sum_exp, out);
              exec.fence("trainstone::perf: the scratch of forward is freed");
              if (variant == 1)
                return
                    [=] { plain::flash_attention_backward<T>(exec, qkv, a.batch, a.heads, log_sum_exp, d_out, d_qkv); };
              return [=, memory = a.scratch(by, AttentionPass::backward)] {
                attend_backward<T>(exec, by, qkv, a.batch, a.heads, {}, log_sum_exp, out, d_out, whole(memory), d_qkv);
              };
            },
            [a = *this](Values& v) {
              std::vector<double> unused(v[2].size());
              std::vector<double> const probabilities = a.forward_of(v[0], unused);
              reference::attention_backward(a.reference_shape(), v[0], probabilities, v[3], v[4]);
            }};
  }

  std::vector<KernelCase> materialized() const { return {forward(), backward()}; }
  std::vector<KernelCase> flash() const { return {flash_forward(), flash_backward()}; }
};

/// Makes the cases of one shape and type. Logits are at most 4, so that they are at most 8 below the largest one.
template <class T>
struct Loss {
  explicit Loss(BenchmarkShape const& shape)
      : rows(shape.batch.rows()), columns(shape.config.padded_vocab()), vocab(shape.config.vocab) {}

  Index rows, columns, vocab;
  double words = static_cast<double>(vocab);
  /// Of the sum: that of the exponential and of its argument, and V roundings.
  double relative_error = unit_roundoff * (3 + 2 * 8 + words);
  double loss_error = relative_error + unit_roundoff * (2 * 8 + std::log(words) + 8);
  static constexpr float scale = 1.0F / 64;

  std::vector<BenchmarkTensor> tensors(Bound const& bound) const {
    return {{rows * columns, element_of(storage_of<T>()), 4, 0, bound, bound != nullptr},
            {rows, Element::fp32, 1, 0, stored_within(Storage::fp32, loss_error)}};
  }

  KernelCase forward() const {
    return {"cross_entropy_forward",
            {"ours", "plain"},
            tensors({}),
            [l = *this](auto const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              TokenMemory const targets = in_memory(exec, some_tokens(l.rows, l.vocab));
              KernelCall const call = call_of(variant, cross_entropy_forward<T>, plain::cross_entropy_forward<T>, exec,
                                              m.matrix<T>(0, l.columns), targets, l.vocab, m.vector<float>(1));
              return [targets, call] { call(); };
            },
            [l = *this](Values& v) {
              reference::cross_entropy_forward(v[0], some_tokens(l.rows, l.vocab), l.vocab, v[1]);
            }};
  }

  KernelCase backward() const {
    double const scaled = static_cast<double>(scale) * (relative_error + loss_error + 4 * unit_roundoff);
    return {"cross_entropy_backward_fused",
            {"ours", "plain"},
            tensors(stored_within(storage_of<T>(), scaled)),
            [l = *this](auto const& exec, std::size_t variant, BenchmarkMemory const& m) -> KernelCall {
              TokenMemory const targets = in_memory(exec, some_tokens(l.rows, l.vocab));
              KernelCall const call =
                  call_of(variant, cross_entropy_backward_fused<T>, plain::cross_entropy_backward_fused<T>, exec,
                          m.matrix<T>(0, l.columns), targets, l.vocab, scale, m.vector<float>(1));
              return [targets, call] { call(); };
            },
            [l = *this](Values& v) {
              reference::cross_entropy_backward_fused(v[0], some_tokens(l.rows, l.vocab), l.vocab,
                                                      static_cast<double>(scale), v[1]);
            }};
  }
};

template <class T>
std::vector<KernelCase> cases_of(BenchmarkShape const& shape) {
  std::vector<KernelCase> cases = Attention<T>(shape).materialized();
  for (KernelCase const& flash : Attention<T>(shape).flash()) cases.push_back(flash);
  cases.push_back(Loss<T>(shape).forward());
  cases.push_back(Loss<T>(shape).backward());
  return cases;
}

} // namespace

std::vector<KernelCase> attention_cases(BenchmarkShape const& shape, Storage storage) {
  return storage == Storage::fp32 ? cases_of<float>(shape) : cases_of<bf16>(shape);
}

std::vector<KernelCase> flash_attention_cases(BenchmarkShape const& shape, Storage storage) {
  return storage == Storage::fp32 ? Attention<float>(shape).flash() : Attention<bf16>(shape).flash();
}

} // namespace trainstone
