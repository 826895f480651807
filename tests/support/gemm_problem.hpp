#pragma once

// Matrix products to try on every provider: whole numbers whose products are exact, computed in a scratch of exactly
// the predicted size, and what a C of any type may then hold. Owns the choice and the bounds; tests say what has to be
// equal.

#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "core/memory.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/reference/reference.hpp"
#include "support/compare.hpp"
#include "support/storage.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trainstone::test {

inline constexpr Transpose transposes[] = {Transpose::no, Transpose::yes};
inline constexpr Write modes[] = {Write::overwrite, Write::add};

struct StoragePair {
  Storage inputs, output;
};
inline constexpr StoragePair storages[] = {{Storage::fp32, Storage::fp32},
                                           {Storage::bf16, Storage::bf16},
                                           {Storage::bf16, Storage::fp32},
                                           {Storage::fp16, Storage::fp16},
                                           {Storage::fp16, Storage::fp32}};

/// Whole numbers in -127 ... 127, scattered over the positions: for k <= 1039 every sum of their products stays below
/// 2^24 and is exact in fp32, whatever the order. bf16 and fp16 hold them exactly.
inline std::vector<float> whole_numbers(Index count, std::uint64_t seed) {
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

struct GemmProblem {
  GemmShape shape;
  std::vector<float> a, b, c; // c before the call

  /// Those that fp16 stores are scaled by 2^-4 (c by 2^-8), so that C stays within fp16's range for k <= 1000.
  explicit GemmProblem(GemmShape const& s)
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

inline constexpr std::byte guard{0xa5};
inline constexpr std::size_t guard_bytes = 4096;

struct Outcome {
  std::vector<double> c;
  bool guard_intact;
};

template <class Input, class Output>
std::vector<Outcome> compute_stored(GemmProvider provider, GemmProblem const& problem, int times) {
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
  copy_from_host<Input>(exec, stored<Input>(problem.a), Vector<Input>(a.data(), a.size()), "test");
  copy_from_host<Input>(exec, stored<Input>(problem.b), Vector<Input>(b.data(), b.size()), "test");
  Vector<std::byte> const behind_scratch(scratch.bytes().data() + scratch_bytes, guard_bytes);
  copy_from_host<std::byte>(exec, std::vector<std::byte>(guard_bytes, guard), behind_scratch, "test");

  Gemm gemm(provider, Vector<std::byte>(scratch.bytes().data(), scratch_bytes));
  std::vector<Outcome> outcomes;
  for (int i = 0; i < times; ++i) {
    copy_from_host<Output>(exec, stored<Output>(problem.c), c_elements, "test");
    gemm(exec, s.a, a, s.b, b, c, s.mode);
    auto const bytes = copy_to_host(exec, behind_scratch, "test");
    bool const intact = std::ranges::all_of(bytes, [](std::byte byte) { return byte == guard; });
    outcomes.push_back({widened(copy_to_host(exec, c_elements, "test")), intact});
  }
  return outcomes;
}

/// Computes `times` times from the same start in a scratch of exactly the predicted size, followed by guard bytes.
inline std::vector<Outcome> compute(GemmProvider provider, GemmProblem const& problem, int times = 1) {
  return with_types(problem.shape, [&]<class Input, class Output>() {
    return compute_stored<Input, Output>(provider, problem, times);
  });
}

/// op(A) op(B), added to C if the shape says so, of the matrices as they are stored.
inline std::vector<double> expected(GemmProblem const& problem) {
  return with_types(problem.shape, [&]<class Input, class Output>() {
    GemmShape const& s = problem.shape;
    std::vector<double> c(problem.c.size());
    if (s.mode == Write::add) c = widened(stored<Output>(problem.c));
    reference::gemm({s.m, s.n, s.k, s.a == Transpose::yes, s.b == Transpose::yes}, widened(stored<Input>(problem.a)),
                    widened(stored<Input>(problem.b)), c);
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
inline bool stores_twice(GemmProvider provider, GemmShape const& shape) {
  return shape.mode == Write::add && shape.output != Storage::fp32 && rounds_before_adding(provider);
}

using ErrorBound = std::function<double(double)>;

/// Of a result that is off by `error` in fp32 and stored in C, as often as the provider does that.
inline ErrorBound storing_bound(GemmProvider provider, GemmProblem const& problem, double error) {
  double addend = 0; // the largest of what C held
  for (float const value : problem.c) addend = std::max(addend, static_cast<double>(std::abs(value)));
  bool const twice = stores_twice(provider, problem.shape);
  return with_types(problem.shape, [&]<class Input, class Output>() -> ErrorBound {
    if (twice) return added_after_storing_within<Output>(error, addend);
    return stored_within<Output>(error);
  });
}

/// Compares with the exact result as C stores it; within two roundings where it was stored twice.
inline std::string exact_mismatches(GemmProvider provider, std::vector<double> const& actual,
                                    GemmProblem const& problem) {
  std::vector<double> const exact = expected(problem);
  if (stores_twice(provider, problem.shape))
    return mismatches(std::span<double const>(actual), std::span<double const>(exact),
                      storing_bound(provider, problem, 0));
  std::vector<double> const wanted = with_types(problem.shape, [&]<class Input, class Output>() {
    return widened(stored<Output>({exact.begin(), exact.end()}));
  });
  return mismatches(std::span<double const>(actual), std::span<double const>(wanted), 0.0);
}

} // namespace trainstone::test
