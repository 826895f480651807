// The table of attention's providers.

#include "kernels/attention/attention_provider.hpp"

#include "core/error.hpp"
#include "kernels/attention/attend.hpp"
#include "kernels/attention/flash_attention.hpp"
#include "kernels/common/instantiate.hpp"
#include "kernels/common/shapes.hpp"
#include "kernels/cuda/cudnn_attention.hpp"
#include "kernels/cuda/tensor_attention.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

namespace trainstone {

namespace {

using Kernels = std::vector<AttentionKernel>;

/// What computes attention of values that are stored as T; null if nothing does.
template <class T>
struct Functions {
  using Forward = void(ExecutionSpace const&, Matrix<T const> qkv, Index batch, Index heads, Dropout const&,
                       Vector<float> scratch, Vector<float> log_sum_exp, Matrix<T> out);
  using Backward = void(ExecutionSpace const&, Matrix<T const> qkv, Index batch, Index heads, Dropout const&,
                        Vector<float const> log_sum_exp, Matrix<T const> out, Matrix<T const> d_out,
                        Vector<float> scratch, Matrix<T> d_qkv);
  Forward* forward = nullptr;
  Backward* backward = nullptr;
};

/// Forward of a provider that needs no scratch for it.
template <class T, auto forward>
void without_scratch(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads, Dropout const& dropout,
                     Vector<float>, Vector<float> log_sum_exp, Matrix<T> out) {
  forward(exec, qkv, batch, heads, dropout, log_sum_exp, out);
}

struct Pass {
  Kernels (*kernels)(AttentionNeed const&);
  Index (*scratch)(AttentionNeed const&); ///< null: none
};

struct Provider {
  AttentionProvider provider;
  bool is_built;
  std::string (*problem)(AttentionNeed const&);
  Pass forward, backward;
  std::tuple<Functions<float>, Functions<bf16>, Functions<fp16>> functions;

