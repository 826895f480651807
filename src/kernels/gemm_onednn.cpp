// oneDNN's matmul on the host: strict fp32, and bf16 and fp16 with fp32 sums, working in the caller's scratch, on the
// calling thread's OpenMP team (one thread where OMP_NUM_THREADS is 1). Transposes are strides, adding to C is the
// `sum` post-operation. Where the CPU has no instructions for a 16-bit type, oneDNN has no product or a slow one (3.12:
// fp16 is "unimplemented" without AVX512-FP16): there the matrices are converted to fp32 in the scratch.

#include "kernels/gemm_impl.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/memory.hpp"
#include "core/types.hpp"
#include "kernels/cast.hpp"

#include <dnnl.hpp>

#include <array>
#include <map>

namespace trainstone::Impl {

namespace {

static_assert(host_reaches_memory, "this provider computes on the host");

dnnl::engine const& cpu_engine() {
  static dnnl::engine const engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// Runs `call` and turns oneDNN's exceptions into ours, with the call's name and its status.
template <class Call>
auto check_onednn(char const* name, GemmShape const& shape, Call const& call) {
  try {
    return call();
  } catch (dnnl::error const& error) {
    throw Error(fmt::format("oneDNN: {} for {} failed with status {}: {}", name, to_string(shape),
                            static_cast<int>(error.status), error.what()));
  }
}

/// Width of the strips of columns in which the product is described: all n, or 1024. oneDNN reads B in place unless
/// its number of columns is a power of two, but rows that lie a multiple of 4 KiB apart evict each other from the
/// caches: 65 instead of 170 GF/s at n = 3072 (oneDNN 3.12, AVX-512). It copies each strip of 1024.
Index strip_columns(GemmShape const& shape) {
  Index const strip = 1024;
  return shape.b == Transpose::no && shape.n % strip == 0 ? strip : shape.n;
}

dnnl::memory::data_type data_type(Storage storage) {
  switch (storage) {
  case Storage::fp32: return dnnl::memory::data_type::f32;
  case Storage::bf16: return dnnl::memory::data_type::bf16;
  case Storage::fp16: return dnnl::memory::data_type::f16;
  }
  return dnnl::memory::data_type::undef;
}

/// A matrix of a batch: `step` elements from one to the next, stored with `leading` elements per row.
dnnl::memory::desc describe(Storage storage, Index batch, Index rows, Index columns, Index step, Index leading,
                            Transpose transpose) {
  dnnl::memory::dims const strides =
      transpose == Transpose::no ? dnnl::memory::dims{step, leading, 1} : dnnl::memory::dims{step, 1, leading};
  return {{batch, rows, columns}, data_type(storage), strides};
}

dnnl::matmul::primitive_desc plan(GemmShape const& shape) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict); // whatever ONEDNN_DEFAULT_FPMATH_MODE says
  attributes.set_deterministic(true);
  if (shape.mode == Write::add) {
    dnnl::post_ops add_to_c;
    add_to_c.append_sum();
    attributes.set_post_ops(add_to_c);
  }
  Index const strip = strip_columns(shape), strips = shape.n / strip;
  Index const a_leading = shape.a == Transpose::no ? shape.k : shape.m;
  Index const b_leading = shape.b == Transpose::no ? shape.n : shape.k;
  auto const a = describe(shape.inputs, 1, shape.m, shape.k, shape.m * shape.k, a_leading, shape.a);
  auto const b = describe(shape.inputs, strips, shape.k, strip, strip, b_leading, shape.b);
  auto const c = describe(shape.output, strips, shape.m, strip, strip, shape.n, Transpose::no);
  return check_onednn("matmul::primitive_desc", shape,
                      [&] { return dnnl::matmul::primitive_desc(cpu_engine(), a, b, c, attributes); });
}

/// What oneDNN computes for `shape`: that, or the same in fp32.
GemmShape computed(GemmShape shape) {
  if (!onednn_computes_natively(shape.inputs)) shape.inputs = shape.output = Storage::fp32;
  return shape;
}

/// Elements of A, B and C in fp32, which begin the scratch: 0 where a matrix is not converted.
std::array<Index, 3> converted_elements(GemmShape const& shape) {
  if (onednn_computes_natively(shape.inputs)) return {0, 0, 0};
  return {shape.m * shape.k, shape.k * shape.n, shape.output == Storage::fp32 ? 0 : shape.m * shape.n};
}

std::uint64_t scratch_bytes(GemmShape const& shape, dnnl::matmul::primitive_desc const& description) {
  std::uint64_t bytes = description.scratchpad_desc().get_size();
  for (Index const count : converted_elements(shape))
    bytes += Arena::footprint(static_cast<std::uint64_t>(count) * sizeof(float));
  return bytes;
}

/// to = from, whose storage is known at run time only.
void widen(ExecutionSpace const& exec, Storage storage, void const* from, Vector<float> to) {
  if (storage == Storage::bf16)
    cast<bf16, float>(exec, Vector<bf16 const>(static_cast<bf16 const*>(from), to.extent(0)), to);
  else
    cast<fp16, float>(exec, Vector<fp16 const>(static_cast<fp16 const*>(from), to.extent(0)), to);
}

void narrow(ExecutionSpace const& exec, Vector<float const> from, Storage storage, void* to) {
  if (storage == Storage::bf16)
    cast<float, bf16>(exec, from, Vector<bf16>(static_cast<bf16*>(to), from.extent(0)));
  else
    cast<float, fp16>(exec, from, Vector<fp16>(static_cast<fp16*>(to), from.extent(0)));
}

class OnednnGemm {
public:
  void operator()(ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c,
                  Epilogue const&, Vector<std::byte> scratch) {
    auto const found = m_products.find(shape);
    Product const& product = found != m_products.end() ? found->second : m_products.emplace(shape, shape).first->second;
    TRAINSTONE_REQUIRE(scratch.extent(0) >= product.scratch,
                       "oneDNN needs {} bytes of scratch for {}, and was given {}", product.scratch, to_string(shape),
                       scratch.extent(0));
    if (computed(shape) == shape)
      compute(exec, product, a, b, c, scratch.data());
    else
      compute_converted(exec, shape, product, a, b, c, scratch);
  }

private:
  struct Product {
    explicit Product(GemmShape const& asked)
        : shape(computed(asked)),
          description(plan(shape)),
          matmul(description),
          scratch(scratch_bytes(asked, description)) {}
    GemmShape shape;
    dnnl::matmul::primitive_desc description;
    dnnl::matmul matmul;
    std::uint64_t scratch;
  };

