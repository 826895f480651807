// A kernel with mistakes that a host build does not notice, one per macro. A build with CUDA must refuse each of them,
// and take the file without them.

#include "core/launch.hpp"

#include <vector>

namespace trainstone::test {

inline float half_on_host(float value) { return 0.5F * value; }

using Elements = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;

struct Scaled {
  Vector<float> values;
  float scale;

  void launch(ExecutionSpace const& exec) const {
    auto const target = values;
    auto const factor = scale;
    launch_for(
        {"trainstone::test::refused"}, Elements(exec, 0, static_cast<Index>(values.extent(0))), KOKKOS_LAMBDA(Index i) {
#if defined(TRAINSTONE_MISTAKE_FUNCTION)
          target(i) = factor * half_on_host(target(i));
#elif defined(TRAINSTONE_MISTAKE_CONTAINER)
          std::vector<float> const copies(2, target(i));
          target(i) = factor * copies[1];
#elif defined(TRAINSTONE_MISTAKE_THIS)
          target(i) = factor * scale;
#else
          target(i) *= factor;
#endif
        });
  }
};

void launch_scaled(ExecutionSpace const& exec, Vector<float> values) { Scaled{values, 2.0F}.launch(exec); }

} // namespace trainstone::test
