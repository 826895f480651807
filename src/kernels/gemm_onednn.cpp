// oneDNN's matmul on the host: strict fp32, working in the caller's scratch, on the calling thread's OpenMP team (one
// thread where OMP_NUM_THREADS is 1). Transposes are strides, adding to C is the `sum` post-operation.

#include "kernels/gemm_impl.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"

#include <dnnl.hpp>

#include <map>

namespace trainstone::Impl {

namespace {

static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible,
              "this provider computes on the host");

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

/// A matrix of a batch: `step` elements from one to the next, stored with `leading` elements per row.
dnnl::memory::desc describe(Index batch, Index rows, Index columns, Index step, Index leading, Transpose transpose) {
  dnnl::memory::dims const strides =
      transpose == Transpose::no ? dnnl::memory::dims{step, leading, 1} : dnnl::memory::dims{step, 1, leading};
  return {{batch, rows, columns}, dnnl::memory::data_type::f32, strides};
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
  auto const a =
      describe(1, shape.m, shape.k, shape.m * shape.k, shape.a == Transpose::no ? shape.k : shape.m, shape.a);
  auto const b = describe(strips, shape.k, strip, strip, shape.b == Transpose::no ? shape.n : shape.k, shape.b);
  auto const c = describe(strips, shape.m, strip, strip, shape.n, Transpose::no);
  return check_onednn("matmul::primitive_desc", shape,
                      [&] { return dnnl::matmul::primitive_desc(cpu_engine(), a, b, c, attributes); });
}

class OnednnGemm {
public:
  void operator()(ExecutionSpace const&, GemmShape const& shape, float const* a, float const* b, float* c,
                  Vector<std::byte> scratch) {
    auto const found = m_products.find(shape);
    Product const& product = found != m_products.end() ? found->second : m_products.emplace(shape, shape).first->second;
    std::size_t const needed = product.description.scratchpad_desc().get_size();
    TRAINSTONE_REQUIRE(scratch.extent(0) >= needed, "oneDNN needs {} bytes of scratch for {}, and was given {}", needed,
                       to_string(shape), scratch.extent(0));
    launch_external({"trainstone::gemm[oneDNN]", Phase::gemm, shape.flops(), shape.bytes()}, [&] {
      check_onednn("matmul::execute", shape, [&] { execute(product, a, b, c, scratch.data()); });
    });
  }

private:
  struct Product {
    explicit Product(GemmShape const& shape) : description(plan(shape)), matmul(description) {}
    dnnl::matmul::primitive_desc description;
    dnnl::matmul matmul;
  };

  void execute(Product const& product, float const* a, float const* b, float* c, std::byte* scratch) {
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

std::uint64_t onednn_gemm_scratch_bytes(GemmShape const& shape) { return plan(shape).scratchpad_desc().get_size(); }

GemmFunction make_onednn_gemm() { return OnednnGemm(); }

} // namespace trainstone::Impl
