#include "kernels/adamw_impl.hpp"

namespace trainstone {

template void adamw_update<float>(ExecutionSpace const&, Vector<float const>, Vector<float>, Vector<float>,
                                  Vector<float>, AdamwStep const&);

} // namespace trainstone
