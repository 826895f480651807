// Products of 16-bit matrices by a provider that has none of them for this CPU: the matrices become fp32 in the
// scratch, the provider multiplies those, and C is rounded once.

#include "kernels/gemm/gemm_impl.hpp"

#include "core/launch.hpp"
#include "core/memory.hpp"
#include "core/types.hpp"
#include "kernels/cast.hpp"

#include <array>

namespace trainstone::Impl {

namespace {

/// Elements of A, B and C in fp32, which begin the scratch; 0 for a C that is fp32 already.
std::array<Index, 3> converted_elements(GemmShape const& shape) {
  return {shape.m * shape.k, shape.k * shape.n, shape.output == Storage::fp32 ? 0 : shape.m * shape.n};
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

} // namespace

GemmShape in_fp32(GemmShape shape) {
  shape.inputs = shape.output = Storage::fp32;
  return shape;
}

std::uint64_t conversion_bytes(GemmShape const& shape) {
  std::uint64_t bytes = 0;
  for (Index const count : converted_elements(shape))
    bytes += memory_footprint(static_cast<std::uint64_t>(count) * sizeof(float));
  return bytes;
}

int conversion_launches(GemmShape const& shape) {
  if (shape.output == Storage::fp32) return 2;
  return shape.mode == Write::add ? 4 : 3;
}

void compute_converted(ExecutionSpace const& exec, GemmFunction const& in_fp32_by, GemmShape const& shape, int variant,
                       void const* a, void const* b, void* c, Vector<std::byte> scratch) {
  PhaseTimer const timer(Phase::gemm); // conversions are part of the price
  Arena arena(scratch);
  auto const [a_elements, b_elements, c_elements] = converted_elements(shape);
  Vector<float> const wide_a = arena.vector<float>("A", a_elements), wide_b = arena.vector<float>("B", b_elements);
  Vector<float> const wide_c = arena.vector<float>("C", c_elements);
  Vector<std::byte> const rest(scratch.data() + arena.used(), scratch.extent(0) - arena.used());
  widen(exec, shape.inputs, a, wide_a);
  widen(exec, shape.inputs, b, wide_b);
  if (c_elements > 0 && shape.mode == Write::add) widen(exec, shape.output, c, wide_c);
  in_fp32_by(exec, in_fp32(shape), variant, wide_a.data(), wide_b.data(), c_elements > 0 ? wide_c.data() : c, {}, rest);
  if (c_elements > 0) narrow(exec, wide_c, shape.output, c);
}

} // namespace trainstone::Impl
