#include "kernels/residual_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void residual_forward<T>(ExecutionSpace const&, Matrix<T const>, Matrix<T const>, Vector<T const>,          \
                                    Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
