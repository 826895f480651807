// Every kernel under the eyes of Kokkos Tools: labels, the given instance, and the launch wrapper.

#include "core/launch.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/flash_attention.hpp"
#include "kernels/bias_gelu.hpp"
#include "kernels/cast.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/initialize.hpp"
#include "kernels/layernorm.hpp"
#include "kernels/layernorm_parts.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/positions.hpp"
#include "kernels/residual.hpp"
#include "support/instances.hpp"
#include "support/tools_guard.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <thread>

using namespace trainstone;
using namespace trainstone::test;

namespace {

constexpr Index batch = 2, sequence = 3, rows = batch * sequence, heads = 2, channels = 4, vocab = 5;

/// One of each tensor that a kernel may ask for.
struct Tensors {
  DeviceTensor<float> x{rows * channels, 1.0F}, y{rows * channels, 1.0F}, qkv{rows * 3 * channels, 1.0F},
      d_qkv{rows * 3 * channels, 1.0F}, p{batch * heads * sequence * sequence, 1.0F}, kept{rows * heads, 0.0F},
      c{channels, 1.0F}, d_c{channels, 1.0F}, e_c{channels, 1.0F}, mean{rows, 0.0F}, rstd{rows, 1.0F},
      table{vocab * channels, 1.0F}, positions{sequence * channels, 1.0F}, logits{rows * vocab, 1.0F},
      block{norm_block, 1.0F}, block_sums{3 * 2 * channels, 0.0F};
  DeviceTensor<std::int32_t> tokens{rows, 0}, token{std::vector<std::int32_t>{0, -1, -1, -1, -1, -1}},
      order{std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}}, begin{std::vector<std::int32_t>{0, 6, 6, 6, 6, 6, 6}};
  DeviceTensor<double> sums{1, 0.0}, result{1, 0.0}, pairs{2 * rows, 1.0};
  DeviceTensor<std::int64_t> count{1, 0};
  DeviceTensor<bf16> narrow{norm_block, bf16{}};
};

void run_row_kernels(ExecutionSpace const& exec, Tensors const& t) {
  Matrix<float> const x = t.x.matrix(rows, channels), y = t.y.matrix(rows, channels);
  embedding_forward<float>(exec, t.tokens.vector(), t.table.matrix(vocab, channels),
                           t.positions.matrix(sequence, channels), sequence, x);
  embedding_backward<float>(exec, {t.order.vector(), t.begin.vector(), t.token.vector()}, x, sequence,
                            t.table.matrix(vocab, channels), t.positions.matrix(sequence, channels), Write::add);
  embedding_lookup<float, float>(exec, t.tokens.vector(), 0, t.table.matrix(vocab, channels), Write::overwrite, x);
  embedding_add_positions<float>(exec, x, t.positions.matrix(sequence, channels), sequence, y);
  layernorm_forward<float>(exec, x, t.c.vector(), t.c.vector(), y, t.mean.vector(), t.rstd.vector());
  residual_layernorm_forward<float>(exec, x, x, t.c.vector(), t.c.vector(), t.c.vector(), x, y, t.mean.vector(),
                                    t.rstd.vector());
  layernorm_backward<float>(exec, x, x, t.c.vector(), t.mean.vector(), t.rstd.vector(), y, Write::add, t.d_c.vector(),
                            t.e_c.vector(), Write::overwrite);
  layernorm_block_sums<float>(exec, x, x, t.mean.vector(), t.rstd.vector(), sequence,
                              t.block_sums.matrix(3, 2 * channels));
  layernorm_sum_blocks<float>(exec, t.block_sums.matrix(3, 2 * channels), t.d_c.vector(), t.e_c.vector(), Write::add);
  Matrix<double> const sums = t.pairs.matrix(rows, 2);
  layernorm_sums<float>(exec, x, sums);
  layernorm_of_sums<float>(exec, x, sums, channels, t.c.vector(), t.c.vector(), y, t.mean.vector(), t.rstd.vector());
  layernorm_backward_sums<float>(exec, x, x, t.c.vector(), t.mean.vector(), t.rstd.vector(), sums);
  layernorm_backward_of_sums<float>(exec, x, x, t.c.vector(), t.mean.vector(), t.rstd.vector(), sums, channels, y,
                                    Write::add);
  residual_forward<float>(exec, x, x, t.c.vector(), y);
  take_positions<float, float>(exec, x, batch, 0, y);
  place_positions<float>(exec, x, batch, 0, y);
  add_bias<float>(exec, t.c.vector(), x);
  bias_gelu_forward<float>(exec, t.c.vector(), x, y);
  gelu_backward<float>(exec, x, y);
  bias_backward<float>(exec, x, t.d_c.vector(), Write::add);
}

