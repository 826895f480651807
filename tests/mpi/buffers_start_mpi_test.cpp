// What a program finds out about devices and MPI when it starts.

#include "comm/execution/buffers_start.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/message_proof.hpp"
#include "comm/execution/part_proof.hpp"
#include "core/error.hpp"
#include "core/host_copy.hpp"
#include "support/played_export.hpp"
#include "support/views.hpp"
#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Fault = test::PlayedExport::Fault;

TEST_CASE("the proof's messages arrive at the next rank, in one piece and in several", "[mpi][buffers]") {
  Communicator const world = Communicator::world();
  DeviceMessages const found = prove_device_messages(world, ExecutionSpace());
  if (!host_reaches_memory && !found.proved)
    SKIP(found.finding); // this MPI would read the pattern as the host's memory
  for (Index const elements : {0, 1, 2, 3, 257, 300'000})
    CHECK(Impl::wrong_elements(world, ExecutionSpace(), elements) == 0);
}

TEST_CASE("what MPI makes wrong of the proof's messages is found", "[mpi][buffers]") {
  Communicator const world = Communicator::world();
  DeviceMessages const found = prove_device_messages(world, ExecutionSpace());
  if (!host_reaches_memory && !found.proved) SKIP(found.finding);
  ExecutionSpace const exec;
  Index const elements = 257;
  Rank const rank = world.rank(), previous = (rank + world.size() - 1) % world.size();
  Impl::ProofLayout const pieces = Impl::ProofLayout::in_pieces(elements), one = Impl::ProofLayout::in_one(elements);
  DeviceTensor<std::uint32_t> const out(pieces.extent(), 0), in(pieces.extent(), 0);
  Impl::ProofEnd const sent{pieces, out.vector()}, received{pieces, in.vector()};
  auto const wrong_if_sent_as = [&](Impl::ProofLayout const& layout) {
    Impl::write_proof(exec, sent, rank, 0);
    Impl::write_proof(exec, received, rank, 0);
    exec.fence("trainstone::test: MPI touches the memory");
    Impl::ProofExchange(world, {layout, sent.memory}, received).run();
    return Impl::count_wrong(exec, received, previous, rank, 0);
  };
  CHECK(wrong_if_sent_as(pieces) == 0);
  // the second turn's values do not arrive
  CHECK(Impl::count_wrong(exec, received, previous, rank, 1) == received.layout.extent());
  // pieces in another order
  auto const [first, second, third] = pieces.pieces();
  CHECK(third.end < second.begin);
  CHECK(second.end < first.begin);
  CHECK(wrong_if_sent_as(one) > elements / 2);
  // nothing arrives (a rank that is its own neighbour has all)
  Impl::write_proof(exec, received, rank, 0);
  CHECK(Impl::count_wrong(exec, received, previous, rank, 0) == (rank == previous ? 0 : elements));
  // one element, and one place between pieces
  CHECK(wrong_if_sent_as(pieces) == 0);
  for (Index const place : {second.begin, third.end}) {
    Vector<std::uint32_t> const element(received.memory.data() + place, 1);
    auto values = copy_to_host<std::uint32_t>(exec, element, "trainstone::test: one is changed");
    values[0] ^= 1u;
    copy_from_host<std::uint32_t>(exec, values, element, "trainstone::test: one is changed");
  }
  CHECK(Impl::count_wrong(exec, received, previous, rank, 0) == 2);
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

TEST_CASE("the proof of neighbours' memory finds what is not there, and says which", "[mpi][buffers]") {
  test::skip_on_devices("which it plays");
  Communicator world = Communicator::world();
  ExecutionSpace const exec;
  CHECK(prove_neighbour_memory(world, exec).proved); // of the host: nothing is tried
  CHECK(describe_buffers(world) == "host");
  CHECK(Impl::wrong_in_parts(world, exec, 257) == 0);
  test::PlayedExport const played;
  CHECK(prove_neighbour_memory(world, exec).proved);
  CHECK(test::PlayedExport::allocated() == 0); // the proof's memory is not kept
  CHECK(describe_buffers(world) == (world.size() > 1 ? "host, node memory by IPC" : "host")); // alone it maps nothing
  world.use_neighbours_memory(false);
  CHECK_FALSE(world.split(0).reaches_neighbours());
  CHECK(describe_buffers(world) == "host");
  if (world.size() == 1) return;
  auto const finding_with = [&](Fault fault) {
    FaultOfOne const one(world, fault);
    NeighbourMemory const found = prove_neighbour_memory(world, exec);
    CHECK_FALSE(found.proved);
    return found.finding;
  };
  CHECK_THAT(finding_with(Fault::allocates_nothing), ContainsSubstring("played device: no memory"));
  CHECK_THAT(finding_with(Fault::maps_nothing), ContainsSubstring("played device: cannot map"));
  CHECK_THAT(finding_with(Fault::maps_something_else), ContainsSubstring("of 3145728 elements are wrong there"));
  // who maps something else reads nothing of its neighbours, and they read nothing that it writes there
  FaultOfOne const one(world, Fault::maps_something_else);
  bool const faulty = world.rank() + 1 == world.size();
  CHECK(Impl::wrong_in_parts(world, exec, 257) == (faulty ? 257 * (world.size() - 1) : 257));
}
