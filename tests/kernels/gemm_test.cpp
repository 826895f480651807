// Every built provider and storage type against fp64 loops.

#include "kernels/gemm.hpp"

#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "core/launch.hpp"
#include "core/memory.hpp"
#include "kernels/config.hpp"
#include "kernels/reference.hpp"
#include "support/compare.hpp"
#include "support/storage.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

Transpose const transposes[] = {Transpose::no, Transpose::yes};
Write const modes[] = {Write::overwrite, Write::add};

struct StoragePair {
  Storage inputs, output;
};
StoragePair const storages[] = {{Storage::fp32, Storage::fp32},
                                {Storage::bf16, Storage::bf16},
                                {Storage::bf16, Storage::fp32},
                                {Storage::fp16, Storage::fp16},
                                {Storage::fp16, Storage::fp32}};

/// Whole numbers in -127 ... 127, scattered over the positions: for k <= 1039 every sum of their products stays below
/// 2^24 and is exact in fp32, whatever the order. bf16 and fp16 hold them exactly.
std::vector<float> whole_numbers(Index count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t const mixed = (i + seed) * 0x9e3779b97f4a7c15u;
    values[i] = static_cast<float>(static_cast<int>((mixed >> 40) % 255) - 127);
  }
  return values;
}

struct Extents {
  Index m, n, k;
};

struct Problem {
  GemmShape shape;
  std::vector<float> a, b, c; // c before the call

  /// Those that fp16 stores are scaled by 2^-4 (c by 2^-8), so that C stays within fp16's range for k <= 1000.
  explicit Problem(GemmShape const& s)
      : shape(s), a(whole_numbers(s.m * s.k, 1)), b(whole_numbers(s.k * s.n, 2)), c(whole_numbers(s.m * s.n, 3)) {
    if (s.output == Storage::fp16) scale(0x1p-4F, 0x1p-8F);
  }
  void scale(float inputs, float output) {
    for (auto* values : {&a, &b})
      for (float& value : *values) value *= inputs;
    for (float& value : c) value *= output;
  }
};

/// body.operator()<Input, Output>() with the types of the shape.
template <class Body>
auto with_types(GemmShape const& shape, Body const& body) {
  bool const wide = shape.output == Storage::fp32;
  switch (shape.inputs) {
  case Storage::fp32: return body.template operator()<float, float>();
  case Storage::bf16: return wide ? body.template operator()<bf16, float>() : body.template operator()<bf16, bf16>();
  case Storage::fp16: return wide ? body.template operator()<fp16, float>() : body.template operator()<fp16, fp16>();
  }
  throw Error("no such storage");
}

constexpr std::byte guard{0xa5};
constexpr std::size_t guard_bytes = 4096;

struct Outcome {
  std::vector<double> c;
  bool guard_intact;
};

template <class Input, class Output>
std::vector<Outcome> compute_stored(GemmProvider provider, Problem const& problem, int times) {
  ExecutionSpace const exec;
  GemmShape const& s = problem.shape;
  std::uint64_t const scratch_bytes = gemm_scratch_bytes(provider, s);
  MemoryLedger ledger;
  Allocation const memory(
      ledger, MemoryCategory::buffers, "test",
      total_bytes({planned<Input>("A", s.m * s.k), planned<Input>("B", s.k * s.n), planned<Output>("C", s.m * s.n)}));
  Allocation const scratch(ledger, MemoryCategory::buffers, "scratch", scratch_bytes + guard_bytes);
  Arena arena(memory.bytes());
  auto const a = s.a == Transpose::no ? arena.matrix<Input>("A", s.m, s.k) : arena.matrix<Input>("A", s.k, s.m);
  auto const b = s.b == Transpose::no ? arena.matrix<Input>("B", s.k, s.n) : arena.matrix<Input>("B", s.n, s.k);
  auto const c = arena.matrix<Output>("C", s.m, s.n);
  Vector<Output> const c_elements(c.data(), c.size());
  copy_from_host<Input>(exec, test::stored<Input>(problem.a), Vector<Input>(a.data(), a.size()), "test");
  copy_from_host<Input>(exec, test::stored<Input>(problem.b), Vector<Input>(b.data(), b.size()), "test");
  Vector<std::byte> const behind_scratch(scratch.bytes().data() + scratch_bytes, guard_bytes);
  copy_from_host<std::byte>(exec, std::vector<std::byte>(guard_bytes, guard), behind_scratch, "test");

  Gemm gemm(provider, Vector<std::byte>(scratch.bytes().data(), scratch_bytes));
  std::vector<Outcome> outcomes;
  for (int i = 0; i < times; ++i) {
    copy_from_host<Output>(exec, test::stored<Output>(problem.c), c_elements, "test");
    gemm(exec, s.a, a, s.b, b, c, s.mode);
    auto const bytes = copy_to_host(exec, behind_scratch, "test");
    bool const intact = std::ranges::all_of(bytes, [](std::byte byte) { return byte == guard; });
    outcomes.push_back({test::widened(copy_to_host(exec, c_elements, "test")), intact});
  }
  return outcomes;
}

