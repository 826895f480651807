#include "kernels/positions_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void place_positions<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

#define TRAINSTONE_INSTANTIATE_TAKE(T, From)                                                                           \
  template void take_positions<From, T>(ExecutionSpace const&, Matrix<From const>, Index, Index, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE_AND_GRADIENT(TRAINSTONE_INSTANTIATE_TAKE)

} // namespace trainstone
