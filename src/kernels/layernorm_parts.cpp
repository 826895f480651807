#include "kernels/layernorm_parts_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void layernorm_sums<T>(ExecutionSpace const&, Matrix<T const>, Matrix<double>);                             \
  template void layernorm_of_sums<T>(ExecutionSpace const&, Matrix<T const>, Matrix<double const>, Index,              \
                                     Vector<T const>, Vector<T const>, Matrix<T>, Vector<float>, Vector<float>);       \
  template void layernorm_backward_sums<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>, Vector<T const>,   \
                                           Vector<float const>, Vector<float const>, Matrix<double>);                  \
  template void layernorm_backward_of_sums<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>,                 \
                                              Vector<T const>, Vector<float const>, Vector<float const>,               \
                                              Matrix<double const>, Index, Matrix<T>, Write);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
