// cuBLASLt's matmul on the stream of the execution space's instance: fp32, bf16 and fp16 with fp32 sums, and fp32 with
// products in tf32 (10 bits of the mantissa) where that is asked for by name. It computes in columns: a product in rows
// is the same product of the transposed matrices, so A and B change places. Biases, GELU and their gradients are its
// epilogues of 16-bit products whose extents are multiples of 8, which its own tables ask for; fp32 is the reference,
// and done in the same steps by all providers. Variants of a product are the algorithms that its heuristic names, in
// this order. What a variant needs is made once and depends on the shape alone, not on where tensors happen to lie.
// Split sums are added in fp32 alone, in a fixed order: no variant adds parts of a sum in C as they come.

#include "kernels/gemm/gemm_impl.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"

#include <cublasLt.h>

#include <map>
#include <memory>
#include <utility>

namespace trainstone::Impl {

namespace {

static_assert(std::is_same_v<ExecutionSpace, Kokkos::Cuda>, "this provider computes on CUDA devices");

/// What NVIDIA recommends for Hopper, at an address that cuBLASLt demands; scratch is aligned to less.
constexpr std::uint64_t workspace_bytes = std::uint64_t{32} << 20, workspace_alignment = 256;

/// How many algorithms are tried.
constexpr int most_variants = 8;

void check(cublasStatus_t status, char const* call, GemmShape const& shape) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(fmt::format("{} for {} failed: {}", call, to_string(shape), cublasLtGetStatusString(status)));
}

cudaDataType_t data_type(Storage storage) {
  switch (storage) {
  case Storage::fp32: return CUDA_R_32F;
  case Storage::bf16: return CUDA_R_16BF;
  case Storage::fp16: return CUDA_R_16F;
  }
  throw Error(fmt::format("no storage type {}", static_cast<int>(storage)));
}

cublasLtEpilogue_t epilogue_of(EpilogueKind kind) {
  switch (kind) {
  case EpilogueKind::none: return CUBLASLT_EPILOGUE_DEFAULT;
  case EpilogueKind::bias: return CUBLASLT_EPILOGUE_BIAS;
  case EpilogueKind::bias_gelu: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  case EpilogueKind::gelu_gradient: return CUBLASLT_EPILOGUE_DGELU;
  case EpilogueKind::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB; // our A is its B
  }
  throw Error(fmt::format("no epilogue {}", static_cast<int>(kind)));
}

/// The first address from `pointer` on that is a multiple of `bytes`.
std::byte* round_up(std::byte* pointer, std::uint64_t bytes) {
  return pointer + (bytes - reinterpret_cast<std::uintptr_t>(pointer) % bytes) % bytes;
}

/// What cuBLASLt is told of where matrices, and all of their rows, begin: at multiples of 16 bytes where leading
/// dimensions are multiples of 8, because all tensors of such a model do; else as their elements do.
std::uint32_t row_alignment(GemmShape const& shape) {
  Index const a = shape.a == Transpose::yes ? shape.m : shape.k, b = shape.b == Transpose::yes ? shape.k : shape.n;
  bool const aligned = a % 8 == 0 && b % 8 == 0 && shape.n % 8 == 0;
  return aligned ? 16 : static_cast<std::uint32_t>(bytes_per_value(shape.inputs));
}

void require_aligned(char const* what, void const* pointer, std::uint32_t bytes, GemmShape const& shape) {
  TRAINSTONE_REQUIRE(reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0,
                     "cuBLASLt, {}: the {} is not at a multiple of {} bytes", to_string(shape), what, bytes);
}

/// A handle of cuBLASLt's with the function that ends it.
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

using Library = Owned<cublasLtHandle_t>;

Library make_library() {
  cublasLtHandle_t raw = nullptr;
  check(cublasLtCreate(&raw), "cublasLtCreate", {});
  return Library(raw, cublasLtDestroy);
}

/// A product whose shape is known.
class Product {
public:
  /// \param[in] wanted     how many algorithms the heuristic is asked for
  /// \param[in] epilogue   the first that it will be run with: the heuristic demands pointers, and reads nothing there
  Product(cublasLtHandle_t library, GemmShape const& shape, int wanted, cublasComputeType_t compute,
          Epilogue const& epilogue)
      : m_shape(shape), m_operation(make_operation(compute)), m_a(layout_a()), m_b(layout_b()), m_c(layout_c()) {
    set_pointers(epilogue);
    find_algorithms(library, wanted);
  }

  int algorithms() const { return m_algorithms; }

