// oneDNN's matmul on the host: strict fp32, and bf16 and fp16 with fp32 sums, working in the caller's scratch, on the
// calling thread's OpenMP team (library_threads). Transposes are strides, adding to C is the `sum` post-operation.
// Matrices that oneDNN reads in their own layout slower than it copies them are copied into the scratch in the layout
// that it asks for. Where the CPU has no instructions for a 16-bit type, oneDNN has no product or a slow one (3.12:
// fp16 is "unimplemented" without AVX512-FP16): there the matrices are converted to fp32 in the scratch.

#include "kernels/gemm/gemm_impl.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/memory_plan.hpp"

#include <dnnl.hpp>

#include <algorithm>
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

/// Which inputs are copied into the layout that oneDNN asks for. Measured with 2 threads on shapes of GPT-2 124 M,
/// copies included (oneDNN 3.12). fp32: B whose rows are not the products' runs 76 to 107 GF/s and 102 to 147
/// (gradients of inputs and of weights, AVX2), 173 to 194 and 169 to 208 (AVX-512), and up to 170 instead of 65 where
/// its rows lie a multiple of 4 KiB apart; a B that is stored transposed is as fast as it lies. bf16 with AMX: both,
/// 554 to 696 (forward), 581 to 692, 643 to 929.
struct Packing {
  bool a, b;
};

/// No larger copy is made: it would take memory that models need. The token table of GPT-2 in fp32 is larger, and so
/// are the MLP's weights of models with 4096 channels.
constexpr Index most_packed_bytes = Index{128} << 20;

Packing packing(GemmShape const& shape) {
  bool const narrow = shape.inputs != Storage::fp32;
  auto const fits = [&](Index elements) {
    return elements * static_cast<Index>(bytes_per_value(shape.inputs)) <= most_packed_bytes;
  };
  return {.a = narrow && fits(shape.m * shape.k), .b = (narrow || shape.b == Transpose::no) && fits(shape.k * shape.n)};
}

dnnl::memory::data_type data_type(Storage storage) {
  switch (storage) {
  case Storage::fp32: return dnnl::memory::data_type::f32;
  case Storage::bf16: return dnnl::memory::data_type::bf16;
  case Storage::fp16: return dnnl::memory::data_type::f16;
  }
  return dnnl::memory::data_type::undef;
}

/// A matrix whose rows lie one behind the other, or, if it is stored transposed, its columns.
dnnl::memory::desc describe(Storage storage, Index rows, Index columns, Transpose transpose) {
  dnnl::memory::dims const strides =
      transpose == Transpose::no ? dnnl::memory::dims{columns, 1} : dnnl::memory::dims{1, rows};
  return {{rows, columns}, data_type(storage), strides};
}

dnnl::memory::desc in_any_layout(dnnl::memory::desc const& given) {
  return {given.get_dims(), given.get_data_type(), dnnl::memory::format_tag::any};
}

dnnl::primitive_attr with_scratchpad_of_caller() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

/// A matrix as the caller stores it, and the copy of it that is multiplied, if one is made.
class Packed {
public:
  Packed(dnnl::memory::desc const& given, dnnl::memory::desc const& multiplied)
      : m_given(given), m_multiplied(multiplied) {
    if (given == multiplied) return;
    dnnl::reorder::primitive_desc const description(cpu_engine(), given, cpu_engine(), multiplied,
                                                    with_scratchpad_of_caller());
    m_scratchpad = description.scratchpad_desc();
    m_reorder = dnnl::reorder(description);
  }

  std::uint64_t copied_bytes() const { return m_reorder ? memory_footprint(m_multiplied.get_size()) : 0; }
  std::uint64_t scratchpad_bytes() const { return m_reorder ? m_scratchpad.get_size() : 0; }

