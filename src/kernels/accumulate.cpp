#include "kernels/accumulate.hpp"

#include "core/launch.hpp"
#include "kernels/row.hpp"
#include "kernels/shapes.hpp"

namespace trainstone {

void accumulate(ExecutionSpace const& exec, Write write, Vector<float const> from, Vector<float> to) {
  Index const count = Impl::extent(from, 0);
  Impl::require_shape("accumulate: to", to, {count});
  bool const adds = write == Write::add;
  Kernel const kernel{.label = "trainstone::accumulate",
                      .flops = adds ? from.size() : 0,
                      .bytes = from.size() * sizeof(float) * (adds ? 3 : 2)};
  launch_for(
      kernel, Impl::row_policy(exec, Impl::divide_up(count, Impl::chunk_size)), KOKKOS_LAMBDA(Impl::Team const& team) {
        Index const first = team.league_rank() * Impl::chunk_size;
        float const* const source = from.data() + first;
        float* const target = to.data() + first;
        Impl::row_for(team, Impl::minimum(Impl::chunk_size, count - first),
                      [&](Index i) { target[i] = adds ? target[i] + source[i] : source[i]; });
      });
}

} // namespace trainstone
