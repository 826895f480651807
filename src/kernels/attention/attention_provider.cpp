// The table of attention's providers.

#include "kernels/attention/attention_provider.hpp"

#include "core/error.hpp"
#include "kernels/attention/attend.hpp"
#include "kernels/attention/flash_attention.hpp"
#include "kernels/common/instantiate.hpp"
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
                       Vector<float> log_sum_exp, Matrix<T> out);
  using Backward = void(ExecutionSpace const&, Matrix<T const> qkv, Index batch, Index heads, Dropout const&,
                        Vector<float const> log_sum_exp, Matrix<T const> out, Matrix<T const> d_out,
                        Vector<float> scratch, Matrix<T> d_qkv);
  Forward* forward = nullptr;
  Backward* backward = nullptr;
};

struct Provider {
  AttentionProvider provider;
  bool is_built;
  std::string (*problem)(Storage, Index head_size);
  Kernels (*forward)(AttentionExtents const&, Storage, bool drops);
  Kernels (*backward)(AttentionExtents const&, Storage, bool drops);
  Index (*scratch)(AttentionExtents const&); ///< null: none
  std::tuple<Functions<float>, Functions<bf16>, Functions<fp16>> functions;
};

/// `values` times what (B T, C) takes, and `numbers` times what (B NH T) takes in fp32.
std::uint64_t bytes_of(AttentionExtents const& of, Storage storage, Index values, Index numbers) {
  Index const queries = of.batch * of.heads * of.sequence;
  return static_cast<std::uint64_t>(queries * of.head_size * values) * bytes_per_value(storage) +
         static_cast<std::uint64_t>(queries * numbers) * sizeof(float);
}

// --- flash ---------------------------------------------------------------------------------------------------------

std::string no_problem(Storage, Index) { return ""; }

Kernels flash_forward_kernels(AttentionExtents const& of, Storage storage, bool) {
  return {{"flash_attention::forward", flash_attention_forward_flops(of.batch, of.sequence, of.heads, of.head_size),
           bytes_of(of, storage, 4, 1)}};
}

Kernels flash_backward_kernels(AttentionExtents const& of, Storage storage, bool) {
  return {{"flash_attention::backward", flash_attention_backward_flops(of.batch, of.sequence, of.heads, of.head_size),
           bytes_of(of, storage, 8, 1)}};
}

template <class T>
void flash_backward(ExecutionSpace const& exec, Matrix<T const> qkv, Index batch, Index heads, Dropout const& dropout,
                    Vector<float const> log_sum_exp, Matrix<T const> out, Matrix<T const> d_out, Vector<float>,
                    Matrix<T> d_qkv) {
  flash_attention_backward<T>(exec, qkv, batch, heads, dropout, log_sum_exp, out, d_out, d_qkv);
}

template <class T>
constexpr Functions<T> flash{flash_attention_forward<T>, flash_backward<T>};

// --- tensor cores --------------------------------------------------------------------------------------------------

Kernels tensor_forward_kernels(AttentionExtents const& of, Storage storage, bool drops) {
  return {{"tensor_attention::forward",
           tensor_attention_flops(of.batch, of.sequence, of.heads, of.head_size, drops).forward,
           bytes_of(of, storage, 4, 1)}};
}

Kernels tensor_backward_kernels(AttentionExtents const& of, Storage storage, bool drops) {
  TensorAttentionFlops const flops = tensor_attention_flops(of.batch, of.sequence, of.heads, of.head_size, drops);
  return {{"tensor_attention::backward_queries", flops.backward_queries, bytes_of(of, storage, 6, 2)},
          {"tensor_attention::backward_keys", flops.backward_keys, bytes_of(of, storage, 6, 2)}};
}

Index sum_of_each_query(AttentionExtents const& of) { return of.batch * of.heads * of.sequence; }

#ifdef TRAINSTONE_HAVE_TENSOR_ATTENTION
constexpr bool has_tensor_cores = true;
template <class T>
constexpr Functions<T> tensor_cores{tensor_attention_forward<T>, tensor_attention_backward<T>};
#else
constexpr bool has_tensor_cores = false;
template <class T>
constexpr Functions<T> tensor_cores{};
#endif

// --- the table -----------------------------------------------------------------------------------------------------

