#include "kernels/initialize_impl.hpp"

namespace trainstone {

template void normal_fill<float>(ExecutionSpace const&, std::uint64_t, Index, double, Vector<float>);

} // namespace trainstone
