// What only the plain Kokkos product promises, and what its tiles could get wrong beyond the shapes of gemm_test.cpp.

#include "kernels/gemm/gemm.hpp"

#include "support/gemm_problem.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// `count` elements that end where memory ends: to read beyond them ends the program.
class LastElements {
public:
  explicit LastElements(Index count) {
    auto const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::size_t const bytes = static_cast<std::size_t>(count) * sizeof(float);
    std::size_t const used = (bytes + page - 1) / page * page;
    m_bytes = used + page;
    m_memory = mmap(nullptr, m_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(m_memory != MAP_FAILED);
    auto* const first = static_cast<std::byte*>(m_memory);
    REQUIRE(mprotect(first + used, page, PROT_NONE) == 0);
    m_elements = reinterpret_cast<float*>(first + used - bytes);
    std::fill_n(m_elements, count, 1.0f);
  }
  LastElements(LastElements const&) = delete;
  LastElements& operator=(LastElements const&) = delete;
  ~LastElements() { munmap(m_memory, m_bytes); }
  float* data() const { return m_elements; }

private:
  std::size_t m_bytes;
  void* m_memory;
  float* m_elements;
};

} // namespace

TEST_CASE("the largest tiles of the Kokkos kernel are exact", "[gemm]") {
  // so many that a host's threads do not ask for smaller ones
  Index const threads = host_reaches_memory ? ExecutionSpace().concurrency() : 1;
  for (Transpose const a : transposes)
    for (Transpose const b : transposes) {
      GemmProblem const problem({265, threads * 384, 257, a, b, Write::add, Storage::fp32, Storage::fp32});
      CHECK(exact_mismatches(GemmProvider::kokkos, compute(GemmProvider::kokkos, problem)[0].c, problem) == "");
    }
}

TEST_CASE("the Kokkos kernel gives a row of C the same bits however many rows there are", "[gemm]") {
  Index const few = 66, many = 600, n = 130, k = 1600; // other tiles, and more than one block of k
  for (Transpose const a : transposes)
    for (auto const [inputs, output] : storages) {
      GemmProblem large({many, n, k, a, Transpose::yes, Write::overwrite, inputs, output});
      GemmProblem small({few, n, k, a, Transpose::yes, Write::overwrite, inputs, output});
      for (Index row = 0; row < few; ++row)
        for (Index i = 0; i < k; ++i) {
          auto const at = [&](Index rows) {
            return static_cast<std::size_t>(a == Transpose::no ? row * k + i : i * rows + row);
          };
          small.a[at(few)] = large.a[at(many)];
        }
      for (GemmProblem* const problem : {&large, &small}) problem->scale(1.0f / 127, 0.0f);
      std::vector<double> all = compute(GemmProvider::kokkos, large)[0].c;
      all.resize(static_cast<std::size_t>(few * n));
      CHECK(compute(GemmProvider::kokkos, small)[0].c == all);
    }
}

TEST_CASE("the Kokkos kernel touches nothing behind its matrices", "[gemm]") {
  if (!host_reaches_memory) SKIP("a device does not reach a host's pages");
  ExecutionSpace const exec;
  for (auto const [m, n, k] : {Extents{7, 17, 5}, {67, 65, 33}, {12, 64, 257}})
    for (Transpose const ta : transposes)
      for (Transpose const tb : transposes) {
        LastElements const a(m * k), b(k * n), c(m * n);
        Matrix<float> const left = ta == Transpose::no ? Matrix<float>(a.data(), m, k) : Matrix<float>(a.data(), k, m);
        Matrix<float> const right = tb == Transpose::no ? Matrix<float>(b.data(), k, n) : Matrix<float>(b.data(), n, k);
        Gemm gemm(GemmProvider::kokkos);
        gemm(exec, ta, left, tb, right, Matrix<float>(c.data(), m, n), Write::add);
        exec.fence();
        CHECK(std::ranges::count(std::span(c.data(), static_cast<std::size_t>(m * n)), static_cast<float>(k + 1)) ==
              m * n);
      }
}