void run_other_kernels(ExecutionSpace const& exec, Tensors const& t) {
  Tensor4<float> const p = t.p.tensor(batch, heads, sequence, sequence);
  attention_forward<float>(exec, t.qkv.matrix(rows, 3 * channels), heads, p, t.x.matrix(rows, channels));
  attention_backward<float>(exec, t.qkv.matrix(rows, 3 * channels), p, t.x.matrix(rows, channels),
                            t.d_qkv.matrix(rows, 3 * channels));
  Dropout const dropout{.rate = 0.5};
  dropout_forward<float>(exec, dropout, sequence, t.c.vector(), t.x.matrix(rows, channels), {});
  dropout_backward<float>(exec, dropout, sequence, {}, t.x.matrix(rows, channels), t.y.matrix(rows, channels));
  flash_attention_forward<float>(exec, t.qkv.matrix(rows, 3 * channels), batch, heads, dropout, t.kept.vector(),
                                 t.x.matrix(rows, channels));
  flash_attention_backward<float>(exec, t.qkv.matrix(rows, 3 * channels), batch, heads, dropout, t.kept.vector(),
                                  t.x.matrix(rows, channels), t.y.matrix(rows, channels),
                                  t.d_qkv.matrix(rows, 3 * channels));
  cross_entropy_forward<float>(exec, t.logits.matrix(rows, vocab), t.tokens.vector(), vocab, t.mean.vector());
  cross_entropy_backward_fused<float>(exec, t.logits.matrix(rows, vocab), t.tokens.vector(), vocab, 1.0F,
                                      t.mean.vector());
  cross_entropy_maximum<float>(exec, t.logits.matrix(rows, vocab), vocab, Write::overwrite, t.mean.vector());
  cross_entropy_sums<float>(exec, t.logits.matrix(rows, vocab), t.tokens.vector(), 0, vocab, t.mean.vector(),
                            LogitsUse::kept, t.pairs.matrix(rows, 2));
  add_parts<double>(exec, t.pairs.matrix(1, 2 * rows));
  cross_entropy_losses(exec, t.mean.vector(), t.pairs.matrix(rows, 2), t.rstd.vector());
  cross_entropy_gradient<float>(exec, t.logits.matrix(rows, vocab), t.tokens.vector(), 0, vocab, t.mean.vector(),
                                t.pairs.matrix(rows, 2), 1.0F);
  AdamStep const adam{0.1F, 0.9F, 0.9F, 1e-8F, 0.1F, 1.0F, 1};
  Vector<float> const y = t.y.vector();
  adamw_update<float, float>(exec, t.x.vector(), y, t.x.vector(), t.x.vector(), y, adam);
  adam_update<float, float>(exec, t.x.vector(), y, t.x.vector(), t.x.vector(), y, adam);
  sgd_update<float, float>(exec, t.x.vector(), y, t.x.vector(), y, {0.1F, 0.9F, 0.1F, 1.0F});
  sgd_update<float, float>(exec, t.x.vector(), y, Vector<float>(), y, {0.1F, 0.0F, 0.1F, 1.0F});
  squared_block_sums<float>(exec, t.block.vector(), t.sums.vector());
  collect_shares(exec, t.sums.matrix(1, t.sums.vector().extent(0)), 0, t.result.vector());
  tree_sum(exec, t.sums.vector(), t.result.vector());
  accumulate(exec, Write::add, t.x.vector(), t.y.vector());
  sum(exec, t.mean.vector(), t.result.vector());
  count_non_finite<float>(exec, t.x.vector(), t.count.vector());
  cast<float, bf16>(exec, t.block.vector(), t.narrow.vector());
  cast<bf16, float>(exec, t.narrow.vector(), t.block.vector());
  normal_fill<float>(exec, 1, 0, 0.02, t.x.vector());
  sum_of_changes(exec, {1, 0, 0.02, 0}, t.x.vector(), t.result.vector());
}

