#include "kernels/accumulate.hpp"

#include "core/launch.hpp"
#include "kernels/common/row.hpp"
#include "kernels/common/shapes.hpp"

namespace trainstone {

namespace Impl {

template <class T>
void accumulate(ExecutionSpace const& exec, Write write, Vector<T const> from, Vector<T> to) {
  Index const count = extent(from, 0);
  require_shape("accumulate: to", to, {count});
  bool const adds = write == Write::add;
  Kernel const kernel{.label = "trainstone::accumulate",
                      .flops = adds ? from.size() : 0,
                      .bytes = from.size() * sizeof(T) * (adds ? 3 : 2)};
  launch_for(
      kernel, row_policy(exec, divide_up(count, chunk_size)), KOKKOS_LAMBDA(Team const& team) {
        Index const first = team.league_rank() * chunk_size;
        T const* const source = from.data() + first;
        T* const target = to.data() + first;
        row_for(team, minimum(chunk_size, count - first), [&](Index i) {
          target[i] = adds ? from_float<T>(to_float(target[i]) + to_float(source[i])) : source[i];
        });
      });
}

} // namespace Impl

void accumulate(ExecutionSpace const& exec, Write write, ConstStoredVector from, StoredVector to) {
  with_storage(to.storage, [&]<class T>() { Impl::accumulate<T>(exec, write, from.as<T>(), to.as<T>()); });
}

} // namespace trainstone
