#include "kernels/bias_gelu_impl.hpp"

namespace trainstone {

template void add_bias<float>(ExecutionSpace const&, Vector<float const>, Matrix<float>);
template void bias_gelu_forward<float>(ExecutionSpace const&, Vector<float const>, Matrix<float>, Matrix<float>);
template void gelu_backward<float>(ExecutionSpace const&, Matrix<float const>, Matrix<float>);
template void bias_backward<float>(ExecutionSpace const&, Matrix<float const>, Vector<float>, Write);

} // namespace trainstone
