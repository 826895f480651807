#include "kernels/cross_entropy_impl.hpp"

namespace trainstone {

template void cross_entropy_forward<float>(ExecutionSpace const&, Matrix<float const>, Vector<std::int32_t const>,
                                           Index, Vector<float>);
template void cross_entropy_backward_fused<float>(ExecutionSpace const&, Matrix<float>, Vector<std::int32_t const>,
                                                  Index, float, Vector<float>);

} // namespace trainstone
