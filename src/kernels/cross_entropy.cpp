#include "kernels/cross_entropy_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void cross_entropy_forward<T>(ExecutionSpace const&, Matrix<T const>, Vector<std::int32_t const>, Index,    \
                                         Vector<float>);                                                               \
  template void cross_entropy_backward_fused<T>(ExecutionSpace const&, Matrix<T>, Vector<std::int32_t const>, Index,   \
                                                float, Vector<float>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
