#include "kernels/layernorm_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void layernorm_forward<T>(ExecutionSpace const&, Matrix<T const>, Vector<T const>, Vector<T const>,         \
                                     Matrix<T>, Vector<float>, Vector<float>);                                         \
  template void residual_layernorm_forward<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>,                 \
                                              Vector<T const>, Vector<T const>, Vector<T const>, Matrix<T>, Matrix<T>, \
                                              Vector<float>, Vector<float>);                                           \
  template void layernorm_backward_input<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>, Vector<T const>,  \
                                            Vector<float const>, Vector<float const>, Matrix<T>, Write);               \
  template void layernorm_block_sums<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>, Vector<float const>,  \
                                        Vector<float const>, Index, Matrix<float>);                                    \
  template void layernorm_sum_blocks<T>(ExecutionSpace const&, Matrix<float const>, Vector<T>, Vector<T>, Write);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

#define TRAINSTONE_INSTANTIATE_GRADIENT(T, Gradient)                                                                   \
  template void layernorm_backward<T, Gradient>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>,               \
                                                Vector<T const>, Vector<float const>, Vector<float const>, Matrix<T>,  \
                                                Write, Vector<Gradient>, Vector<Gradient>, Write);
TRAINSTONE_FOR_EACH_STORAGE_AND_GRADIENT(TRAINSTONE_INSTANTIATE_GRADIENT)

} // namespace trainstone
