#include "kernels/gemm/library_threads.hpp"

#include "core/views.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#ifdef TRAINSTONE_HAVE_OPENMP
#include <omp.h>
#endif

namespace trainstone {

#ifdef TRAINSTONE_HAVE_OPENMP
void limit_library_threads(int threads) {
  char const* const wanted = std::getenv("OMP_NUM_THREADS");
  if (wanted == nullptr || *wanted == '\0') omp_set_num_threads(threads);
}
int library_threads() { return omp_get_max_threads(); }
#else
void limit_library_threads(int /*threads*/) {}
int library_threads() { return 1; }
#endif

int library_threads(GemmChoice const& choice) {
  if (!host_reaches_memory) return 0;
  auto const is_library = [](GemmProvider provider) { return provider != GemmProvider::kokkos; };
  return std::ranges::any_of(choice.providers(), is_library) ? library_threads() : 0;
}

void match_library_threads_to_kernels() {
  if (std::string_view(ExecutionSpace::name()) == "Serial") limit_library_threads(1);
}

} // namespace trainstone