  /// By the last algorithm.
  void run(cublasLtHandle_t library, cudaStream_t stream, void const* a, void const* b, void* c,
           Epilogue const& epilogue, std::byte* workspace) const {
    std::uint32_t const alignment = row_alignment(m_shape);
    require_aligned("matrix A", a, alignment, m_shape);
    require_aligned("matrix B", b, alignment, m_shape);
    require_aligned("matrix C", c, alignment, m_shape);
    set_pointers(epilogue);
    float const one = 1, beta = m_shape.mode == Write::add ? 1.0F : 0.0F;
    check(cublasLtMatmul(library, m_operation.get(), &one, b, m_b.get(), a, m_a.get(), &beta, c, m_c.get(), c,
                         m_c.get(), &m_last, workspace, workspace_bytes, stream),
          "cublasLtMatmul", m_shape);
  }

private:
  using Operation = Owned<cublasLtMatmulDesc_t>;
  using Layout = Owned<cublasLtMatrixLayout_t>;

  template <class Value>
  void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, Value const& value) const {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute",
          m_shape);
  }

  Operation make_operation(cublasComputeType_t compute) const {
    cublasLtMatmulDesc_t raw = nullptr;
    check(cublasLtMatmulDescCreate(&raw, compute, CUDA_R_32F), "cublasLtMatmulDescCreate", m_shape);
    Operation operation(raw, cublasLtMatmulDescDestroy);
    auto const flag = [](Transpose transpose) { return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(raw, CUBLASLT_MATMUL_DESC_TRANSA, flag(m_shape.b));
    set(raw, CUBLASLT_MATMUL_DESC_TRANSB, flag(m_shape.a));
    set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(m_shape.epilogue));
    bool const has_pre = m_shape.epilogue == EpilogueKind::bias_gelu || m_shape.epilogue == EpilogueKind::gelu_gradient;
    if (has_pre) set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{m_shape.n});
    return operation;
  }

  template <class Pointer>
  void set_pointer(cublasLtMatmulDescAttributes_t attribute, char const* what, Pointer pointer) const {
    require_aligned(what, pointer, 16, m_shape);
    set(m_operation.get(), attribute, pointer);
  }

  /// The epilogue's, which are part of the description.
  void set_pointers(Epilogue const& epilogue) const {
    switch (epilogue.kind) {
    case EpilogueKind::none: return;
    case EpilogueKind::bias_gelu:
      set_pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, "matrix before the GELU", epilogue.pre.data);
      [[fallthrough]];
    case EpilogueKind::bias: return set_pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER, "bias", epilogue.bias.data);
    case EpilogueKind::gelu_gradient:
      return set_pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, "matrix before the GELU", epilogue.pre.data);
    case EpilogueKind::bias_gradient:
      return set_pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER, "bias' gradient", epilogue.bias_gradient.data);
    }
  }

  /// Rows of ours are its columns.
  Layout layout(Storage storage, Index rows, Index columns) const {
    cublasLtMatrixLayout_t raw = nullptr;
    check(cublasLtMatrixLayoutCreate(&raw, data_type(storage), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), columns),
          "cublasLtMatrixLayoutCreate", m_shape);
    return Layout(raw, cublasLtMatrixLayoutDestroy);
  }
  Layout stored(Index rows, Index columns, Transpose transpose) const {
    return transpose == Transpose::yes ? layout(m_shape.inputs, columns, rows) : layout(m_shape.inputs, rows, columns);
  }
  Layout layout_a() const { return stored(m_shape.m, m_shape.k, m_shape.a); }
  Layout layout_b() const { return stored(m_shape.k, m_shape.n, m_shape.b); }
  Layout layout_c() const { return layout(m_shape.output, m_shape.m, m_shape.n); }

  void find_algorithms(cublasLtHandle_t library, int wanted) {
    cublasLtMatmulPreference_t raw = nullptr;
    check(cublasLtMatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate", m_shape);
    Owned<cublasLtMatmulPreference_t> const preference(raw, cublasLtMatmulPreferenceDestroy);
    auto const prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(raw, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute", m_shape);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    // parts of a sum never meet in C, whose type may be narrower
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (auto const matrix : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(matrix, row_alignment(m_shape));
    TRAINSTONE_REQUIRE(0 < wanted && wanted <= most_variants, "{} algorithms for {}", wanted, to_string(m_shape));
    cublasLtMatmulHeuristicResult_t found[most_variants] = {};
    check(cublasLtMatmulAlgoGetHeuristic(library, m_operation.get(), m_b.get(), m_a.get(), m_c.get(), m_c.get(), raw,
                                         wanted, found, &m_algorithms),
          "cublasLtMatmulAlgoGetHeuristic", m_shape);
    int usable = 0;
    while (usable < m_algorithms && found[usable].state == CUBLAS_STATUS_SUCCESS) ++usable;
    m_algorithms = usable;
    TRAINSTONE_REQUIRE(m_algorithms > 0, "cuBLASLt has no algorithm for {} with matrices aligned to {} bytes",
                       to_string(m_shape), row_alignment(m_shape));
    m_last = found[m_algorithms - 1].algo;
  }

  GemmShape m_shape;
  Operation m_operation;
  Layout m_a, m_b, m_c;
  int m_algorithms = 0; ///< that the heuristic has found and that can be used
  cublasLtMatmulAlgo_t m_last{};
};

class CublasltGemm {
public:
  explicit CublasltGemm(cublasComputeType_t fp32) : m_fp32(fp32), m_library(make_library()) {}

  void operator()(ExecutionSpace const& exec, GemmShape const& shape, int variant, void const* a, void const* b,
                  void* c, Epilogue const& epilogue, Vector<std::byte> workspace) {
    std::uint64_t const needed = cublaslt_gemm_scratch_bytes(shape);
    TRAINSTONE_REQUIRE(workspace.extent(0) >= needed, "cuBLASLt works in {} bytes, and was given {}", needed,
                       workspace.extent(0));
    Product const& product = find(shape, variant, epilogue);
    std::byte* const aligned = round_up(workspace.data(), workspace_alignment);
    launch_external({"trainstone::gemm[cuBLASLt]", Phase::gemm, shape.flops(), shape.bytes()}, exec,
                    [&] { product.run(m_library.get(), exec.cuda_stream(), a, b, c, epilogue, aligned); });
  }

  int variants(GemmShape const& shape) const {
    return Product(m_library.get(), shape, most_variants, compute_type(shape), at_no_memory(shape.epilogue))
        .algorithms();
  }

private:
  /// What the heuristic takes for vectors and matrices of an epilogue.
  static Epilogue at_no_memory(EpilogueKind kind) {
    void* const anywhere = reinterpret_cast<void*>(std::uintptr_t{workspace_alignment});
    Epilogue epilogue{.kind = kind};
    epilogue.bias.data = epilogue.pre.data = epilogue.bias_gradient.data = anywhere;
    return epilogue;
  }

  cublasComputeType_t compute_type(GemmShape const& shape) const {
    return shape.inputs == Storage::fp32 ? m_fp32 : CUBLAS_COMPUTE_32F;
  }

  Product const& find(GemmShape const& shape, int variant, Epilogue const& epilogue) {
    std::pair const key(shape, variant);
    if (auto const found = m_products.find(key); found != m_products.end()) return found->second;
    int const wanted = variant + 1;
    Product product(m_library.get(), shape, wanted, compute_type(shape), epilogue);
    TRAINSTONE_REQUIRE(product.algorithms() == wanted, "cuBLASLt has {} algorithms for {}, and none with number {}",
                       product.algorithms(), to_string(shape), variant);
    return m_products.emplace(key, std::move(product)).first->second;
  }

  cublasComputeType_t m_fp32; ///< how products of fp32 are computed
  Library m_library;
  std::map<std::pair<GemmShape, int>, Product> m_products; ///< by variant
};

/// std::function wants to copy what it holds.
GemmFunction make(cublasComputeType_t fp32) {
  return [gemm = std::make_shared<CublasltGemm>(fp32)](auto&&... arguments) { (*gemm)(arguments...); };
}

int variants(cublasComputeType_t fp32, GemmShape const& shape) { return CublasltGemm(fp32).variants(shape); }

} // namespace

std::uint64_t cublaslt_gemm_scratch_bytes(GemmShape const&) { return workspace_bytes + workspace_alignment; }

/// Where all extents are multiples of 8, so are leading dimensions, and tensors of a model lie at multiples of 16
/// bytes. A bias' gradient is not added to what is there, and has C's type.
bool cublaslt_fuses(GemmShape const& shape) {
  if (shape.inputs == Storage::fp32 || shape.m % 8 != 0 || shape.n % 8 != 0 || shape.k % 8 != 0) return false;
  bool const narrow_gradient = shape.mode == Write::overwrite && shape.output == shape.inputs;
  return shape.epilogue != EpilogueKind::bias_gradient || narrow_gradient;
}

int cublaslt_gemm_variants(GemmShape const& shape) { return variants(CUBLAS_COMPUTE_32F, shape); }
int cublaslt_tf32_gemm_variants(GemmShape const& shape) { return variants(CUBLAS_COMPUTE_32F_FAST_TF32, shape); }
std::string cublaslt_version() { return fmt::format("{}", cublasLtGetVersion()); }

GemmFunction make_cublaslt_gemm() { return make(CUBLAS_COMPUTE_32F); }
GemmFunction make_cublaslt_tf32_gemm() { return make(CUBLAS_COMPUTE_32F_FAST_TF32); }

} // namespace trainstone::Impl
