// trainstone commbench: every collective by every algorithm, ours and libraries', measured against each other,
// checked and predicted.

#include "commbench.hpp"

#include "comm/measurement/calibration.hpp"
#include "comm/measurement/measured_memory.hpp"
#include "comm/measurement/mpi_settings.hpp"
#include "comm/measurement/nccl_collective.hpp"
#include "commbench_plan.hpp"
#include "core/atomic_file.hpp"
#include "git_version.hpp"
#include "report/commbench_table.hpp"
#include "result/result.hpp"
#include "short_calibration.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace trainstone {

namespace {

/// NCCL's communicator, if this build has NCCL and it is to be measured.
struct JoinedNccl {
  std::optional<NcclCommunicator> communicator = {};
  std::string problem = {}; ///< why there is none; empty: nobody has asked
};

/// Collective, if the plan has rows of NCCL. \param[in] communicator  with its real nodes
/// \throws CollectiveError if NCCL was named and cannot be
JoinedNccl join_nccl(CommbenchOptions const& options, CommbenchPlan const& plan, Communicator const& communicator) {
  if (!plan.has(CollectiveProvider::nccl)) return {};
  try {
    return {.communicator = NcclCommunicator(communicator)};
  } catch (CollectiveError const& error) {
    if (options.names("nccl")) throw;
    return {.problem = error.what()};
  }
}

CommbenchHeader make_header(CommbenchOptions const& options, Communicator const& communicator, RankContext& context,
                            bool emulated, std::string const& machine) {
  CommbenchHeader header;
  header.version = fmt::format("{} git {} {}", TRAINSTONE_VERSION, git_commit, git_dirty ? "dirty" : "clean");
  header.mpi = context.mpi.implementation();
  header.thread_level = context.mpi.thread_level();
  header.mpi_settings = mpi_control_variables();
  header.transports = loaded_transports();
  header.ranks = communicator.size();
  header.nodes = communicator.topology().nodes();
  header.emulated_nodes = emulated;
  header.cpu = describe_machine().cpu;
  header.kokkos = kokkos_description();
  MessageBuffers const messages = communicator.buffers(); // what it does, not what was asked of it
  std::string_view const where = options.buffers.shared_memory ? "shared" : "private";
  header.buffers = messages == MessageBuffers::host ? std::string(where) : describe_buffers(communicator);
  header.machine = machine;
  header.choice =
      fmt::format("auto: of the algorithms that are predicted to take at most {:g} times the least time, the "
                  "fastest in a short measurement; mpi: the faster one of one buffer and two",
                  close_factor);
  header.timing = fmt::format(
      "{} samples of each, interleaved A B B A; a sample is {} calls after a barrier, its time the slowest rank's; {}",
      options.samples, options.calls > 0 ? std::to_string(options.calls) : "some",
      options.fresh ? "data is written before every call, its result read after it"
                    : "one call's result is the next one's data");
  if (options.check_order) header.timing += "; with the exchange that checks the order of calls";
  return header;
}

/// The table as it grows.
class Table {
public:
  Table(CommbenchOptions const& options, bool prints) : m_options(options), m_prints(prints) {}

