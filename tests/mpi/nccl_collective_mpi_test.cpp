// NCCL as a contestant: what is asked of it, and where its result is looked for. MPI plays the library, with two
// buffers: what a call reads is copied first, so that wrong places show.

#include "comm/execution/mpi.hpp"
#include "comm/measurement/collective_contest.hpp"
#include "comm/measurement/nccl_collective.hpp"
#include "core/error.hpp"

#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;

namespace {

MPI_Op mpi_operation(Operation operation) {
  return operation == Operation::sum ? MPI_SUM : operation == Operation::max ? MPI_MAX : MPI_MIN;
}

/// nccl.h: count is of the elements that a rank sends (all_gather) or receives (reduce_scatter), else of all.
void call_mpi(void* joined, NcclCalls::Call const& call, ExecutionSpace const&) {
  MPI_Comm const comm = *static_cast<MPI_Comm*>(joined);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  std::size_t const blocks = call.collective == Collective::reduce_scatter ? static_cast<std::size_t>(ranks) : 1;
  std::vector<std::byte> const from(call.from, call.from + blocks * call.count * size_of(call.type));
  auto const count = static_cast<int>(call.count);
  MPI_Datatype const type = Impl::mpi_type(call.type);
  MPI_Op const operation = mpi_operation(call.operation);
  switch (call.collective) {
  case Collective::all_reduce: MPI_Allreduce(from.data(), call.to, count, type, operation, comm); break;
  case Collective::reduce_scatter: MPI_Reduce_scatter_block(from.data(), call.to, count, type, operation, comm); break;
  case Collective::all_gather: MPI_Allgather(from.data(), count, type, call.to, count, type, comm); break;
  case Collective::reduce: MPI_Reduce(from.data(), call.to, count, type, operation, call.root, comm); break;
  case Collective::broadcast: // of the root's alone
    if (rank == call.root) std::memcpy(call.to, from.data(), from.size());
    MPI_Bcast(call.to, count, type, call.root, comm);
    break;
  default: FAIL("NCCL is not called for this");
  }
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Who has made it is in it.
NcclCalls::Id make_id() { return {static_cast<std::byte>(world_rank())}; }
NcclCalls::Id never_begin_on_rank_0() {
  if (world_rank() == 0) throw Error("ncclGetUniqueId: unhandled system error");
  return make_id();
}

int joined_now = 0; ///< communicators of this rank that live

std::shared_ptr<void> join_by_mpi(NcclCalls::Id const& id, Rank rank, Rank ranks) {
  if (id != NcclCalls::Id{}) throw Error("this is not the id of rank 0");
  auto joined = std::unique_ptr<MPI_Comm, void (*)(MPI_Comm*)>(new MPI_Comm, [](MPI_Comm* left) {
    MPI_Comm_free(left);
    delete left;
    --joined_now;
  });
  MPI_Comm_split(MPI_COMM_WORLD, ranks, rank, joined.get());
  ++joined_now;
  return joined;
}
std::shared_ptr<void> join_but_rank_0(NcclCalls::Id const& id, Rank rank, Rank ranks) {
  auto joined = join_by_mpi(id, rank, ranks);
  if (rank == 0) throw Error("ncclCommInitRank: unhandled system error");
  return joined;
}
/// Every sum is that of one rank.
void forget_neighbours(void*, NcclCalls::Call const& call, ExecutionSpace const&) {
  if (call.from != call.to) std::memmove(call.to, call.from, call.count * size_of(call.type));
}

std::string version() { return "2.0.0"; }

constexpr NcclCalls by_mpi{version, make_id, join_by_mpi, call_mpi};
constexpr NcclCalls that_does_not_begin{version, never_begin_on_rank_0, join_by_mpi, call_mpi};
constexpr NcclCalls that_does_not_join{version, make_id, join_but_rank_0, call_mpi};
constexpr NcclCalls that_forgets{version, make_id, join_by_mpi, forget_neighbours};

Problem problem_of(Collective collective, Index elements, Communicator const& communicator) {
  Rank const root = communicator.size() - 1;
  return even_problem(collective, elements, communicator.topology(), root, 1);
}

constexpr Collective measured[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                   Collective::broadcast, Collective::reduce};

Index wrong_elements(Communicator& communicator, Problem const& problem, ElementType type, Operation operation) {
  NcclCommunicator const nccl(communicator);
  std::vector<Contestant> const contestants{{.algorithm = {}, .provider = CollectiveProvider::nccl}};
  MemoryLedger ledger;
  MeasuredMemory const memory(ExecutionSpace(), communicator, ledger, "test",
                              contest_bytes(communicator.buffers(), problem, communicator.rank(), type, contestants),
                              false);
  ContestOptions const options{.timing = {.warmup_calls = 1, .samples = 2, .calls = 1}, .nccl = &nccl};
  auto const results =
      run_contest(ExecutionSpace(), communicator, problem, operation, type, contestants, memory.buffers(), options);
  CHECK(results.front().samples.seconds.size() == 2);
  return results.front().wrong;
}

} // namespace

TEST_CASE("NCCL is asked for blocks and finds them where a problem has them", "[mpi][contest][nccl]") {
  test::skip_on_devices("MPI plays NCCL on the host's memory");
  Communicator communicator = Communicator::world();
  PlayedNccl::Scoped const played(played_nccl(), [] { return &by_mpi; });
  for (Collective const collective : measured)
    for (ElementType const type : {ElementType::float32, ElementType::float64, ElementType::int32, ElementType::int64})
      for (Operation const operation : {Operation::sum, Operation::max, Operation::min}) {
        INFO(to_string(collective) << " " << to_string(type) << " " << to_string(operation));
        Problem const problem = problem_of(collective, 24 * communicator.size(), communicator);
        CHECK(wrong_elements(communicator, problem, type, operation) == 0);
      }
}

TEST_CASE("a wrong result of NCCL is found", "[mpi][contest][nccl]") {
  test::skip_on_devices("MPI plays NCCL on the host's memory");
  Communicator communicator = Communicator::world();
  if (communicator.size() == 1) return; // there is no neighbour to forget
  PlayedNccl::Scoped const played(played_nccl(), [] { return &that_forgets; });
  for (Collective const collective : measured) {
    INFO(to_string(collective));
    Problem const problem = problem_of(collective, 24 * communicator.size(), communicator);
    CHECK(wrong_elements(communicator, problem, ElementType::float32, Operation::sum) > 0);
  }
}

TEST_CASE("NCCL is measured where it has a call, and says why it is not", "[mpi][contest][nccl]") {
  Communicator const communicator = Communicator::world();
  for (Collective const collective : collectives) {
    INFO(to_string(collective));
    if (has_servers(collective) && communicator.size() < 2) continue;
    bool const has_call = std::ranges::find(measured, collective) != std::end(measured);
    Index const even = 24 * communicator.size();
    std::string const reason = nccl_refusal(problem_of(collective, has_data(collective) ? even : 0, communicator));
    CHECK(reason.empty() == has_call);
    if (!has_call) CHECK_THAT(reason, ContainsSubstring(std::string(to_string(collective))));
  }
  if (communicator.size() > 1) {
    Index const uneven = 24 * communicator.size() + 1;
    CHECK(nccl_refusal(problem_of(Collective::all_reduce, uneven, communicator)).empty());
    for (Collective const collective : {Collective::all_gather, Collective::reduce_scatter})
      CHECK_THAT(nccl_refusal(problem_of(collective, uneven, communicator)), ContainsSubstring("blocks of one size"));
  }
}

TEST_CASE("if NCCL fails on one rank, all know it, and nobody keeps a communicator", "[mpi][contest][nccl]") {
  test::skip_on_devices("it plays NCCL");
  Communicator const communicator = Communicator::world();
  CHECK(nccl_calls() == nullptr);
  {
    PlayedNccl::Scoped const played(played_nccl(), [] { return &that_does_not_begin; });
    CHECK_THROWS_MATCHES(NcclCommunicator(communicator), CollectiveError,
                         Message("rank 0 cannot begin with NCCL: ncclGetUniqueId: unhandled system error"));
  }
  PlayedNccl::Scoped const played(played_nccl(), [] { return &that_does_not_join; });
  CHECK_THROWS_MATCHES(NcclCommunicator(communicator), CollectiveError,
                       Message("rank 0 cannot join the others by NCCL: ncclCommInitRank: unhandled system error"));
  CHECK(joined_now == 0);
  CHECK(nccl_calls()->version() == "2.0.0");
}

TEST_CASE("ranks of a node that share a device are found", "[contest][nccl]") {
  Topology const two_nodes = Topology::block(4, 2);
  CHECK(find_shared_device({"", "", "", ""}, two_nodes).empty());
  CHECK(find_shared_device({"GPU 0", "GPU 1", "GPU 0", "GPU 1"}, two_nodes).empty());
  CHECK(find_shared_device({"GPU 0", "GPU 1", "GPU 2", "GPU 2"}, two_nodes) == "ranks 2 and 3 share a device");
  CHECK(find_shared_device({"GPU 0", "GPU 1", "GPU 0", "GPU 1"}, Topology::one_node(4)) ==
        "ranks 0 and 2 share a device");
}
