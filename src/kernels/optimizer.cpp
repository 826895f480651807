#include "kernels/optimizer_impl.hpp"

namespace trainstone {

// of fp32, mixed16 and mixed18 (mixed20's fp32 copy of the gradient is what the optimizer reads)
#define TRAINSTONE_OPTIMIZERS(Gradient, Parameter)                                                                     \
  template void adamw_update<Gradient, Parameter>(ExecutionSpace const&, Vector<Gradient const>, Vector<float>,        \
                                                  Vector<float>, Vector<float>, Vector<Parameter>, AdamStep const&);   \
  template void adam_update<Gradient, Parameter>(ExecutionSpace const&, Vector<Gradient const>, Vector<float>,         \
                                                 Vector<float>, Vector<float>, Vector<Parameter>, AdamStep const&);    \
  template void sgd_update<Gradient, Parameter>(ExecutionSpace const&, Vector<Gradient const>, Vector<float>,          \
                                                Vector<float>, Vector<Parameter>, SgdStep const&);

TRAINSTONE_OPTIMIZERS(float, float)
TRAINSTONE_OPTIMIZERS(bf16, bf16)
TRAINSTONE_OPTIMIZERS(fp16, fp16)
TRAINSTONE_OPTIMIZERS(float, bf16)
TRAINSTONE_OPTIMIZERS(float, fp16)

#undef TRAINSTONE_OPTIMIZERS

} // namespace trainstone