struct DoNothing {
  KOKKOS_FUNCTION void operator()(Index /*i*/) const {}
};
struct CountOne {
  KOKKOS_FUNCTION void operator()(Index /*i*/, double& sum) const { sum += 1; }
};
using Elements = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>;

/// The violations while `body` runs, of a guard on `exec`.
template <class Body>
std::vector<std::string> violations(ExecutionSpace const& exec, Body const& body,
                                    CollectiveInstances collectives = CollectiveInstances::the_given) {
  ToolsGuard const guard(exec, collectives);
  body();
  return guard.violations();
}

} // namespace

TEST_CASE("every kernel has the prefix in its label, runs on the given instance and starts through the wrapper") {
  ExecutionSpace const exec = distinct_instance();
  Tensors const tensors;
  ToolsGuard const guard(exec);
  run_row_kernels(exec, tensors);
  run_other_kernels(exec, tensors);
  INFO(fmt::format("{}", fmt::join(guard.violations(), "\n")));
  CHECK(guard.violations().empty());
  std::set<std::string> const labels(guard.kernels().begin(), guard.kernels().end());
  CHECK(labels.size() == 48); // of 49 launches: the two casts share one
  CHECK(guard.kernels().size() == 49);
}

TEST_CASE("no kernel allocates or fences") {
  Tensors const tensors;
  ExecutionSpace const exec;
  run_other_kernels(exec, tensors); // Kokkos makes its team scratch once
  int events = 0;
  static int* counter;
  counter = &events;
  namespace Tools = Kokkos::Tools::Experimental;
  Tools::EventSet const previous = Tools::get_callbacks();
  Tools::set_begin_fence_callback([](char const*, std::uint32_t, std::uint64_t*) { ++*counter; });
  Tools::set_allocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, char const*, void const*, std::uint64_t) { ++*counter; });
  run_row_kernels(exec, tensors);
  run_other_kernels(exec, tensors);
  Tools::set_callbacks(previous);
  CHECK(events == 0);
}

TEST_CASE("the guard reports what it is there for") {
  ExecutionSpace const exec = distinct_instance();
  auto const one = [](ExecutionSpace const& space) { return Elements(space, 0, 1); };
  CHECK(violations(exec, [&] { launch_for({"trainstone::test::good"}, one(exec), DoNothing()); }).empty());
  CHECK(violations(exec, [&] { launch_for({"test::no_prefix"}, one(exec), DoNothing()); }).size() == 1);
  CHECK(violations(exec, [&] { launch_for({"trainstone::test::other"}, one(ExecutionSpace()), DoNothing()); }).size() ==
        1);
  CHECK(violations(exec, [&] { Kokkos::parallel_for("trainstone::test::direct", one(exec), DoNothing()); }).size() ==
        1);
  CHECK(violations(exec, [&] { exec.fence("because the host reads"); }).empty());
  CHECK(violations(exec, [&] { exec.fence(); }).size() == 1);
  CHECK(!violations(exec, [&] { Kokkos::fence("all"); }).empty());
  CHECK(violations(exec, [&] { Kokkos::View<float*> const view("mine", 3); }).size() >= 1);
  CHECK(violations(exec, [&] { Kokkos::Profiling::ScopedRegion const region("mine"); }).size() == 1);
  CHECK(violations(exec, [&] { Kokkos::Profiling::ScopedRegion const region("trainstone::test"); }).empty());
}

TEST_CASE("the guard knows that collectives, and nothing else, may have instances of their own") {
  ExecutionSpace const exec = distinct_instance(), other;
  auto const kernel = [&](char const* label) {
    return [&, label] { launch_for({label}, Elements(other, 0, 1), DoNothing()); };
  };
  auto const fence = [&](char const* reason) { return [&, reason] { other.fence(reason); }; };
  auto const own = CollectiveInstances::their_own;
  CHECK(violations(exec, kernel("trainstone::comm::reduce"), own).empty());
  CHECK(violations(exec, kernel("trainstone::comm::reduce")).size() == 1);
  CHECK(violations(exec, kernel("trainstone::gelu::forward"), own).size() == 1);
  CHECK(violations(exec, fence("trainstone::comm::wait: neighbours touch it"), own).empty());
  CHECK(!violations(exec, [] { Kokkos::fence("all"); }, own).empty()); // one of every back end
  CHECK(!violations(exec, [] { Kokkos::fence("trainstone::comm::wait: of all instances"); }, own).empty());
}

