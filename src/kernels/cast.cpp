#include "kernels/cast_impl.hpp"

#include "kernels/common/instantiate.hpp"

namespace trainstone {

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void cast<T, float>(ExecutionSpace const&, Vector<T const>, Vector<float>);                                 \
  template void cast<T, bf16>(ExecutionSpace const&, Vector<T const>, Vector<bf16>);                                   \
  template void cast<T, fp16>(ExecutionSpace const&, Vector<T const>, Vector<fp16>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

void cast(ExecutionSpace const& exec, ConstStoredVector from, StoredVector to) {
  with_storage(from.storage, [&]<class From>() {
    with_storage(to.storage, [&]<class To>() { cast<From, To>(exec, from.as<From>(), to.as<To>()); });
  });
}

void round_to(ExecutionSpace const& exec, Storage storage, Vector<float> values) {
  if (storage == Storage::bf16) Impl::round_to<bf16>(exec, values);
  if (storage == Storage::fp16) Impl::round_to<fp16>(exec, values);
}

} // namespace trainstone
