#include "kernels/gemm/gemm_impl.hpp"

#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

int one_variant(GemmShape const&) { return 1; }
std::string no_version() { return {}; }

struct Provider {
  GemmProvider provider;
  bool (*computes_natively)(Storage inputs); ///< else its inputs are converted to fp32
  std::uint64_t (*scratch_bytes)(GemmShape const&);
  bool (*fuses)(GemmShape const&); ///< whether it does the shape's epilogue, if there is one
  Impl::GemmFunction (*make)();
  int (*variants)(GemmShape const&) = one_variant; ///< of a shape as the provider gets it
  std::string (*version)() = no_version;           ///< of a library that may change under the program
};

bool always(Storage) { return true; }
bool only_fp32(Storage inputs) { return inputs == Storage::fp32; }
std::uint64_t no_scratch(GemmShape const&) { return 0; }
bool fuses_nothing(GemmShape const&) { return false; }

Impl::GemmFunction make_kokkos_gemm() {
  return [](ExecutionSpace const& exec, GemmShape const& shape, int, void const* a, void const* b, void* c,
            Epilogue const&, Vector<std::byte>) { Impl::kokkos_gemm(exec, shape, a, b, c); };
}

/// What this build has, in the order in which `automatic` prefers them. The build system sets the macros together with
/// the files.
constexpr Provider providers[] = {
#ifdef TRAINSTONE_HAVE_CUBLASLT
    {GemmProvider::cublaslt, always, Impl::cublaslt_gemm_scratch_bytes, Impl::cublaslt_fuses, Impl::make_cublaslt_gemm,
     Impl::cublaslt_gemm_variants, Impl::cublaslt_version},
#endif
#ifdef TRAINSTONE_HAVE_ONEDNN
    {GemmProvider::onednn, Impl::onednn_computes_natively, Impl::onednn_gemm_scratch_bytes, fuses_nothing,
     Impl::make_onednn_gemm, one_variant, Impl::onednn_version},
#endif
#ifdef TRAINSTONE_HAVE_KOKKOS_KERNELS
    {GemmProvider::kokkos_kernels, only_fp32, no_scratch, fuses_nothing, Impl::make_kokkos_kernels_gemm},
#endif
    {GemmProvider::kokkos, always, no_scratch, fuses_nothing, make_kokkos_gemm},
#ifdef TRAINSTONE_HAVE_BLAS // after that: it may be a slow one, as netlib's is
    {GemmProvider::blas, only_fp32, no_scratch, fuses_nothing, Impl::make_blas_gemm},
#endif
#ifdef TRAINSTONE_HAVE_CUBLASLT // after those that keep fp32: never chosen unasked
    {GemmProvider::cublaslt_tf32, always, Impl::cublaslt_gemm_scratch_bytes, Impl::cublaslt_fuses,
     Impl::make_cublaslt_tf32_gemm, Impl::cublaslt_tf32_gemm_variants, Impl::cublaslt_version},
#endif
};

constexpr auto built = [] {
  std::array<GemmProvider, std::size(providers)> result{};
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = providers[i].provider;
  return result;
}();

std::vector<std::string_view> built_names() {
  std::vector<std::string_view> names;
  for (GemmProvider const provider : built) names.push_back(to_string(provider));
  return names;
}

Provider const& find_provider(GemmProvider provider) {
  return *std::ranges::find(providers, resolve_gemm_provider(provider), &Provider::provider);
}

/// Products over no terms are not left to libraries.
bool fuses(Provider const& provider, GemmShape const& shape) { return shape.k > 0 && provider.fuses(shape); }

GemmShape shape_of(Transpose transpose_a, ConstStoredMatrix const& a, Transpose transpose_b, ConstStoredMatrix const& b,
                   StoredMatrix const& c, Write mode) {
  bool const swap_a = transpose_a == Transpose::yes, swap_b = transpose_b == Transpose::yes;
  GemmShape const shape{c.rows,    c.columns, swap_a ? a.rows : a.columns, transpose_a, transpose_b, mode,
                        a.storage, c.storage};
  TRAINSTONE_REQUIRE((swap_a ? a.columns : a.rows) == shape.m && (swap_b ? b.columns : b.rows) == shape.k &&
                         (swap_b ? b.rows : b.columns) == shape.n,
                     "matrix product of unfit extents: A ({}, {}){} times B ({}, {}){} into C ({}, {})", a.rows,
                     a.columns, swap_a ? " transposed" : "", b.rows, b.columns, swap_b ? " transposed" : "", shape.m,
                     shape.n);
  TRAINSTONE_REQUIRE(b.storage == a.storage && (c.storage == a.storage || c.storage == Storage::fp32),
                     "matrix product of unfit types: A {} times B {} into C {}", to_string(a.storage),
                     to_string(b.storage), to_string(c.storage));
  return shape;
}

Impl::GemmFunctions make_functions(GemmChoice const& choice) {
  Impl::GemmFunctions functions;
  for (GemmProvider const provider : choice.providers()) functions[provider] = find_provider(provider).make();
  return functions;
}

/// The answer to the question of this key. It is kept once it is there: a question may throw.
template <class Key, class Answer, class Ask>
Answer const& kept_answer(std::map<Key, Answer>& answers, Key const& key, Ask const& ask) {
  auto found = answers.find(key);
  if (found == answers.end()) found = answers.emplace(key, ask()).first;
  return found->second;
}