/// Computes `times` times from the same start in a scratch of exactly the predicted size, followed by guard bytes.
std::vector<Outcome> compute(GemmProvider provider, Problem const& problem, int times = 1) {
  return with_types(problem.shape, [&]<class Input, class Output>() {
    return compute_stored<Input, Output>(provider, problem, times);
  });
}

/// op(A) op(B), added to C if the shape says so, of the matrices as they are stored.
std::vector<double> expected(Problem const& problem) {
  return with_types(problem.shape, [&]<class Input, class Output>() {
    GemmShape const& s = problem.shape;
    std::vector<double> c(problem.c.size());
    if (s.mode == Write::add) c = test::widened(test::stored<Output>(problem.c));
    reference::gemm({s.m, s.n, s.k, s.a == Transpose::yes, s.b == Transpose::yes},
                    test::widened(test::stored<Input>(problem.a)), test::widened(test::stored<Input>(problem.b)), c);
    return c;
  });
}

template <class Body>
void for_each_form(Index m, Index n, Index k, Body const& body) {
  for (GemmProvider const provider : built_gemm_providers())
    for (auto const [inputs, output] : storages)
      for (Transpose const a : transposes)
        for (Transpose const b : transposes)
          for (Write const mode : modes) {
            INFO(describe_gemm(provider, inputs)
                 << " into " << to_string(output) << " m " << m << " n " << n << " k " << k
                 << (a == Transpose::yes ? " A^T" : "") << (b == Transpose::yes ? " B^T" : "")
                 << (mode == Write::add ? " add" : ""));
            body(provider, GemmShape{m, n, k, a, b, mode, inputs, output});
          }
}

/// Whether the provider stores the product before it adds it to C, whose type is narrower than the sum's.
bool stores_twice(GemmProvider provider, GemmShape const& shape) {
  return shape.mode == Write::add && shape.output != Storage::fp32 && rounds_before_adding(provider);
}

using ErrorBound = std::function<double(double)>;

/// Of a result that is off by `error` in fp32 and stored in C, as often as the provider does that.
ErrorBound storing_bound(GemmProvider provider, Problem const& problem, double error) {
  double addend = 0; // the largest of what C held
  for (float const value : problem.c) addend = std::max(addend, static_cast<double>(std::abs(value)));
  bool const twice = stores_twice(provider, problem.shape);
  return with_types(problem.shape, [&]<class Input, class Output>() -> ErrorBound {
    if (twice) return test::added_after_storing_within<Output>(error, addend);
    return test::stored_within<Output>(error);
  });
}

/// Compares with the exact result as C stores it; within two roundings where it was stored twice.
std::string exact_mismatches(GemmProvider provider, std::vector<double> const& actual, Problem const& problem) {
  std::vector<double> const exact = expected(problem);
  if (stores_twice(provider, problem.shape))
    return test::mismatches(std::span<double const>(actual), std::span<double const>(exact),
                            storing_bound(provider, problem, 0));
  std::vector<double> const wanted = with_types(problem.shape, [&]<class Input, class Output>() {
    return test::widened(test::stored<Output>({exact.begin(), exact.end()}));
  });
  return test::mismatches(std::span<double const>(actual), std::span<double const>(wanted), 0.0);
}

} // namespace

