#include "kernels/gemm/library_threads.hpp"

#include "core/views.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <string>
#include <string_view>

using namespace trainstone;

namespace {

/// OMP_NUM_THREADS and the number of threads as they were, when the test ends.
class Restore {
public:
  Restore() : m_threads(library_threads()) {
    if (char const* const value = std::getenv("OMP_NUM_THREADS")) m_wanted = value;
  }
  Restore(Restore const&) = delete;
  Restore& operator=(Restore const&) = delete;
  ~Restore() {
    unsetenv("OMP_NUM_THREADS");
    limit_library_threads(m_threads);
    if (!m_wanted.empty()) setenv("OMP_NUM_THREADS", m_wanted.c_str(), 1);
  }

private:
  int m_threads;
  std::string m_wanted;
};

} // namespace

TEST_CASE("libraries use as many threads as kernels, unless OMP_NUM_THREADS says otherwise", "[gemm][threads]") {
  Restore const restore;
  unsetenv("OMP_NUM_THREADS");
  limit_library_threads(3);
#ifndef TRAINSTONE_HAVE_OPENMP
  SKIP("the build found no OpenMP");
#endif
  CHECK(library_threads() == 3);
  limit_library_threads(1);
  CHECK(library_threads() == 1);
  setenv("OMP_NUM_THREADS", "", 1);
  limit_library_threads(2);
  CHECK(library_threads() == 2);
  setenv("OMP_NUM_THREADS", "2", 1);
  match_library_threads_to_kernels();
  limit_library_threads(1);
  CHECK(library_threads() == 2);
  unsetenv("OMP_NUM_THREADS");
  limit_library_threads(3);
  match_library_threads_to_kernels();
  CHECK(library_threads() == (std::string_view(ExecutionSpace::name()) == "Serial" ? 1 : 3));
}