/// A library takes up to a millisecond to answer, and a search among plans asks for the same products again and again.
template <auto question>
auto asked_once(Provider const& provider, GemmShape const& shape) {
  static std::mutex mutex;
  static std::map<std::pair<GemmProvider, GemmShape>, decltype((provider.*question)(shape))> answers;
  std::scoped_lock const lock(mutex);
  return kept_answer(answers, {provider.provider, shape}, [&] { return (provider.*question)(shape); });
}

} // namespace

std::span<GemmProvider const> built_gemm_providers() { return built; }

GemmProvider resolve_gemm_provider(GemmProvider provider) {
  if (provider == GemmProvider::automatic) return built.front();
  TRAINSTONE_REQUIRE_INPUT(std::ranges::count(built, provider) > 0, "this build has no GEMM provider {}; it has {}",
                           to_string(provider), fmt::join(built_names(), ", "));
  return provider;
}

std::string describe_gemm(GemmProvider provider, Storage inputs) {
  Provider const& found = find_provider(provider);
  std::string const name(to_string(found.provider));
  if (inputs == Storage::fp32) return name;
  return fmt::format("{} {}{}", name, to_string(inputs), found.computes_natively(inputs) ? "" : " as fp32");
}

std::uint64_t gemm_scratch_bytes(GemmProvider provider, GemmShape const& shape) {
  Provider const& found = find_provider(provider);
  bool const empty = shape.m == 0 || shape.n == 0 || shape.k == 0;
  if (empty) return 0;
  if (found.computes_natively(shape.inputs)) return asked_once<&Provider::scratch_bytes>(found, shape);
  return Impl::conversion_bytes(shape) + asked_once<&Provider::scratch_bytes>(found, Impl::in_fp32(shape));
}

int gemm_variants(GemmProvider provider, GemmShape const& shape) {
  Provider const& found = find_provider(provider);
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return 1;
  GemmShape computed = found.computes_natively(shape.inputs) ? shape : Impl::in_fp32(shape);
  if (!fuses(found, shape)) computed.epilogue = EpilogueKind::none;
  return asked_once<&Provider::variants>(found, computed);
}

std::string gemm_versions() {
  std::vector<std::string> texts;
  for (Provider const& provider : providers) {
    std::string const version = provider.version();
    texts.push_back(fmt::format("{}{}{}", to_string(provider.provider), version.empty() ? "" : "=", version));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

int gemm_launches(GemmProvider provider, GemmShape const& shape) {
  if (shape.m == 0 || shape.n == 0) return 0;
  Provider const& found = find_provider(provider);
  bool const apart = shape.epilogue != EpilogueKind::none && !fuses(found, shape);
  bool const converts = shape.k > 0 && !found.computes_natively(shape.inputs);
  return 1 + (converts ? Impl::conversion_launches(shape) : 0) + (apart ? 1 : 0);
}

Gemm::Gemm(GemmChoice choice, Vector<std::byte> scratch) : Gemm(choice, scratch, make_functions(choice)) {}

Gemm::Gemm(GemmChoice choice, Vector<std::byte> scratch, Impl::GemmFunctions functions)
    : m_choice(std::move(choice)), m_scratch(scratch), m_functions(std::move(functions)) {}

void Gemm::operator()(ExecutionSpace const& exec, Transpose transpose_a, ConstStoredMatrix a, Transpose transpose_b,
                      ConstStoredMatrix b, StoredMatrix c, Write mode, Epilogue const& epilogue) {
  GemmShape shape = shape_of(transpose_a, a, transpose_b, b, c, mode);
  shape.epilogue = epilogue.kind;
  GemmMethod const method = m_choice(shape);
  Provider const& provider = find_provider(method.provider);
  Impl::require_epilogue(shape, epilogue);
  if (shape.m == 0 || shape.n == 0) return;
  if (epilogue.kind == EpilogueKind::none || fuses(provider, shape))
    return compute(exec, method, shape, a, b, c, epilogue);
  Impl::begin_epilogue(exec, shape, a, epilogue);
  shape.epilogue = EpilogueKind::none;
  compute(exec, method, shape, a, b, epilogue.kind == EpilogueKind::bias_gelu ? epilogue.pre : c, {});
  Impl::end_epilogue(exec, c, epilogue);
}

void Gemm::compute(ExecutionSpace const& exec, GemmMethod method, GemmShape const& shape, ConstStoredMatrix a,
                   ConstStoredMatrix b, StoredMatrix c, Epilogue const& epilogue) {
  if (shape.k == 0) return Impl::kokkos_gemm(exec, shape, a.data, b.data, c.data); // libraries need not take it
  auto const needed = kept_answer(m_scratch_bytes, {method.provider, shape},
                                  [&] { return gemm_scratch_bytes(method.provider, shape); });
  TRAINSTONE_REQUIRE(m_scratch.extent(0) >= needed, "{} needs {} bytes of scratch for {}, and was given {}",
                     to_string(method.provider), needed, to_string(shape), m_scratch.extent(0));
  Impl::GemmFunction const& function = m_functions.at(method.provider);
  if (find_provider(method.provider).computes_natively(shape.inputs))
    function(exec, shape, method.variant, a.data, b.data, c.data, epilogue, m_scratch);
  else
    Impl::compute_converted(exec, function, shape, method.variant, a.data, b.data, c.data, m_scratch);
}

} // namespace trainstone