  Pass const& of(AttentionPass pass) const { return pass == AttentionPass::forward ? forward : backward; }
};

/// `values` times what (B T, C) takes, and `numbers` times what (B NH T) takes in fp32.
std::uint64_t bytes_of(AttentionNeed const& need, Index values, Index numbers) {
  Index const queries = need.batch * need.heads * need.sequence;
  return static_cast<std::uint64_t>(queries * need.head_size * values) * bytes_per_value(need.storage) +
         static_cast<std::uint64_t>(queries * numbers) * sizeof(float);
}

// --- flash ---------------------------------------------------------------------------------------------------------

std::string no_problem(AttentionNeed const&) { return ""; }

Kernels flash_forward_kernels(AttentionNeed const& need) {
  return {{"flash_attention::forward",
           flash_attention_forward_flops(need.batch, need.sequence, need.heads, need.head_size), bytes_of(need, 4, 1)}};
}

Kernels flash_backward_kernels(AttentionNeed const& need) {
  return {{"flash_attention::backward",
           flash_attention_backward_flops(need.batch, need.sequence, need.heads, need.head_size),
           bytes_of(need, 8, 1)}};
}

template <class T>
void flash_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads, Dropout const& dropout,
                    Vector<float const> log_sum_exp, Matrix<T const> out, Matrix<T const> d_out, Vector<float>,
                    Matrix<T> d_qkv) {
  flash_attention_backward<T>(exec, qkv, batch, heads, dropout, log_sum_exp, out, d_out, d_qkv);
}

template <class T>
constexpr Functions<T> flash{without_scratch<T, flash_attention_forward<T>>, flash_backward<T>};

// --- tensor cores --------------------------------------------------------------------------------------------------

std::string tensor_problem(AttentionNeed const& need) { return tensor_attention_problem(need.storage, need.head_size); }

template <TensorProducts products>
TensorAttentionFlops flops_by(AttentionNeed const& need) {
  return tensor_attention_flops(products, need.batch, need.sequence, need.heads, need.head_size, need.drops);
}

struct TensorNames {
  char const *forward, *queries, *keys;
};

constexpr TensorNames tensor_names(TensorProducts products) {
  switch (products) {
  case TensorProducts::of_warps:
    return {"tensor_attention::forward", "tensor_attention::backward_queries", "tensor_attention::backward_keys"};
  case TensorProducts::of_warpgroups:
    return {"wgmma_attention::forward", "wgmma_attention::backward_queries", "wgmma_attention::backward_keys"};
  }
  return {};
}

template <TensorProducts products>
Kernels tensor_forward_kernels(AttentionNeed const& need) {
  return {{tensor_names(products).forward, flops_by<products>(need).forward, bytes_of(need, 4, 1)}};
}

template <TensorProducts products>
Kernels tensor_backward_kernels(AttentionNeed const& need) {
  TensorAttentionFlops const flops = flops_by<products>(need);
  return {{tensor_names(products).queries, flops.backward_queries, bytes_of(need, 6, 2)},
          {tensor_names(products).keys, flops.backward_keys, bytes_of(need, 6, 2)}};
}

Index sum_of_each_query(AttentionNeed const& need) { return need.batch * need.heads * need.sequence; }

#ifdef TRAINSTONE_HAVE_TENSOR_ATTENTION
constexpr bool has_tensor_cores = true;
template <class T>
constexpr Functions<T> tensor_cores{without_scratch<T, tensor_attention_forward<TensorProducts::of_warps, T>>,
                                    tensor_attention_backward<TensorProducts::of_warps, T>};
#else
constexpr bool has_tensor_cores = false;
template <class T>
constexpr Functions<T> tensor_cores{};
#endif

// --- cuDNN ---------------------------------------------------------------------------------------------------------

std::string cudnn_problem(AttentionNeed const& need) {
  return cudnn_attention_problem(need.storage, need.sequence, need.head_size, need.drops);
}

CudnnAttentionFlops cudnn_flops(AttentionNeed const& need) {
  return cudnn_attention_flops(need.batch, need.sequence, need.heads, need.head_size);
}

Kernels cudnn_forward_kernels(AttentionNeed const& need) {
  return {{"cudnn_attention::forward[cuDNN]", cudnn_flops(need).forward, bytes_of(need, 4, 1)}};
}

Kernels cudnn_backward_kernels(AttentionNeed const& need) {
  return {{"cudnn_attention::backward[cuDNN]", cudnn_flops(need).backward, bytes_of(need, 8, 1)}};
}

Index cudnn_forward_scratch(AttentionNeed const&) { return cudnn_attention_forward_scratch(); }

Index cudnn_backward_scratch(AttentionNeed const& need) {
  return cudnn_attention_backward_scratch(need.batch, need.sequence, need.heads);
}

#ifdef TRAINSTONE_HAVE_CUDNN
constexpr bool has_cudnn = true;
template <class T>
constexpr Functions<T> cudnn{cudnn_attention_forward<T>, cudnn_attention_backward<T>};
#else
constexpr bool has_cudnn = false;
template <class T>
constexpr Functions<T> cudnn{};
#endif

// --- tensor cores by products of warpgroups ------------------------------------------------------------------------

#ifdef TRAINSTONE_HAVE_WGMMA_ATTENTION
constexpr bool has_wgmma = true;
std::string wgmma_problem(AttentionNeed const& need) {
  std::string const problem = tensor_problem(need);
  return problem.empty() ? wgmma_device_problem() : problem;
}
template <class T>
constexpr Functions<T> wgmma{without_scratch<T, tensor_attention_forward<TensorProducts::of_warpgroups, T>>,
                             tensor_attention_backward<TensorProducts::of_warpgroups, T>};
#else
constexpr bool has_wgmma = false;
std::string wgmma_problem(AttentionNeed const& need) { return tensor_problem(need); }
template <class T>
constexpr Functions<T> wgmma{};
#endif

// --- the table -----------------------------------------------------------------------------------------------------

/// All that a build may have, in the order in which "auto" prefers them; flash ends its search.
Provider const providers[] = {
    {AttentionProvider::tensor_cores,
     has_tensor_cores,
     tensor_problem,
     {tensor_forward_kernels<TensorProducts::of_warps>, nullptr},
     {tensor_backward_kernels<TensorProducts::of_warps>, sum_of_each_query},
     {Functions<float>(), tensor_cores<bf16>, tensor_cores<fp16>}},
    {AttentionProvider::flash,
     true,
     no_problem,
     {flash_forward_kernels, nullptr},
     {flash_backward_kernels, nullptr},
     {flash<float>, flash<bf16>, flash<fp16>}},
    {AttentionProvider::wgmma,
     has_wgmma,
     wgmma_problem,
     {tensor_forward_kernels<TensorProducts::of_warpgroups>, nullptr},
     {tensor_backward_kernels<TensorProducts::of_warpgroups>, sum_of_each_query},
     {Functions<float>(), wgmma<bf16>, wgmma<fp16>}},
    {AttentionProvider::cudnn,
     has_cudnn,
     cudnn_problem,
     {cudnn_forward_kernels, cudnn_forward_scratch},
     {cudnn_backward_kernels, cudnn_backward_scratch},
     {Functions<float>(), cudnn<bf16>, cudnn<fp16>}},
};

Provider const& find(AttentionProvider provider) {
  Provider const* const found = std::ranges::find(providers, provider, &Provider::provider);
  TRAINSTONE_REQUIRE(found != std::end(providers), "there is no attention by {}", to_string(provider));
  return *found;
}

template <class T>
Functions<T> const& functions_of(AttentionProvider provider) {
  Functions<T> const& found = std::get<Functions<T>>(find(provider).functions);
  TRAINSTONE_REQUIRE(found.forward != nullptr, "this build has no attention by {} of values in {}", to_string(provider),
                     to_string(storage_of<T>()));
  return found;
}

/// What the call needs of the scratch that it was given.
template <class T>
Vector<float> scratch_of(AttentionProvider provider, AttentionPass pass, Matrix<T const> qkv, Index batch, Index heads,
                         Dropout const& dropout, Vector<float> given) {
  Index const channels = Impl::extent(qkv, 1) / 3;
  AttentionNeed const need{.batch = batch,
                           .sequence = batch > 0 ? Impl::extent(qkv, 0) / batch : 0,
                           .heads = heads,
                           .head_size = heads > 0 ? channels / heads : 0,
                           .storage = storage_of<T>(),
                           .drops = dropout.is_on()};
  Index const numbers = attention_scratch(provider, pass, need);
  TRAINSTONE_REQUIRE(numbers <= Impl::extent(given, 0), "attention by {} needs {} numbers of scratch, and was given {}",
                     to_string(provider), numbers, Impl::extent(given, 0));
  return Vector<float>(given.data(), static_cast<std::size_t>(numbers));
}

/// The first one that can compute it.
AttentionProvider automatic(std::span<AttentionProvider const> built, AttentionNeed const& need) {
  auto const found =
      std::ranges::find_if(built, [&](AttentionProvider one) { return attention_problem(one, need).empty(); });
  TRAINSTONE_REQUIRE(found != built.end(), "no attention of heads of {} channels in {}", need.head_size,
                     to_string(need.storage));
  return *found;
}

std::vector<std::string_view> names_of(std::span<AttentionProvider const> some) {
  std::vector<std::string_view> names;
  for (AttentionProvider const provider : some) names.push_back(to_string(provider));
  return names;
}

} // namespace

