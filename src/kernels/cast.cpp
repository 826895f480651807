#include "kernels/cast_impl.hpp"

namespace trainstone {

template void cast<float, bf16>(ExecutionSpace const&, Vector<float const>, Vector<bf16>);
template void cast<bf16, float>(ExecutionSpace const&, Vector<bf16 const>, Vector<float>);
template void cast<float, fp16>(ExecutionSpace const&, Vector<float const>, Vector<fp16>);
template void cast<fp16, float>(ExecutionSpace const&, Vector<fp16 const>, Vector<float>);

} // namespace trainstone
