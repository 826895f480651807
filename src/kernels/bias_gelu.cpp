#include "kernels/bias_gelu_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void add_bias<T>(ExecutionSpace const&, Vector<T const>, Matrix<T const>, Matrix<T>);                       \
  template void bias_gelu_forward<T>(ExecutionSpace const&, Vector<T const>, Matrix<T const>, Matrix<T>, Matrix<T>);   \
  template void gelu_backward<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

#define TRAINSTONE_INSTANTIATE_GRADIENT(T, Gradient)                                                                   \
  template void bias_backward<T, Gradient>(ExecutionSpace const&, Matrix<T const>, Vector<Gradient>, Write);
TRAINSTONE_FOR_EACH_STORAGE_AND_GRADIENT(TRAINSTONE_INSTANTIATE_GRADIENT)

} // namespace trainstone
