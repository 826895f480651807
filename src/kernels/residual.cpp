#include "kernels/residual_impl.hpp"

namespace trainstone {

template void residual_forward<float>(ExecutionSpace const&, Matrix<float const>, Matrix<float const>,
                                      Vector<float const>, Matrix<float>);

} // namespace trainstone
