#include "kernels/attention/attention_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

std::uint64_t attention_forward_flops(Index batch, Index sequence, Index heads, Index head_size) {
  // two products, 2 FLOP per term, over the T (T + 1) / 2 pairs of query and key
  return static_cast<std::uint64_t>(2 * batch * heads * head_size * sequence * (sequence + 1));
}

std::uint64_t attention_probabilities_flops(Index batch, Index sequence, Index heads, Index head_size) {
  return attention_forward_flops(batch, sequence, heads, head_size) / 2;
}

std::uint64_t attention_backward_flops(Index batch, Index sequence, Index heads, Index head_size) {
  return 2 * attention_forward_flops(batch, sequence, heads, head_size);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void attention_forward<T>(ExecutionSpace const&, Matrix<T const>, Index, Tensor4<T>, Matrix<T>,             \
                                     Dropout const&, Tensor4<MaskByte>);                                               \
  template void attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Tensor4<T const>, Matrix<T const>,       \
                                      Matrix<T>, Dropout const&, Tensor4<MaskByte const>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