  void compute_converted(ExecutionSpace const& exec, GemmShape const& shape, Product const& product, void const* a,
                         void const* b, void* c, Vector<std::byte> scratch) {
    PhaseTimer const timer(Phase::gemm); // conversions are part of the price
    Arena arena(scratch);
    auto const [a_elements, b_elements, c_elements] = converted_elements(shape);
    Vector<float> const wide_a = arena.vector<float>("A", a_elements), wide_b = arena.vector<float>("B", b_elements);
    Vector<float> const wide_c = arena.vector<float>("C", c_elements);
    std::byte* const rest = scratch.data() + arena.used();
    widen(exec, shape.inputs, a, wide_a);
    widen(exec, shape.inputs, b, wide_b);
    if (c_elements == 0) return compute(exec, product, wide_a.data(), wide_b.data(), c, rest);
    if (shape.mode == Write::add) widen(exec, shape.output, c, wide_c);
    compute(exec, product, wide_a.data(), wide_b.data(), wide_c.data(), rest);
    narrow(exec, wide_c, shape.output, c);
  }

  void compute(ExecutionSpace const& exec, Product const& product, void const* a, void const* b, void* c,
               std::byte* scratch) {
    GemmShape const& shape = product.shape;
    launch_external({"trainstone::gemm[oneDNN]", Phase::gemm, shape.flops(), shape.bytes()}, exec,
                    [&] { check_onednn("matmul::execute", shape, [&] { execute(product, a, b, c, scratch); }); });
  }

  void execute(Product const& product, void const* a, void const* b, void* c, std::byte* scratch) {
    auto const& description = product.description;
    auto const wrap = [](dnnl::memory::desc const& desc, void const* data) {
      return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data)); // A and B are inputs: only read
    };
    product.matmul.execute(m_stream, {{DNNL_ARG_SRC, wrap(description.src_desc(), a)},
                                      {DNNL_ARG_WEIGHTS, wrap(description.weights_desc(), b)},
                                      {DNNL_ARG_DST, wrap(description.dst_desc(), c)},
                                      {DNNL_ARG_SCRATCHPAD, wrap(description.scratchpad_desc(), scratch)}});
    m_stream.wait();
  }

  dnnl::stream m_stream{cpu_engine()};
  std::map<GemmShape, Product> m_products;
};

} // namespace

bool onednn_computes_natively(Storage inputs) {
  auto const has = [](dnnl::cpu_isa wanted) { // levels are sets of bits that contain those that they build on
    auto const found = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    return (found & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  switch (inputs) {
  case Storage::fp32: return true;
  case Storage::bf16: return has(dnnl::cpu_isa::avx512_core_bf16);
  case Storage::fp16: return has(dnnl::cpu_isa::avx512_core_fp16);
  }
  return false;
}

std::uint64_t onednn_gemm_scratch_bytes(GemmShape const& shape) { return scratch_bytes(shape, plan(computed(shape))); }

int onednn_gemm_launches(GemmShape const& shape) {
  auto const [a, b, c] = converted_elements(shape);
  int const conversions_of_c = c == 0 ? 0 : shape.mode == Write::add ? 2 : 1;
  return 1 + (a > 0 ? 1 : 0) + (b > 0 ? 1 : 0) + conversions_of_c;
}

GemmFunction make_onednn_gemm() { return OnednnGemm(); }

} // namespace trainstone::Impl