TEST_CASE("products of whole numbers are exact, and rounded once, for all providers, types, transposes and modes",
          "[gemm]") {
  // one, odd, prime, around tile borders of the Kokkos kernel (66 to 264 x 64 x 768, 48 to 192 x 128 to 384 x 256, half
  // the depth where C has 16 bits, patches 6 x 16 or 32), 1024 columns and more
  auto const extents = {Extents{1, 1, 1}, {1, 17, 3},      {19, 1, 5},     {5, 7, 1},       {6, 32, 128},
                        {131, 127, 129},  {133, 129, 257}, {264, 33, 64},  {265, 640, 129}, {533, 17, 3},
                        {3, 1024, 9},     {7, 3072, 31},   {17, 2050, 13}, {67, 65, 769},   {13, 385, 257}};
  for (auto const [m, n, k] : extents) {
    for_each_form(m, n, k, [](GemmProvider provider, GemmShape const& shape) {
      Problem const problem(shape);
      auto const outcomes = compute(provider, problem);
      CHECK(exact_mismatches(provider, outcomes[0].c, problem) == "");
      CHECK(outcomes[0].guard_intact);
    });
  }
}

TEST_CASE("the largest tiles of the Kokkos kernel are exact", "[gemm]") {
  // so many that a host's threads do not ask for smaller ones
  Index const threads = host_reaches_memory ? ExecutionSpace().concurrency() : 1;
  for (Transpose const a : transposes)
    for (Transpose const b : transposes) {
      Problem const problem({265, threads * 384, 257, a, b, Write::add, Storage::fp32, Storage::fp32});
      CHECK(exact_mismatches(GemmProvider::kokkos, compute(GemmProvider::kokkos, problem)[0].c, problem) == "");
    }
}

TEST_CASE("the Kokkos kernel gives a row of C the same bits however many rows there are", "[gemm]") {
  Index const few = 66, many = 600, n = 130, k = 1600; // other tiles, and more than one block of k
  for (Transpose const a : transposes)
    for (auto const [inputs, output] : storages) {
      Problem large({many, n, k, a, Transpose::yes, Write::overwrite, inputs, output});
      Problem small({few, n, k, a, Transpose::yes, Write::overwrite, inputs, output});
      for (Index row = 0; row < few; ++row)
        for (Index i = 0; i < k; ++i) {
          auto const at = [&](Index rows) {
            return static_cast<std::size_t>(a == Transpose::no ? row * k + i : i * rows + row);
          };
          small.a[at(few)] = large.a[at(many)];
        }
      for (Problem* const problem : {&large, &small}) problem->scale(1.0f / 127, 0.0f);
      std::vector<double> all = compute(GemmProvider::kokkos, large)[0].c;
      all.resize(static_cast<std::size_t>(few * n));
      CHECK(compute(GemmProvider::kokkos, small)[0].c == all);
    }
}

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

TEST_CASE("only cuBLASLt is allowed to store a product before it adds it, and only to a C of 16 bits", "[gemm]") {
  GemmShape shape{7, 5, 3, Transpose::no, Transpose::no, Write::add, Storage::bf16, Storage::bf16};
  for (GemmProvider const provider :
       {GemmProvider::onednn, GemmProvider::blas, GemmProvider::kokkos_kernels, GemmProvider::kokkos})
    CHECK(!stores_twice(provider, shape));
  for (GemmProvider const provider : {GemmProvider::cublaslt, GemmProvider::cublaslt_tf32}) {
    CHECK(stores_twice(provider, shape));
    shape.output = Storage::fp32;
    CHECK(!stores_twice(provider, shape));
    shape.output = Storage::bf16;
    shape.mode = Write::overwrite;
    CHECK(!stores_twice(provider, shape));
    shape.mode = Write::add;
  }
}