std::span<AttentionProvider const> built_attention_providers() {
  static std::vector<AttentionProvider> const built = [] {
    std::vector<AttentionProvider> some;
    for (Provider const& row : providers)
      if (row.is_built) some.push_back(row.provider);
    return some;
  }();
  return built;
}

std::string attention_problem(AttentionProvider provider, AttentionNeed const& need) {
  return find(provider).problem(need);
}

AttentionProvider resolve_attention_provider(std::string_view name, AttentionNeed const& need,
                                             std::span<AttentionProvider const> built) {
  if (name == attention_automatic) return automatic(built, need);
  auto const found = std::ranges::find(built, name, [](AttentionProvider one) { return to_string(one); });
  TRAINSTONE_REQUIRE_INPUT(found != built.end(), "this build has no provider of attention {}; it has {}", name,
                           fmt::join(names_of(built), ", "));
  std::string const problem = attention_problem(*found, need);
  TRAINSTONE_REQUIRE_INPUT(problem.empty(), "kernels.attention = \"{}\": {}; \"{}\" takes a provider that can", name,
                           problem, attention_automatic);
  return *found;
}

std::vector<AttentionKernel> attention_kernels(AttentionProvider provider, AttentionPass pass,
                                               AttentionNeed const& need) {
  return find(provider).of(pass).kernels(need);
}

bool needs_attention_scratch(AttentionProvider provider, AttentionPass pass) {
  return find(provider).of(pass).scratch != nullptr;
}

Index attention_scratch(AttentionProvider provider, AttentionPass pass, AttentionNeed const& need) {
  return needs_attention_scratch(provider, pass) ? find(provider).of(pass).scratch(need) : 0;
}

template <class T>
void attend_forward(ExecutionSpace const& exec, AttentionProvider provider, Matrix<T const> qkv, Index batch,
                    Index heads, Dropout const& dropout, Vector<float> scratch, Vector<float> log_sum_exp,
                    Matrix<T> out) {
  functions_of<T>(provider).forward(
      exec, qkv, batch, heads, dropout,
      scratch_of<T>(provider, AttentionPass::forward, qkv, batch, heads, dropout, scratch), log_sum_exp, out);
}

template <class T>
void attend_backward(ExecutionSpace const& exec, AttentionProvider provider, Matrix<T const> qkv, Index batch,
                     Index heads, Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                     Matrix<T const> d_out, Vector<float> scratch, Matrix<T> d_qkv) {
  functions_of<T>(provider).backward(
      exec, qkv, batch, heads, dropout, log_sum_exp, out, d_out,
      scratch_of<T>(provider, AttentionPass::backward, qkv, batch, heads, dropout, scratch), d_qkv);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void attend_forward<T>(ExecutionSpace const&, AttentionProvider, Matrix<T const>, Index, Index,             \
                                  Dropout const&, Vector<float>, Vector<float>, Matrix<T>);                            \
  template void attend_backward<T>(ExecutionSpace const&, AttentionProvider, Matrix<T const>, Index, Index,            \
                                   Dropout const&, Vector<float const>, Matrix<T const>, Matrix<T const>,              \
                                   Vector<float>, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