TEST_CASE("what is called between launches is called after each, and not for the kernels that it starts") {
  ExecutionSpace const exec;
  auto const launch = [&](ExecutionSpace const& space) {
    launch_for({"trainstone::test::for"}, Elements(space, 0, 1), DoNothing());
  };
  std::vector<std::uint64_t> launches_before; // each call
  BetweenLaunches::Scoped const launching(between_launches(), [&] {
    launches_before.push_back(total_launches(counters()));
    launch(exec);
  });
  std::uint64_t const first = total_launches(counters());
  launch(exec);
  CHECK(launches_before == std::vector{first + 1});
  launch_external({"trainstone::test::external"}, exec, [] {});
  CHECK(launches_before == std::vector{first + 1, first + 3});
  Kokkos::View<double, MemorySpace> const result("trainstone::test::result");
  launch_reduce({"trainstone::test::reduce"}, Elements(exec, 0, 3), CountOne(), result);
  CHECK(launches_before == std::vector{first + 1, first + 3, first + 5});
  CHECK(total_launches(counters()) == first + 6);
}

TEST_CASE("kernels are entered in their thread's table, by label, while there is one") {
  ExecutionSpace const exec;
  auto const launch = [&] {
    launch_for({"trainstone::test::for", Phase::other, 3, 8}, Elements(exec, 0, 1), DoNothing());
  };
  KernelTable table;
  launch();
  {
    ThreadKernelTable const entered(&table);
    launch();
    launch();
    launch_external({"trainstone::test::external", Phase::gemm, 5, 7}, exec, [] {});
    if (launches_wait) launch_inline({"trainstone::test::inline"}, exec, [] {});
    std::thread(launch).join();
  }
  launch();
  CHECK(table.size() == (launches_wait ? 3 : 2));
  KernelTimes const& twice = table["trainstone::test::for"];
  CHECK((twice.launches == 2 && twice.flops == 6 && twice.bytes == 16 && twice.seconds > 0));
  KernelTimes const& external = table["trainstone::test::external"];
  CHECK((external.launches == 1 && external.flops == 5 && external.bytes == 7));
}

TEST_CASE("a table of kernels, or counters, within others gives back to those what comes after it") {
  ExecutionSpace const exec;
  auto const launch = [&] { launch_for({"trainstone::test::for"}, Elements(exec, 0, 1), DoNothing()); };
  KernelTable outer_table, inner_table;
  Counters outer, inner;
  {
    ThreadKernelTable const outer_entries(&outer_table);
    ThreadCounters const outer_counts(outer);
    {
      ThreadKernelTable const inner_entries(&inner_table);
      ThreadCounters const inner_counts(inner);
      launch();
    }
    launch();
    launch();
  }
  launch();
  CHECK(inner_table["trainstone::test::for"].launches == 1);
  CHECK(outer_table["trainstone::test::for"].launches == 2);
  CHECK(total_launches(inner) == 1);
  CHECK(total_launches(outer) == 2);
}

TEST_CASE("kernels inside of what is timed as a whole, and those of other threads, are no time between launches") {
  ExecutionSpace const exec;
  auto const launch = [&] { launch_for({"trainstone::test::for"}, Elements(exec, 0, 1), DoNothing()); };
  int calls = 0;
  BetweenLaunches::Scoped const counting(between_launches(), [&] { ++calls; });
  {
    PhaseTimer const collective(Phase::communication);
    launch();
    launch_external({"trainstone::test::external"}, exec, launch);
  }
  CHECK(calls == 0);
  std::thread(launch).join();
  CHECK(calls == 0);
  launch();
  CHECK(calls == 1);
}

TEST_CASE("what is called between launches may throw, and is called again") {
  ExecutionSpace const exec;
  int calls = 0;
  BetweenLaunches::Scoped const failing(between_launches(), [&] {
    ++calls;
    TRAINSTONE_REQUIRE(calls != 1, "the first call fails");
  });
  auto const launch = [&] { launch_for({"trainstone::test::for"}, Elements(exec, 0, 1), DoNothing()); };
  CHECK_THROWS_AS(launch(), Error);
  CHECK_NOTHROW(launch());
  CHECK(calls == 2);
}
