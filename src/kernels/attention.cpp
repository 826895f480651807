#include "kernels/attention_impl.hpp"

namespace trainstone {

std::uint64_t attention_forward_flops(Index batch, Index sequence, Index heads, Index head_size) {
  // two products, 2 FLOP per term, over the T (T + 1) / 2 pairs of query and key
  return static_cast<std::uint64_t>(2 * batch * heads * head_size * sequence * (sequence + 1));
}

std::uint64_t attention_backward_flops(Index batch, Index sequence, Index heads, Index head_size) {
  return 2 * attention_forward_flops(batch, sequence, heads, head_size);
}

template void attention_forward<float>(ExecutionSpace const&, Matrix<float const>, Index, Tensor4<float>,
                                       Matrix<float>);
template void attention_backward<float>(ExecutionSpace const&, Matrix<float const>, Tensor4<float const>,
                                        Matrix<float const>, Matrix<float>);

} // namespace trainstone
