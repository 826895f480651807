#include "comm/measurement/collective_contest.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/execution.hpp"
#include "comm/measurement/exact_data.hpp"
#include "comm/measurement/fresh_data.hpp"
#include "comm/measurement/mpi_collective.hpp"
#include "comm/schedule/expected_results.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/types.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

namespace trainstone {

namespace {

Problem with_segment(Problem problem, Index segment) {
  problem.segment = segment;
  return problem;
}

template <class T>
Vector<T> cut(Vector<std::byte> memory, Index elements, char const* what) {
  auto const count = static_cast<std::size_t>(elements);
  TRAINSTONE_REQUIRE(count * sizeof(T) <= memory.extent(0), "{} of {} elements of {} bytes do not fit into {}", what,
                     elements, sizeof(T), memory.extent(0));
  return Vector<T>(reinterpret_cast<T*>(memory.data()), count);
}

/// The contestants on buffers of one type.
template <class T>
class Contest {
public:
  Contest(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem, Operation operation,
          MeasuredBuffers const& memory, NcclCommunicator const* nccl)
      : m_exec(exec),
        m_communicator(communicator),
        m_problem(problem),
        m_operation(operation),
        m_memory(memory),
        m_nccl(nccl),
        m_data(cut<T>(memory.data, problem.elements(), "data")) {}

  /// What is timed, and what is checked: the result of MPI's own is brought to where it is looked for.
  struct Calls {
    FreshCall timed;
    TimedCall checked;
  };

  Calls calls_of(Contestant const& contestant) const {
    if (contestant.is_of(CollectiveProvider::mpi)) return calls_of_mpi(contestant.form);
    if (contestant.is_of(CollectiveProvider::nccl)) return calls_of_nccl();
    return calls_of_ours(contestant);
  }

  /// Wrong elements of all ranks after one call.
  Index wrong(TimedCall const& call, ExactData const& truth) const {
    auto const host = Kokkos::create_mirror_view(m_data); // the data itself, where the host reaches it
    truth.fill<T>(m_communicator.rank(), std::span(host.data(), host.extent(0)));
    Kokkos::deep_copy(m_exec, m_data, host);
    m_exec.fence("trainstone::comm::contest: the data is filled");
    barrier(m_communicator); // in shared memory nobody may begin before all have filled their part
    call();
    Kokkos::deep_copy(m_exec, host, m_data);
    m_exec.fence("trainstone::comm::contest: the host checks the result");
    Index const mine = truth.wrong<T>(m_communicator.rank(), std::span(host.data(), host.extent(0)));
    std::vector<Index> const all = all_gather_values(m_communicator, mine);
    return std::accumulate(all.begin(), all.end(), Index{0});
  }

  /// Zeros stay zeros, however often they are added up; other values would end at infinity.
  void fill_for_timing() const {
    Kokkos::deep_copy(m_exec, m_data, T{});
    m_exec.fence("trainstone::comm::contest: the data is filled");
  }

  /// Writes what this rank holds at the start. Where a rank may be done before the others, nobody writes before all
  /// are: else one call would overlap with the next one, and look shorter than it is.
  TimedCall writing() const {
    Range const held = Impl::initially_held(m_problem, m_communicator.rank());
    TimedCall const write =
        write_call(m_exec, Vector<T>(m_data.data() + held.begin, static_cast<std::size_t>(held.size())));
    if (!has_root(m_problem.collective) && !has_servers(m_problem.collective)) return write;
    return [write, this] {
      barrier(m_communicator);
      write();
    };
  }

  /// Reads what this rank holds at the end.
  TimedCall reading() const {
    Range const held = Impl::finally_held(m_problem, m_communicator.rank());
    return read_call(m_exec,
                     std::as_bytes(std::span(m_data.data() + held.begin, static_cast<std::size_t>(held.size()))));
  }

private:
  Calls calls_of_mpi(MpiForm form) const {
    Index const apart = mpi_scratch_elements(m_problem, m_communicator.rank(), form);
    auto const mpi =
        std::make_shared<MpiCollective>(m_exec, m_communicator, m_problem, m_operation, m_data,
                                        cut<T>(m_memory.scratch, apart, "scratch"), m_memory.staging, form);
    return {{[mpi] { mpi->run_as_users_do(); }, read_call(m_exec, mpi->users_result())}, [mpi] { mpi->run(); }};
  }

  Calls calls_of_nccl() const {
    TRAINSTONE_REQUIRE(m_nccl, "NCCL is to be measured, and there is no communicator of NCCL");
    return enqueued([call = m_nccl->call(m_problem, m_operation, m_data), exec = m_exec] { call.start(exec); });
  }

