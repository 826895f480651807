#include "kernels/initialize_impl.hpp"

#include "kernels/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void normal_fill<T>(ExecutionSpace const&, std::uint64_t, Index, double, Vector<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
