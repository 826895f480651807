// Collectives that a thread keeps going while the caller computes.

#include "comm/execution/control.hpp"
#include "comm/execution/execution_queue.hpp"
#include "core/launch.hpp"
#include "support/many_collectives.hpp"
#include "support/traffic.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <thread>

using namespace trainstone;

namespace {

struct AddOne {
  Vector<float> values;
  KOKKOS_FUNCTION void operator()(Index i) const { values(i) += 1; }
};

constexpr Index long_vector = 100'000;

/// Kernels of the caller's own, on its own instance.
void compute(ExecutionSpace const& exec, Vector<float> values) {
  Kernel const kernel{"trainstone::test::compute", Phase::other, long_vector, 0};
  launch_for(kernel, Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<Index>>(exec, 0, long_vector),
             AddOne{values});
}

} // namespace

TEST_CASE("a thread brings collectives to their end without the caller", "[mpi][thread]") {
  Communicator communicator = Communicator::world();
  Index const elements = GENERATE(1009, 100'000); // the second: kernels for all of Kokkos' threads
  bool const staged = GENERATE(false, true);
  communicator.use_buffers(staged ? MessageBuffers::staged : usual_buffers(communicator, ExecutionSpace()),
                           ExecutionSpace());
  Problem const problem = test::problems(communicator, Collective::all_reduce, elements)[0];
  test::ManyCollectives many(communicator, problem, std::uint64_t{1} << 26);
  Traffic predicted;
  for (Execution const& execution : many.executions)
    predicted += predict_traffic(execution.schedule(), problem.topology, sizeof(float));
  test::DeviceTensor<float> const values(long_vector, 0);
  ExecutionSpace const exec;
  for (int repeat = 0; repeat < 3; ++repeat) {
    many.fill(problem, communicator.rank());
    barrier(communicator);
    comm_counters() = {};
    counters() = {};
    ExecutionQueue queue(Progress::by_thread);
    for (Execution& execution : many.executions) queue.start(execution);
    for (int i = 0; i < 20; ++i) compute(exec, values.vector());
    while (queue.in_flight() > 0) std::this_thread::yield();
    queue.wait_all(); // adds up what the thread has counted
    CHECK(comm_counters().total(Purpose::training) == predicted);
    CHECK(counters().flops[Phase::other] == 20u * long_vector);
    check_results(many, problem, communicator.rank());
  }
  CHECK(values.values() == std::vector<float>(long_vector, 60));
}

TEST_CASE("a queue with a thread may end without any collective", "[mpi][thread]") {
  ExecutionQueue queue(Progress::by_thread);
  CHECK(queue.progress());
}