  Calls calls_of_ours(Contestant const& contestant) const {
    Schedule schedule =
        make_schedule(with_segment(m_problem, contestant.segment), *contestant.algorithm, m_communicator.rank());
    Vector<T> const scratch = cut<T>(m_memory.scratch, schedule.scratch_elements, "scratch");
    auto const execution =
        std::make_shared<Execution>(m_exec, m_communicator, std::move(schedule), m_operation, m_data, scratch,
                                    ExecutionOptions{.segment = m_memory.segment, .staging = m_memory.staging});
    return enqueued([execution] { execution->run(); });
  }

  /// Of a call that leaves its result in the data, and kernels under way.
  template <class Start>
  Calls enqueued(Start const& start) const {
    TimedCall const call = [start, exec = m_exec, label = std::string("trainstone::comm::contest: the clock is read")] {
      start();
      wait_for_kernels(exec, label);
    };
    return {{call, reading()}, call};
  }

  ExecutionSpace m_exec;
  Communicator& m_communicator;
  Problem const& m_problem;
  Operation m_operation;
  MeasuredBuffers m_memory;
  NcclCommunicator const* m_nccl;
  Vector<T> m_data;
};

template <class T>
std::vector<ContestResult> run(Contest<T> const& contest, Communicator& communicator, ExactData const* truth,
                               std::span<Contestant const> contestants, ContestOptions const& options) {
  std::vector<TimedCall> calls, checked;
  std::vector<FreshCall> fresh;
  for (Contestant const& contestant : contestants) {
    auto [timed, with_result] = contest.calls_of(contestant);
    calls.push_back(timed.call);
    fresh.push_back(std::move(timed));
    checked.push_back(std::move(with_result));
  }
  std::vector<ContestResult> results(calls.size());
  auto const check_all = [&] {
    for (std::size_t i = 0; truth && i < calls.size(); ++i) results[i].wrong += contest.wrong(checked[i], *truth);
  };
  check_all();
  contest.fill_for_timing();
  std::vector<TimedSamples> samples =
      options.fresh ? time_fresh(communicator, fresh, contest.writing(), contest.reading(), options.timing)
                    : time_interleaved(communicator, calls, options.timing);
  for (std::size_t i = 0; i < calls.size(); ++i) results[i].samples = std::move(samples[i]);
  check_all();
  return results;
}

} // namespace

std::string to_string(Contestant const& contestant) {
  if (contestant.is_of(CollectiveProvider::nccl)) return "nccl";
  if (contestant.is_of(CollectiveProvider::mpi))
    return contestant.form == MpiForm::in_place ? "mpi" : "mpi/two_buffers";
  std::string const name(to_string(*contestant.algorithm));
  return contestant.segment > 0 ? fmt::format("{}/{}", name, contestant.segment) : name;
}

MeasuredBytes contest_bytes(MessageBuffers buffers, Problem const& problem, Rank rank, ElementType type,
                            std::span<Contestant const> contestants) {
  std::size_t const element = size_of(type);
  auto const bytes = [element](Index elements) { return static_cast<std::uint64_t>(elements) * element; };
  MeasuredBytes needed{.data = bytes(problem.elements())};
  for (Contestant const& contestant : contestants) {
    if (contestant.is_of(CollectiveProvider::nccl)) continue; // it has memory of its own
    if (contestant.is_of(CollectiveProvider::mpi)) {
      needed.include({.scratch = bytes(mpi_scratch_elements(problem, rank, contestant.form)),
                      .staging = mpi_staging_bytes(buffers, problem, rank, element, contestant.form)});
      continue;
    }
    Schedule const schedule = make_schedule(with_segment(problem, contestant.segment), *contestant.algorithm, rank);
    needed.include({.scratch = bytes(schedule.scratch_elements), .staging = staging_bytes(buffers, schedule, element)});
  }
  return needed;
}

std::vector<ContestResult> run_contest(ExecutionSpace const& exec, Communicator& communicator, Problem const& problem,
                                       Operation operation, ElementType type, std::span<Contestant const> contestants,
                                       MeasuredBuffers const& memory, ContestOptions const& options) {
  std::optional<ExactData> truth;
  if (options.check) truth.emplace(problem, operation, type);
  ExactData const* const wanted = truth ? &*truth : nullptr;
  auto const run_as = [&]<class T>(T) {
    return run(Contest<T>(exec, communicator, problem, operation, memory, options.nccl), communicator, wanted,
               contestants, options);
  };
  switch (type) {
  case ElementType::float32: return run_as(float{});
  case ElementType::float64: return run_as(double{});
  case ElementType::int32: return run_as(std::int32_t{});
  case ElementType::int64: return run_as(std::int64_t{});
  case ElementType::bfloat16: return run_as(bf16{});
  case ElementType::float16: return run_as(fp16{});
  }
  return {};
}

double bus_factor(Collective collective, Rank ranks) {
  double const share = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
  case Collective::all_reduce: return 2 * share;
  case Collective::reduce_scatter:
  case Collective::all_gather:
  case Collective::all_to_all:
  case Collective::gather:
  case Collective::scatter: return share;
  default: return 1;
  }
}

} // namespace trainstone