TEST_CASE("the bound of two roundings holds where a product is stored before it is added, and that of one does not",
          "[gemm]") {
  for (Storage const storage : {Storage::bf16, Storage::fp16}) {
    GemmShape const shape{61, 67, 71, Transpose::no, Transpose::no, Write::add, storage, storage};
    Problem const problem(shape);
    std::vector<double> const exact = expected(problem);
    std::vector<double> const sum = with_types(shape, [&]<class Input, class Output>() {
      std::vector<double> const added = test::widened(test::stored<Output>(problem.c));
      std::vector<float> stored_before;
      for (std::size_t i = 0; i < exact.size(); ++i)
        stored_before.push_back(to_float(from_float<Output>(static_cast<float>(exact[i] - added[i]))) +
                                static_cast<float>(added[i]));
      return test::widened(test::stored<Output>(stored_before));
    });
    std::span<double const> const found(sum), wanted(exact);
    CHECK(test::mismatches(found, wanted, storing_bound(GemmProvider::cublaslt, problem, 0)) == "");
    ErrorBound const once = storing_bound(GemmProvider::kokkos, problem, 0);
    bool is_beyond = false; // compared here: it is no error of a kernel
    for (std::size_t i = 0; i < sum.size(); ++i)
      is_beyond = is_beyond || std::abs(found[i] - wanted[i]) > once(wanted[i]);
    CHECK(is_beyond);
  }
}

TEST_CASE("products without elements or without terms leave C, or zero it", "[gemm]") {
  for (auto const [m, n, k] : {Extents{0, 5, 3}, {5, 0, 3}, {5, 3, 0}, {0, 0, 0}, {135, 130, 0}}) {
    for_each_form(m, n, k, [](GemmProvider provider, GemmShape const& shape) {
      CHECK(gemm_scratch_bytes(provider, shape) == 0);
      Problem const problem(shape);
      CHECK(exact_mismatches(provider, compute(provider, problem)[0].c, problem) == "");
    });
  }
}

TEST_CASE("overwriting ignores what C held, even NaN", "[gemm]") {
  for (Index const n : {1, 37, 1024}) {
    for_each_form(29, n, 11, [](GemmProvider provider, GemmShape const& shape) {
      if (shape.mode == Write::add) return;
      Problem problem(shape);
      std::ranges::fill(problem.c, std::numeric_limits<float>::quiet_NaN());
      CHECK(exact_mismatches(provider, compute(provider, problem)[0].c, problem) == "");
    });
  }
}

TEST_CASE("products are added up in fp32 throughout, whatever the inputs are stored in", "[gemm]") {
  // A sum of k + 1 terms of at most 1 in any order: at most k + 1 roundings, each of at most 2^-24 of a partial sum of
  // at most k + 1. A conversion to bf16 on the way (8 bits) would err by about sqrt(k) 2^-9 / 3 = 5e-3.
  Index const k = 61;
  double const bound = static_cast<double>((k + 1) * (k + 1)) * 0x1p-24; // 2.3e-4
  for (Index const n : {67, 1024}) {
    for_each_form(71, n, k, [&](GemmProvider provider, GemmShape const& shape) {
      if (rounds_fp32(provider) && shape.inputs == Storage::fp32) return;
      Problem problem(shape);
      problem.scale(1.0f / 127, 1.0f / 127);
      auto const outcome = compute(provider, problem)[0].c;
      auto const wanted = expected(problem);
      CHECK(test::mismatches(std::span<double const>(outcome), std::span<double const>(wanted),
                             storing_bound(provider, problem, bound)) == "");
    });
  }
}

TEST_CASE("repeating a product gives the same bits", "[gemm]") {
  for_each_form(259, 263, 269, [](GemmProvider provider, GemmShape const& shape) {
    Problem problem(shape);
    problem.scale(1.0f / 127, 1.0f / 127);
    auto const outcomes = compute(provider, problem, 3);
    for (Outcome const& outcome : outcomes) CHECK(outcome.c == outcomes[0].c);
  });
}

