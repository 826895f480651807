#include "kernels/attention/flash_attention_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

std::uint64_t flash_attention_forward_flops(Index batch, Index sequence, Index heads, Index head_size) {
  Index pairs = 0;
  for (Index key = 0; key < sequence; key += Impl::Tiles::keys)
    pairs += Impl::minimum(Impl::Tiles::keys, sequence - key) * (sequence - key);
  return static_cast<std::uint64_t>(2 * 2 * batch * heads * head_size * pairs); // two products, 2 FLOP per term
}

std::uint64_t flash_attention_backward_flops(Index batch, Index sequence, Index heads, Index head_size) {
  return Impl::flash_backward_flops(batch, sequence, heads, head_size, !host_reaches_memory);
}

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void flash_attention_forward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,       \
                                           Vector<float>, Matrix<T>);                                                  \
  template void flash_attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index, Dropout const&,      \
                                            Vector<float const>, Matrix<T const>, Matrix<T const>, Matrix<T>);         \
  template void Impl::flash_attention_backward<T>(ExecutionSpace const&, Matrix<T const>, Index, Index,                \
                                                  Dropout const&, Vector<float const>, Matrix<T const>,                \
                                                  Matrix<T const>, Matrix<T>, bool);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