  void print(std::string const& text) const {
    if (!m_prints) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  void add(PlannedContest const& contest, std::vector<ContestResult> const& results) {
    std::vector<CommbenchRow> rows;
    for (std::size_t i = 0; i < results.size(); ++i) rows.push_back(row_of(contest, contest.rows[i], results[i]));
    for (CommbenchRow& row : with_fastest_form(std::move(rows))) {
      print(commbench_row_line(row) + "\n");
      m_rows.push_back(std::move(row));
    }
  }

  void begin(PlannedContest const& contest) {
    m_first = m_rows.size();
    print(fmt::format("#\n# {} {}\n{}", to_string(contest.problem.collective), to_string(contest.type),
                      commbench_column_lines()));
  }
  void end() { print(commbench_summary_lines(std::span(m_rows).subspan(m_first))); }

  std::vector<CommbenchRow> const& rows() const { return m_rows; }

private:
  CommbenchRow row_of(PlannedContest const& contest, PlannedRow const& planned, ContestResult const& result) const {
    Problem const& problem = contest.problem;
    CommbenchRow row;
    row.collective = to_string(problem.collective);
    row.type = to_string(contest.type);
    row.operation = adds_up(problem.collective) ? to_string(m_options.operation) : "none";
    row.root = has_root(problem.collective) ? problem.root : -1;
    row.algorithm = planned.algorithm;
    row.picked = planned.picked;
    row.bytes = contest.data_bytes();
    row.count = problem.message_elements();
    row.seconds = result.samples.seconds;
    row.calls = result.samples.calls;
    row.bus_factor = bus_factor(problem.collective, problem.ranks());
    row.predicted_seconds = planned.predicted_seconds;
    if (m_options.check) row.wrong = result.wrong;
    return row;
  }

  CommbenchOptions const& m_options;
  bool m_prints;
  std::vector<CommbenchRow> m_rows;
  std::size_t m_first = 0;
};

/// \param[in] keep  called whenever the table has grown
void measure(CommbenchOptions const& options, CommbenchPlan& plan, Communicator& communicator, RankContext& context,
             NcclCommunicator const* nccl, Table& table, std::function<void()> const& keep) {
  MemoryLedger ledger;
  MeasuredMemory const memory(context.exec, communicator, ledger, "commbench",
                              plan.bytes(communicator.buffers(), communicator.rank()), options.buffers.shared_memory);
  ContestOptions how;
  how.timing.calls = options.calls;
  how.timing.warmup_calls = options.warmup_calls;
  how.timing.samples = options.samples;
  how.check = options.check;
  how.fresh = options.fresh;
  how.nccl = nccl;
  for (std::size_t i = 0; i < plan.contests.size(); ++i) {
    PlannedContest& contest = plan.contests[i];
    auto const same_table = [&](PlannedContest const& other) {
      return other.problem.collective == contest.problem.collective && other.type == contest.type;
    };
    if (i == 0 || !same_table(plan.contests[i - 1])) table.begin(contest);
    for (PlannedRow& row : contest.rows)
      if (!row.candidates.empty())
        row.pick(choose_by_measurement(context.exec, communicator, contest.problem, options.operation, contest.type,
                                       row.candidates, memory.buffers(), options.fresh));
    std::vector<Contestant> const contestants = contest.contestants();
    table.add(contest, run_contest(context.exec, communicator, contest.problem, options.operation, contest.type,
                                   contestants, memory.buffers(), how));
    keep();
    if (i + 1 == plan.contests.size() || !same_table(plan.contests[i + 1])) table.end();
  }
}

} // namespace

int commbench(CommbenchArguments const& arguments, RankContext& context) {
  std::optional<Communicator> communicator;
  CommbenchOptions options;
  CommbenchPlan plan;
  int nodes = 0;
  bool const first = context.communicator.rank() == 0;
  DeviceFindings const found = prove_device_memory(context.communicator, context.exec);
  collectively(context.communicator, [&] {
    nodes = emulated_nodes(arguments.emulated_nodes);
    communicator.emplace(Communicator::world(nodes));
    options = check_commbench(arguments, communicator->topology(), found);
    if (first && !options.json_file.empty()) require_writable(options.json_file);
  });
  collectively(context.communicator,
               [&] { plan = plan_commbench(options, communicator->topology(), nccl_calls() != nullptr); });
  JoinedNccl const nccl = join_nccl(options, plan, context.communicator);
  NcclCommunicator const* const joined = nccl.communicator ? &*nccl.communicator : nullptr;
  if (!nccl.problem.empty()) plan.leave_out(CollectiveProvider::nccl, nccl.problem);
  communicator->use_buffers(options.buffers.messages, context.exec);
  communicator->use_neighbours_memory(options.buffers.shared_memory);
  if (options.check_order) communicator->check_order(OrderCheck::yes);
  FittedMachine machine;
  std::string const source =
      read_or_calibrate(options.machine_file, options.buffers, options.sizes.back(), *communicator, context, machine);
  predict_contests(plan, machine.model());

  CommbenchHeader header = make_header(options, *communicator, context, nodes > 0, source);
  if (joined) header.nccl = nccl_calls()->version();
  Table table(options, first);
  table.print(commbench_header_lines(header));
  Drift const before = drift(context.exec, *communicator, machine, options.buffers.shared_memory);
  table.print(drift_lines("before", before));
  for (std::string const& reason : plan.left_out) table.print(fmt::format("# left out: {}\n", reason));
  auto const keep = [&](std::optional<Drift> const& after) {
    if (options.json_file.empty()) return;
    collectively(*communicator, [&] {
      if (!first) return;
      write_file_in_folder(options.json_file, commbench_json(header, before, after, table.rows()));
    });
  };
  measure(options, plan, *communicator, context, joined, table, [&] { keep({}); });
  Drift const after = drift(context.exec, *communicator, machine, options.buffers.shared_memory);
  table.print(drift_lines("after", after));
  bool right = true;
  for (CommbenchRow const& row : table.rows()) right = right && !row.is_wrong();
  keep(after);
  table.print(!options.check ? "RESULT: UNCHECKED\n" : right ? "RESULT: ALL EXACT\n" : "RESULT: WRONG\n");
  return static_cast<int>(right ? ExitCode::valid : ExitCode::verification_failed);
}

} // namespace trainstone
