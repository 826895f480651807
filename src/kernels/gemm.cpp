#include "kernels/gemm_impl.hpp"

#include "core/error.hpp"
#include "kernels/config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace trainstone {

namespace {

struct Provider {
  GemmProvider provider;
  bool takes_16_bit;
  bool (*computes_natively)(Storage inputs);
  std::uint64_t (*scratch_bytes)(GemmShape const&);
  int (*launches)(GemmShape const&);
  bool (*fuses)(GemmShape const&); ///< whether it does the shape's epilogue, if there is one
  Impl::GemmFunction (*make)();
};

bool always(Storage) { return true; }
std::uint64_t no_scratch(GemmShape const&) { return 0; }
int one_launch(GemmShape const&) { return 1; }
bool fuses_nothing(GemmShape const&) { return false; }

Impl::GemmFunction make_kokkos_gemm() {
  return [](ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c, Epilogue const&,
            Vector<std::byte>) { Impl::kokkos_gemm(exec, shape, a, b, c); };
}

/// What this build has, in the order in which `automatic` prefers them. The build system sets the macros together with
/// the files.
constexpr Provider providers[] = {
#ifdef TRAINSTONE_HAVE_CUBLASLT
    {GemmProvider::cublaslt, true, always, Impl::cublaslt_gemm_scratch_bytes, one_launch, Impl::cublaslt_fuses,
     Impl::make_cublaslt_gemm},
#endif
#ifdef TRAINSTONE_HAVE_ONEDNN
    {GemmProvider::onednn, true, Impl::onednn_computes_natively, Impl::onednn_gemm_scratch_bytes,
     Impl::onednn_gemm_launches, fuses_nothing, Impl::make_onednn_gemm},
#endif
#ifdef TRAINSTONE_HAVE_KOKKOS_KERNELS
    {GemmProvider::kokkos_kernels, false, always, no_scratch, one_launch, fuses_nothing,
     Impl::make_kokkos_kernels_gemm},
#endif
    {GemmProvider::kokkos, true, always, no_scratch, one_launch, fuses_nothing, make_kokkos_gemm},
#ifdef TRAINSTONE_HAVE_CUBLASLT // after those that keep fp32: never chosen unasked
    {GemmProvider::cublaslt_tf32, true, always, Impl::cublaslt_gemm_scratch_bytes, one_launch, Impl::cublaslt_fuses,
     Impl::make_cublaslt_tf32_gemm},
#endif
};

constexpr auto built = [] {
  std::array<GemmProvider, std::size(providers)> result{};
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = providers[i].provider;
  return result;
}();

bool can_compute(Provider const& provider, Storage inputs) { return provider.takes_16_bit || inputs == Storage::fp32; }

/// Those that can compute with such inputs.
std::string built_names(Storage inputs) {
  std::vector<std::string_view> names;
  for (Provider const& provider : providers)
    if (can_compute(provider, inputs)) names.push_back(to_string(provider.provider));
  return fmt::format("{}", fmt::join(names, ", "));
}

Provider const& find_provider(GemmProvider provider, Storage inputs) {
  GemmProvider const resolved = resolve_gemm_provider(provider, inputs);
  return *std::ranges::find(providers, resolved, &Provider::provider);
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

} // namespace

std::string_view to_string(GemmProvider provider) { return gemm_provider_names[static_cast<std::size_t>(provider)]; }

GemmProvider parse_gemm_provider(std::string_view name) {
  auto const found = std::ranges::find(gemm_provider_names, name);
  TRAINSTONE_REQUIRE_INPUT(found != gemm_provider_names.end(), "no GEMM provider is called '{}'; there are {}", name,
                           fmt::join(gemm_provider_names, ", "));
  return static_cast<GemmProvider>(found - gemm_provider_names.begin());
}

std::span<GemmProvider const> built_gemm_providers() { return built; }

GemmProvider resolve_gemm_provider(GemmProvider provider, Storage inputs) {
  bool const automatic = provider == GemmProvider::automatic;
  auto const found = std::ranges::find_if(providers, [&](Provider const& candidate) {
    return automatic ? can_compute(candidate, inputs) : candidate.provider == provider;
  });
  TRAINSTONE_REQUIRE_INPUT(found != std::end(providers), "this build has no GEMM provider {}; it has {}",
                           to_string(provider), built_names(Storage::fp32));
  TRAINSTONE_REQUIRE_INPUT(can_compute(*found, inputs), "GEMM provider {} has no products of {} matrices; {} do",
                           to_string(provider), to_string(inputs), built_names(inputs));
  return found->provider;
}

std::string describe_gemm(GemmProvider provider, Storage inputs) {
  Provider const& found = find_provider(provider, inputs);
  std::string const name(to_string(found.provider));
  if (inputs == Storage::fp32) return name;
  return fmt::format("{} {}{}", name, to_string(inputs), found.computes_natively(inputs) ? "" : " as fp32");
}

std::uint64_t GemmShape::flops() const { return 2 * static_cast<std::uint64_t>(m * n * k); }

std::uint64_t GemmShape::bytes() const {
  Index const written = m * n * (mode == Write::add ? 2 : 1);
  return bytes_per_value(inputs) * static_cast<std::uint64_t>(m * k + k * n) +
         bytes_per_value(output) * static_cast<std::uint64_t>(written);
}

std::string Impl::to_string(GemmShape const& shape) {
  return fmt::format("C ({0}, {1}) {6} {3} A{4} ({0}, {2}) B{5} ({2}, {1}) {7}", shape.m, shape.n, shape.k,
                     shape.mode == Write::add ? "+=" : "=", shape.a == Transpose::yes ? "^T" : "",
                     shape.b == Transpose::yes ? "^T" : "", trainstone::to_string(shape.output),
                     trainstone::to_string(shape.inputs));
}

std::uint64_t gemm_scratch_bytes(GemmProvider provider, GemmShape const& shape) {
  Provider const& found = find_provider(provider, shape.inputs);
  bool const empty = shape.m == 0 || shape.n == 0 || shape.k == 0;
  return empty ? 0 : found.scratch_bytes(shape);
}

int gemm_launches(GemmProvider provider, GemmShape const& shape) {
  if (shape.m == 0 || shape.n == 0) return 0;
  Provider const& found = find_provider(provider, shape.inputs);
  bool const apart = shape.epilogue != EpilogueKind::none && !fuses(found, shape);
  return (shape.k == 0 ? 1 : found.launches(shape)) + (apart ? 1 : 0);
}

Gemm::Gemm(GemmProvider provider, Vector<std::byte> scratch)
    : m_provider(resolve_gemm_provider(provider)),
      m_scratch(scratch),
      m_compute(find_provider(m_provider, Storage::fp32).make()) {}

void Gemm::operator()(ExecutionSpace const& exec, Transpose transpose_a, ConstStoredMatrix a, Transpose transpose_b,
                      ConstStoredMatrix b, StoredMatrix c, Write mode, Epilogue const& epilogue) {
  GemmShape shape = shape_of(transpose_a, a, transpose_b, b, c, mode);
  Provider const& provider = find_provider(m_provider, shape.inputs); // refuses types that it cannot compute with
  Impl::require_epilogue(shape, epilogue);
  if (shape.m == 0 || shape.n == 0) return;
  shape.epilogue = epilogue.kind;
  if (epilogue.kind == EpilogueKind::none || fuses(provider, shape)) return compute(exec, shape, a, b, c, epilogue);
  Impl::begin_epilogue(exec, shape, a, epilogue);
  shape.epilogue = EpilogueKind::none;
  compute(exec, shape, a, b, epilogue.kind == EpilogueKind::bias_gelu ? epilogue.pre : c, {});
  Impl::end_epilogue(exec, c, epilogue);
}

void Gemm::compute(ExecutionSpace const& exec, GemmShape const& shape, ConstStoredMatrix a, ConstStoredMatrix b,
                   StoredMatrix c, Epilogue const& epilogue) {
  if (shape.k == 0) return Impl::kokkos_gemm(exec, shape, a.data, b.data, c.data); // libraries need not take it
  m_compute(exec, shape, a.data, b.data, c.data, epilogue, m_scratch);
}

} // namespace trainstone
