// What follows or precedes a product whose provider does not do it itself: the kernels of bias_gelu.hpp.

#include "kernels/gemm/gemm_impl.hpp"

#include "core/error.hpp"
#include "core/types.hpp"
#include "kernels/bias_gelu.hpp"

namespace trainstone::Impl {

namespace {

void require_vector(char const* what, ConstStoredVector vector, Index size, Storage storage, GemmShape const& shape) {
  TRAINSTONE_REQUIRE(vector.size == size && vector.storage == storage,
                     "matrix product {}: the {} has {} elements of {}, not {} of {}", to_string(shape), what,
                     vector.size, trainstone::to_string(vector.storage), size, trainstone::to_string(storage));
}

void require_pre(trainstone::StoredMatrix pre, GemmShape const& shape) {
  TRAINSTONE_REQUIRE(pre.rows == shape.m && pre.columns == shape.n && pre.storage == shape.output,
                     "matrix product {}: what the GELU is taken of is ({}, {}) of {}", to_string(shape), pre.rows,
                     pre.columns, trainstone::to_string(pre.storage));
}

} // namespace

void require_epilogue(GemmShape const& shape, Epilogue const& epilogue) {
  bool const has_bias = epilogue.kind == EpilogueKind::bias || epilogue.kind == EpilogueKind::bias_gelu;
  bool const has_pre = epilogue.kind == EpilogueKind::bias_gelu || epilogue.kind == EpilogueKind::gelu_gradient;
  if (has_bias) require_vector("bias", epilogue.bias, shape.n, shape.inputs, shape);
  if (has_pre) require_pre(epilogue.pre, shape);
  if (epilogue.kind == EpilogueKind::bias_gradient) {
    require_vector("bias' gradient", epilogue.bias_gradient, shape.m, shape.output, shape);
    TRAINSTONE_REQUIRE(shape.a == Transpose::yes, "matrix product {}: a bias' gradient sums the rows of a transposed A",
                       to_string(shape));
  } else if (epilogue.kind != EpilogueKind::none) {
    TRAINSTONE_REQUIRE(shape.mode == Write::overwrite && shape.output == shape.inputs,
                       "matrix product {}: its epilogue overwrites C, which is stored as A is", to_string(shape));
  }
}

void begin_epilogue(ExecutionSpace const& exec, GemmShape const& shape, ConstStoredMatrix a, Epilogue const& epilogue) {
  if (epilogue.kind != EpilogueKind::bias_gradient) return;
  with_storage(a.storage, [&]<class T>() {
    if (epilogue.bias_gradient.storage == Storage::fp32)
      bias_backward<T, float>(exec, a.as<T>(), epilogue.bias_gradient.as<float>(), shape.mode);
    else
      bias_backward<T, T>(exec, a.as<T>(), epilogue.bias_gradient.as<T>(), shape.mode);
  });
}

void end_epilogue(ExecutionSpace const& exec, trainstone::StoredMatrix c, Epilogue const& epilogue) {
  with_storage(c.storage, [&]<class T>() {
    switch (epilogue.kind) {
    case EpilogueKind::bias: return add_bias<T>(exec, epilogue.bias.as<T>(), c.as<T>());
    case EpilogueKind::bias_gelu:
      return bias_gelu_forward<T>(exec, epilogue.bias.as<T>(), epilogue.pre.as<T>(), c.as<T>());
    case EpilogueKind::gelu_gradient: return gelu_backward<T>(exec, epilogue.pre.as<T>(), c.as<T>());
    case EpilogueKind::none:
    case EpilogueKind::bias_gradient: return;
    }
  });
}

} // namespace trainstone::Impl
