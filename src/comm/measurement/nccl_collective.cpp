#include "comm/measurement/nccl_collective.hpp"

#include "comm/execution/buffers_start.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/node_memory.hpp"
#include "comm/measurement/mpi_collective.hpp"
#include "core/error.hpp"

#include <cstring>
#include <exception>
#include <utility>

#ifdef TRAINSTONE_HAVE_NCCL
#include <nccl.h>
#endif

namespace trainstone {

namespace {

#ifdef TRAINSTONE_HAVE_NCCL

void check_nccl(ncclResult_t code, char const* call) {
  if (code != ncclSuccess)
    throw Error(fmt::format("{}: {} ({})", call, ncclGetErrorString(code), ncclGetLastError(nullptr)));
}

std::string version_of_nccl() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclCalls::Id make_nccl_id() {
  ncclUniqueId made{};
  check_nccl(ncclGetUniqueId(&made), "ncclGetUniqueId");
  NcclCalls::Id id{}; // nvcc 13.0 ends on a vector of ncclUniqueId, a struct without a name
  static_assert(sizeof id == sizeof made);
  std::memcpy(id.data(), &made, sizeof made);
  return id;
}

/// To destroy it would wait for the others, who do not come where an error ends this rank.
void leave_nccl(void* joined) {
  auto* const comm = static_cast<ncclComm_t>(joined);
  std::uncaught_exceptions() > 0 ? ncclCommAbort(comm) : ncclCommDestroy(comm);
}

std::shared_ptr<void> join_nccl(NcclCalls::Id const& id, Rank rank, Rank ranks) {
  ncclUniqueId made{};
  std::memcpy(&made, id.data(), sizeof made);
  ncclComm_t joined = nullptr;
  check_nccl(ncclCommInitRank(&joined, ranks, made, rank), "ncclCommInitRank");
  return {joined, leave_nccl};
}

ncclDataType_t nccl_type(ElementType type) {
  switch (type) {
  case ElementType::float32: return ncclFloat32;
  case ElementType::float64: return ncclFloat64;
  case ElementType::int32: return ncclInt32;
  case ElementType::int64: return ncclInt64;
  case ElementType::bfloat16: return ncclBfloat16;
  case ElementType::float16: return ncclFloat16;
  }
  return ncclNumTypes;
}

ncclRedOp_t nccl_operation(Operation operation) {
  switch (operation) {
  case Operation::sum: return ncclSum;
  case Operation::max: return ncclMax;
  case Operation::min: return ncclMin;
  }
  return ncclNumOps;
}

void start_nccl(void* joined, NcclCalls::Call const& call, ExecutionSpace const& exec) {
  auto* const comm = static_cast<ncclComm_t>(joined);
  ncclDataType_t const type = nccl_type(call.type);
  ncclRedOp_t const operation = nccl_operation(call.operation);
  auto* const stream = exec.cuda_stream();
  switch (call.collective) {
  case Collective::all_reduce:
    return check_nccl(ncclAllReduce(call.from, call.to, call.count, type, operation, comm, stream), "ncclAllReduce");
  case Collective::reduce_scatter:
    return check_nccl(ncclReduceScatter(call.from, call.to, call.count, type, operation, comm, stream),
                      "ncclReduceScatter");
  case Collective::all_gather:
    return check_nccl(ncclAllGather(call.from, call.to, call.count, type, comm, stream), "ncclAllGather");
  case Collective::broadcast:
    return check_nccl(ncclBroadcast(call.from, call.to, call.count, type, call.root, comm, stream), "ncclBroadcast");
  case Collective::reduce:
    return check_nccl(ncclReduce(call.from, call.to, call.count, type, operation, call.root, comm, stream),
                      "ncclReduce");
  default: return; // refused before
  }
}

constexpr NcclCalls calls_of_library{version_of_nccl, make_nccl_id, join_nccl, start_nccl};
NcclCalls const* calls_in_use() { return &calls_of_library; }

#else

NcclCalls const* calls_in_use() { return nullptr; }

#endif

} // namespace

std::string find_shared_device(std::vector<std::string> const& devices, Topology const& topology) {
  auto const device_of = [&](Rank rank) -> std::string const& { return devices[static_cast<std::size_t>(rank)]; };
  for (Rank rank = 0; rank < topology.ranks(); ++rank)
    for (Rank const other : topology.neighbours(rank))
      if (rank < other && !device_of(rank).empty() && device_of(rank) == device_of(other))
        return fmt::format("ranks {} and {} share a device", rank, other);
  return "";
}

std::string nccl_refusal(Problem const& problem) {
  switch (problem.collective) {
  case Collective::all_reduce:
  case Collective::broadcast:
  case Collective::reduce: return "";
  case Collective::reduce_scatter:
  case Collective::all_gather:
    if (has_equal_blocks(problem)) return "";
    return fmt::format("NCCL has blocks of one size, so no {} whose blocks differ", to_string(problem.collective));
  default:
    return fmt::format("of NCCL, all_reduce, reduce_scatter, all_gather, broadcast and reduce are measured, not {}",
                       to_string(problem.collective));
  }
}

NcclCalls const* nccl_calls() { return played_nccl() ? played_nccl()() : calls_in_use(); }

PlayedNccl& played_nccl() {
  static constinit PlayedNccl instance;
  return instance;
}

NcclCommunicator::NcclCommunicator(Communicator const& communicator)
    : m_calls(nccl_calls()), m_rank(communicator.rank()) {
  TRAINSTONE_REQUIRE(m_calls, "this build has no NCCL");
  std::string const shared = find_shared_device(devices_of_ranks(communicator), communicator.topology());
  if (!shared.empty())
    throw CollectiveError(fmt::format("NCCL wants a device for every rank, but {}", shared), ExitCode::usage);
  NcclCalls::Id id{};
  Impl::on_all_ranks(communicator, "begin with NCCL", [&] { id = m_calls->make_id(); }); // before anybody waits in join
  id = all_gather_values(communicator, id).front();
  std::shared_ptr<void> joined; // those who have joined leave again if one has not
  Impl::on_all_ranks(communicator, "join the others by NCCL",
                     [&] { joined = m_calls->join(id, m_rank, communicator.size()); });
  m_joined = std::move(joined);
}

NcclCollective NcclCommunicator::call(Problem const& problem, Operation operation, ElementType type,
                                      std::byte* data) const {
  std::string const reason = nccl_refusal(problem);
  TRAINSTONE_REQUIRE_INPUT(reason.empty(), "{}", reason);
  Range const own = problem.partition.range(m_rank);
  std::byte* const own_block = data + static_cast<std::size_t>(own.begin) * size_of(type);
  bool const gathers = problem.collective == Collective::all_gather;
  bool const scatters = problem.collective == Collective::reduce_scatter;
  Index const count = gathers || scatters ? own.size() : problem.elements();
  return {m_calls,
          m_joined.get(),
          {.collective = problem.collective,
           .from = gathers ? own_block : data,
           .to = scatters ? own_block : data,
           .count = static_cast<std::size_t>(count),
           .type = type,
           .operation = operation,
           .root = problem.root}};
}

} // namespace trainstone