  /// The matrix to be multiplied: the caller's, or its copy at `copy`.
  dnnl::memory operator()(dnnl::stream& stream, void const* data, std::byte* copy, std::byte* scratchpad) const {
    dnnl::memory given(m_given, cpu_engine(), const_cast<void*>(data)); // only read
    if (!m_reorder) return given;
    dnnl::memory packed(m_multiplied, cpu_engine(), copy);
    m_reorder.execute(stream, {{DNNL_ARG_FROM, given},
                               {DNNL_ARG_TO, packed},
                               {DNNL_ARG_SCRATCHPAD, dnnl::memory(m_scratchpad, cpu_engine(), scratchpad)}});
    return packed;
  }

private:
  dnnl::memory::desc m_given, m_multiplied, m_scratchpad;
  dnnl::reorder m_reorder;
};

/// One product with all that oneDNN keeps of it.
struct Product {
  explicit Product(GemmShape const& shape)
      : Product(shape, describe(shape.inputs, shape.m, shape.k, shape.a),
                describe(shape.inputs, shape.k, shape.n, shape.b)) {}

  std::uint64_t scratch_bytes() const {
    return a.copied_bytes() + b.copied_bytes() +
           std::max({description.scratchpad_desc().get_size(), a.scratchpad_bytes(), b.scratchpad_bytes()});
  }

  void operator()(dnnl::stream& stream, void const* a_data, void const* b_data, void* c, std::byte* scratch) const {
    std::byte* const b_copy = scratch + a.copied_bytes();
    std::byte* const scratchpad = b_copy + b.copied_bytes();
    dnnl::memory const left = a(stream, a_data, scratch, scratchpad);
    dnnl::memory const right = b(stream, b_data, b_copy, scratchpad);
    matmul.execute(stream,
                   {{DNNL_ARG_SRC, left},
                    {DNNL_ARG_WEIGHTS, right},
                    {DNNL_ARG_DST, dnnl::memory(description.dst_desc(), cpu_engine(), c)},
                    {DNNL_ARG_SCRATCHPAD, dnnl::memory(description.scratchpad_desc(), cpu_engine(), scratchpad)}});
    stream.wait();
  }

  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
  Packed a, b;

private:
  Product(GemmShape const& shape, dnnl::memory::desc const& given_a, dnnl::memory::desc const& given_b)
      : description(plan(shape, given_a, given_b)),
        matmul(description),
        a(given_a, description.src_desc()),
        b(given_b, description.weights_desc()) {}

  static dnnl::matmul::primitive_desc plan(GemmShape const& shape, dnnl::memory::desc const& a,
                                           dnnl::memory::desc const& b) {
    dnnl::primitive_attr attributes = with_scratchpad_of_caller();
    attributes.set_fpmath_mode(dnnl::fpmath_mode::strict); // whatever ONEDNN_DEFAULT_FPMATH_MODE says
    attributes.set_deterministic(true);
    if (shape.mode == Write::add) {
      dnnl::post_ops add_to_c;
      add_to_c.append_sum();
      attributes.set_post_ops(add_to_c);
    }
    auto const [packs_a, packs_b] = packing(shape);
    return {cpu_engine(), packs_a ? in_any_layout(a) : a, packs_b ? in_any_layout(b) : b,
            describe(shape.output, shape.m, shape.n, Transpose::no), attributes};
  }
};

Product make_product(GemmShape const& shape) {
  return check_onednn("matmul", shape, [&] { return Product(shape); });
}

class OnednnGemm {
public:
  void operator()(ExecutionSpace const& exec, GemmShape const& shape, int, void const* a, void const* b, void* c,
                  Epilogue const&, Vector<std::byte> scratch) {
    auto found = m_products.find(shape);
    if (found == m_products.end()) found = m_products.emplace(shape, make_product(shape)).first;
    Product const& product = found->second;
    launch_external({"trainstone::gemm[oneDNN]", Phase::gemm, shape.flops(), shape.bytes()}, exec, [&] {
      check_onednn("matmul::execute", shape, [&] { product(m_stream, a, b, c, scratch.data()); });
    });
  }

private:
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

std::uint64_t onednn_gemm_scratch_bytes(GemmShape const& shape) { return make_product(shape).scratch_bytes(); }

std::string onednn_version() {
  dnnl::version_t const& version = *dnnl::version();
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

GemmFunction make_onednn_gemm() { return OnednnGemm(); }

} // namespace trainstone::Impl
