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

struct Provider {
  GemmProvider provider;
  bool (*computes_natively)(Storage inputs); ///< else its inputs are converted to fp32
  std::uint64_t (*scratch_bytes)(GemmShape const&);
  bool (*fuses)(GemmShape const&); ///< whether it does the shape's epilogue, if there is one
  Impl::GemmFunction (*make)();
};

bool always(Storage) { return true; }
bool only_fp32(Storage inputs) { return inputs == Storage::fp32; }
std::uint64_t no_scratch(GemmShape const&) { return 0; }
bool fuses_nothing(GemmShape const&) { return false; }

Impl::GemmFunction make_kokkos_gemm() {
  return [](ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c, Epilogue const&,
            Vector<std::byte>) { Impl::kokkos_gemm(exec, shape, a, b, c); };
}

/// What this build has, in the order in which `automatic` prefers them. The build system sets the macros together with
/// the files.
constexpr Provider providers[] = {
#ifdef TRAINSTONE_HAVE_CUBLASLT
    {GemmProvider::cublaslt, always, Impl::cublaslt_gemm_scratch_bytes, Impl::cublaslt_fuses, Impl::make_cublaslt_gemm},
#endif
#ifdef TRAINSTONE_HAVE_ONEDNN
    {GemmProvider::onednn, Impl::onednn_computes_natively, Impl::onednn_gemm_scratch_bytes, fuses_nothing,
     Impl::make_onednn_gemm},
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
     Impl::make_cublaslt_tf32_gemm},
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

/// A library takes up to a millisecond to answer, and a search among plans asks for the same products again and again.
std::uint64_t asked_once(Provider const& provider, GemmShape const& shape) {
  static std::mutex mutex;
  static std::map<std::pair<GemmProvider, GemmShape>, std::uint64_t> answers;
  std::scoped_lock const lock(mutex);
  auto const [answer, is_new] = answers.try_emplace({provider.provider, shape});
  if (is_new) answer->second = provider.scratch_bytes(shape);
  return answer->second;
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
  if (found.computes_natively(shape.inputs)) return asked_once(found, shape);
  return Impl::conversion_bytes(shape) + asked_once(found, Impl::in_fp32(shape));
}

int gemm_launches(GemmProvider provider, GemmShape const& shape) {
  if (shape.m == 0 || shape.n == 0) return 0;
  Provider const& found = find_provider(provider);
  bool const apart = shape.epilogue != EpilogueKind::none && !fuses(found, shape);
  bool const converts = shape.k > 0 && !found.computes_natively(shape.inputs);
  return 1 + (converts ? Impl::conversion_launches(shape) : 0) + (apart ? 1 : 0);
}

Gemm::Gemm(GemmChoice choice, Vector<std::byte> scratch) : m_choice(std::move(choice)), m_scratch(scratch) {
  for (GemmProvider const provider : m_choice.providers()) m_functions[provider] = find_provider(provider).make();
}

void Gemm::operator()(ExecutionSpace const& exec, Transpose transpose_a, ConstStoredMatrix a, Transpose transpose_b,
                      ConstStoredMatrix b, StoredMatrix c, Write mode, Epilogue const& epilogue) {
  GemmShape shape = shape_of(transpose_a, a, transpose_b, b, c, mode);
  Provider const& provider = find_provider(m_choice(shape));
  Impl::require_epilogue(shape, epilogue);
  if (shape.m == 0 || shape.n == 0) return;
  shape.epilogue = epilogue.kind;
  if (epilogue.kind == EpilogueKind::none || fuses(provider, shape))
    return compute(exec, provider.provider, shape, a, b, c, epilogue);
  Impl::begin_epilogue(exec, shape, a, epilogue);
  shape.epilogue = EpilogueKind::none;
  compute(exec, provider.provider, shape, a, b, epilogue.kind == EpilogueKind::bias_gelu ? epilogue.pre : c, {});
  Impl::end_epilogue(exec, c, epilogue);
}

void Gemm::compute(ExecutionSpace const& exec, GemmProvider provider, GemmShape const& shape, ConstStoredMatrix a,
                   ConstStoredMatrix b, StoredMatrix c, Epilogue const& epilogue) {
  if (shape.k == 0) return Impl::kokkos_gemm(exec, shape, a.data, b.data, c.data); // libraries need not take it
  auto const [needed, is_new] = m_scratch_bytes.try_emplace(shape);
  if (is_new) needed->second = gemm_scratch_bytes(provider, shape);
  TRAINSTONE_REQUIRE(m_scratch.extent(0) >= needed->second, "{} needs {} bytes of scratch for {}, and was given {}",
                     to_string(provider), needed->second, to_string(shape), m_scratch.extent(0));
  Impl::GemmFunction const& function = m_functions.at(provider);
  if (find_provider(provider).computes_natively(shape.inputs))
    function(exec, shape, a.data, b.data, c.data, epilogue, m_scratch);
  else
    Impl::compute_converted(exec, function, shape, a.data, b.data, c.data, m_scratch);
}

} // namespace trainstone
