#include "kernels/layernorm_impl.hpp"

namespace trainstone {

template void layernorm_forward<float>(ExecutionSpace const&, Matrix<float const>, Vector<float const>,
                                       Vector<float const>, Matrix<float>, Vector<float>, Vector<float>);
template void residual_layernorm_forward<float>(ExecutionSpace const&, Matrix<float const>, Matrix<float const>,
                                                Vector<float const>, Vector<float const>, Vector<float const>,
                                                Matrix<float>, Matrix<float>, Vector<float>, Vector<float>);
template void layernorm_backward<float>(ExecutionSpace const&, Matrix<float const>, Matrix<float const>,
                                        Vector<float const>, Vector<float const>, Vector<float const>, Matrix<float>,
                                        Write, Vector<float>, Vector<float>, Write);

} // namespace trainstone
