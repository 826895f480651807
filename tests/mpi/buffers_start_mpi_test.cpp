// What a program finds out about devices and MPI when it starts.

#include "comm/buffers_start.hpp"

#include "comm/buffers.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the pattern of every rank arrives at the next one", "[mpi][buffers]") {
  Communicator const world = Communicator::world();
  DeviceMessages const found = prove_device_messages(world, ExecutionSpace());
  if (!host_reaches_memory && !found.proved)
    SKIP(found.finding); // this MPI would read the pattern as the host's memory
  for (Index const elements : {0, 1, 257, 300'000}) CHECK(Impl::wrong_elements(world, ExecutionSpace(), elements) == 0);
}

TEST_CASE("device memory is chosen where it is proved, and refused with the reason where it is not", "[mpi][buffers]") {
  Communicator const world = Communicator::world();
  DeviceMessages const found = prove_device_messages(world, ExecutionSpace());
  if (host_reaches_memory) {
    CHECK_FALSE(found.proved);
    CHECK(devices() == 0);
  }
  CHECK(choose_buffers("auto", {true, ""}) == MessageBuffers::device);
  CHECK(choose_buffers("auto", {false, "no"}) == resolve_buffers("auto"));
  CHECK(choose_buffers("staged", {true, ""}) == MessageBuffers::staged);
  CHECK_THROWS_AS(choose_buffers("device", {false, "because it is not"}), InputError);
  if (!host_reaches_memory)
    CHECK_THROWS_WITH(choose_buffers("device", {false, "because it is not"}), ContainsSubstring("because it is not"));
}