TEST_CASE("a product counts 2 m n k operations, one launch, and those of conversions to fp32", "[gemm]") {
  for_each_form(13, 37, 101, [](GemmProvider provider, GemmShape const& shape) {
    counters() = {};
    compute(provider, Problem(shape));
    bool const converted = describe_gemm(provider, shape.inputs).ends_with("as fp32");
    bool const add = shape.mode == Write::add;
    int const conversions_of_c = shape.output == Storage::fp32 ? 0 : add ? 2 : 1;
    CHECK(total_launches(counters()) == static_cast<unsigned>(gemm_launches(provider, shape)));
    CHECK(total_launches(counters()) == (converted ? 3u + static_cast<unsigned>(conversions_of_c) : 1u));
    CHECK(counters().flops[Phase::gemm] == 2u * 13u * 37u * 101u);
    CHECK(model_flops(counters()) == shape.flops());
    std::uint64_t const inputs = converted ? 4 : bytes_per_value(shape.inputs),
                        output = converted ? 4 : bytes_per_value(shape.output);
    CHECK(counters().bytes[Phase::gemm] == inputs * (13u * 101u + 101u * 37u) + output * (add ? 2u : 1u) * 13u * 37u);
    if (!converted) CHECK(counters().bytes[Phase::gemm] == shape.bytes());
  });
}

TEST_CASE("one scratch of the largest size serves products of all shapes", "[gemm]") {
  ExecutionSpace const exec;
  GemmShape const small{31, 29, 37, Transpose::no, Transpose::yes, Write::overwrite};
  GemmShape const large{61, 300, 300, Transpose::yes, Transpose::no, Write::add};
  for (GemmProvider const provider : built_gemm_providers()) {
    MemoryLedger ledger;
    std::uint64_t const bytes = std::max(gemm_scratch_bytes(provider, small), gemm_scratch_bytes(provider, large));
    Allocation const scratch(ledger, MemoryCategory::buffers, "scratch", bytes);
    Allocation const data(ledger, MemoryCategory::buffers, "data", 3 * 300 * 300 * sizeof(float));
    Gemm gemm(provider, scratch.bytes());
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (GemmShape const& s : {small, large}) {
        Arena arena(data.bytes());
        auto const a = s.a == Transpose::no ? arena.matrix<float>("A", s.m, s.k) : arena.matrix<float>("A", s.k, s.m);
        auto const b = s.b == Transpose::no ? arena.matrix<float>("B", s.k, s.n) : arena.matrix<float>("B", s.n, s.k);
        auto const c = arena.matrix<float>("C", s.m, s.n);
        for (auto const& matrix : {a, b, c}) Kokkos::deep_copy(exec, matrix, 1.0f);
        gemm(exec, s.a, a, s.b, b, c, s.mode);
        auto const result = copy_to_host(exec, Vector<float>(c.data(), c.size()), "test");
        auto const wanted = static_cast<float>(s.k + (s.mode == Write::add ? 1 : 0));
        CHECK(std::ranges::count(result, wanted) == static_cast<std::ptrdiff_t>(result.size()));
      }
    }
  }
}

TEST_CASE("too small a scratch is refused", "[gemm]") {
  GemmShape const shape{64, 64, 64, Transpose::yes, Transpose::yes, Write::add};
  ExecutionSpace const exec;
  for (GemmProvider const provider : built_gemm_providers()) {
    if (gemm_scratch_bytes(provider, shape) == 0) continue;
    Gemm gemm(provider);
    Matrix<float> const none(nullptr, 64, 64);
    CHECK_THROWS_MATCHES(gemm(exec, shape.a, none, shape.b, none, none, shape.mode), Error,
                         MessageMatches(ContainsSubstring("was given 0")));
  }
  for_each_form(17, 19, 23, [&](GemmProvider provider, GemmShape const& form) {
    std::uint64_t const bytes = gemm_scratch_bytes(provider, form);
    if (bytes == 0) return;
    Kokkos::View<std::byte*, MemorySpace> const short_by_one("test", bytes - 1);
    Gemm gemm(provider, Vector<std::byte>(short_by_one.data(), bytes - 1));
    with_types(form, [&]<class Input, class Output>() {
      Matrix<Input> const none(nullptr, 17, 23), right(nullptr, 23, 19);
      if (form.a == Transpose::yes || form.b == Transpose::yes) return;
      CHECK_THROWS_AS(gemm(exec, form.a, none, form.b, right, Matrix<Output>(nullptr, 17, 19), form.mode), Error);
    });
  });
}