/// All that a build may have, in the order in which "auto" prefers them.
Provider const providers[] = {
    {AttentionProvider::tensor_cores,
     has_tensor_cores,
     tensor_attention_problem,
     tensor_forward_kernels,
     tensor_backward_kernels,
     sum_of_each_query,
     {Functions<float>(), tensor_cores<bf16>, tensor_cores<fp16>}},
    {AttentionProvider::flash,
     true,
     no_problem,
     flash_forward_kernels,
     flash_backward_kernels,
     nullptr,
     {flash<float>, flash<bf16>, flash<fp16>}},
};

Provider const& find(AttentionProvider provider) {
  return *std::ranges::find(providers, provider, &Provider::provider);
}

template <class T>
Functions<T> const& functions_of(AttentionProvider provider) {
  Functions<T> const& found = std::get<Functions<T>>(find(provider).functions);
  TRAINSTONE_REQUIRE(found.forward != nullptr, "this build has no attention by {} of values in {}", to_string(provider),
                     to_string(storage_of<T>()));
  return found;
}

/// The first one that can compute it.
AttentionProvider automatic(std::span<AttentionProvider const> built, Storage storage, Index head_size) {
  auto const found = std::ranges::find_if(
      built, [&](AttentionProvider one) { return attention_problem(one, storage, head_size).empty(); });
  TRAINSTONE_REQUIRE(found != built.end(), "no attention of heads of {} channels in {}", head_size, to_string(storage));
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

std::string attention_problem(AttentionProvider provider, Storage storage, Index head_size) {
  return find(provider).problem(storage, head_size);
}

AttentionProvider resolve_attention_provider(std::string_view name, Storage storage, Index head_size,
                                             std::span<AttentionProvider const> built) {
  if (name == attention_automatic) return automatic(built, storage, head_size);
  auto const found = std::ranges::find(built, name, [](AttentionProvider one) { return to_string(one); });
  TRAINSTONE_REQUIRE_INPUT(found != built.end(), "this build has no provider of attention {}; it has {}", name,
                           fmt::join(names_of(built), ", "));
  std::string const problem = attention_problem(*found, storage, head_size);
  TRAINSTONE_REQUIRE_INPUT(problem.empty(), "kernels.attention = \"{}\": {}; \"{}\" takes a provider that can", name,
                           problem, attention_automatic);
  return *found;
}

std::vector<AttentionKernel> attention_forward_kernels(AttentionProvider provider, AttentionExtents const& of,
                                                       Storage storage, bool drops) {
  return find(provider).forward(of, storage, drops);
}

std::vector<AttentionKernel> attention_backward_kernels(AttentionProvider provider, AttentionExtents const& of,
                                                        Storage storage, bool drops) {
  return find(provider).backward(of, storage, drops);
}

bool needs_attention_scratch(AttentionProvider provider) { return find(provider).scratch != nullptr; }

Index attention_scratch(AttentionProvider provider, AttentionExtents const& of) {
  return needs_attention_scratch(provider) ? find(provider).scratch(of) : 0;
}

template <class T>
void attend_forward(ExecutionSpace const& exec, AttentionProvider provider, Matrix<T const> qkv, Index batch,
                    Index heads, Dropout const& dropout, Vector<float> log_sum_exp, Matrix<T> out) {
  functions_of<T>(provider).forward(exec, qkv, batch, heads, dropout, log_sum_exp, out);
}

template <class T>
void attend_backward(ExecutionSpace const& exec, AttentionProvider provider, Matrix<T const> qkv, Index batch,
                     Index heads, Dropout const& dropout, Vector<float const> log_sum_exp, Matrix<T const> out,
                     Matrix<T const> d_out, Vector<float> scratch, Matrix<T> d_qkv) {
  functions_of<T>(provider).backward(exec, qkv, batch, heads, dropout, log_sum_exp, out, d_out, scratch, d_qkv);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void attend_forward<T>(ExecutionSpace const&, AttentionProvider, Matrix<T const>, Index, Index,             \
                                  Dropout const&, Vector<float>, Matrix<T>);                                           \
  template void attend_backward<T>(ExecutionSpace const&, AttentionProvider, Matrix<T const>, Index, Index,            \
                                   Dropout const&, Vector<float const>, Matrix<T const>, Matrix<T const>,              \
                                   Vector<float>, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
