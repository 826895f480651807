#include "commbench_plan.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/measurement/mpi_collective.hpp"
#include "comm/simulation/chooser.hpp"
#include "comm/simulation/simulator.hpp"

#include <algorithm>

namespace trainstone {

namespace {

constexpr char const* automatic = "auto";
constexpr char const* library = "mpi";
constexpr char const* nccl_library = "nccl";

/// The lines of the table for one problem, in the registry's order, then auto, then mpi, then nccl.
class RowPicker {
public:
  RowPicker(CommbenchOptions const& options, bool nccl, std::vector<std::string>& left_out)
      : m_options(options), m_nccl(nccl), m_left_out(left_out) {}

  std::vector<PlannedRow> rows(Problem const& problem, ElementType type) {
    std::vector<PlannedRow> rows;
    for (Algorithm const algorithm : algorithms_of(problem.collective)) {
      std::string const name(to_string(algorithm));
      if (takes_part(name, refusal(problem, algorithm)))
        rows.push_back({.contestant = {.algorithm = algorithm}, .algorithm = name});
    }
    if (m_options.wants(automatic)) // any of ours, until the times are predicted
      rows.push_back({.contestant = {.algorithm = algorithms_of(problem.collective).front()}, .algorithm = automatic});
    if (is_measured(library, mpi_refusal(problem, type)))
      for (MpiForm const form : mpi_forms(problem))
        rows.push_back({.contestant = {.algorithm = {}, .form = form},
                        .algorithm = library,
                        .picked = std::string(to_string(form))});
    if (m_nccl && is_measured(nccl_library, nccl_refusal(problem)))
      rows.push_back(
          {.contestant = {.algorithm = {}, .provider = CollectiveProvider::nccl}, .algorithm = nccl_library});
    return rows;
  }

private:
  /// \throws InputError if it was named and cannot
  bool takes_part(std::string const& name, std::string const& reason) {
    if (!m_options.wants(name)) return false;
    TRAINSTONE_REQUIRE_INPUT(reason.empty() || !m_options.names(name), "--algorithms: {}", reason);
    if (!reason.empty()) leave_out(reason);
    return reason.empty();
  }
  /// Of libraries: they are left out of what they cannot do, named or not.
  bool is_measured(std::string const& name, std::string const& reason) {
    if (!m_options.wants(name)) return false;
    if (!reason.empty()) leave_out(reason);
    return reason.empty();
  }
  void leave_out(std::string const& reason) {
    if (std::ranges::find(m_left_out, reason) == m_left_out.end()) m_left_out.push_back(reason);
  }

  CommbenchOptions const& m_options;
  bool m_nccl;
  std::vector<std::string>& m_left_out;
};

} // namespace

void PlannedRow::pick(PricedAlgorithm const& choice) {
  contestant = {.algorithm = choice.algorithm, .segment = choice.segment};
  picked = to_string(choice);
  predict(choice.seconds);
}

void PlannedRow::predict(double seconds) {
  predicted_seconds = seconds > 0 ? std::optional(seconds) : std::nullopt; // one rank has nothing to do
}

std::vector<Contestant> PlannedContest::contestants() const {
  std::vector<Contestant> all;
  for (PlannedRow const& row : rows) all.push_back(row.contestant);
  return all;
}

bool CommbenchPlan::has(CollectiveProvider provider) const {
  return std::ranges::any_of(contests, [&](PlannedContest const& contest) {
    return std::ranges::any_of(contest.rows, [&](PlannedRow const& row) { return row.contestant.is_of(provider); });
  });
}

void CommbenchPlan::leave_out(CollectiveProvider provider, std::string const& reason) {
  for (PlannedContest& contest : contests)
    std::erase_if(contest.rows, [&](PlannedRow const& row) { return row.contestant.is_of(provider); });
  std::erase_if(contests, [](PlannedContest const& contest) { return contest.rows.empty(); });
  left_out.push_back(reason);
}

MeasuredBytes CommbenchPlan::bytes(MessageBuffers buffers, Rank rank) const {
  MeasuredBytes all;
  for (PlannedContest const& contest : contests) {
    std::vector<Contestant> everybody = contest.contestants();
    for (PlannedRow const& row : contest.rows)
      for (PricedAlgorithm const& one : row.candidates)
        everybody.push_back({.algorithm = one.algorithm, .segment = one.segment});
    all.include(contest_bytes(buffers, contest.problem, rank, contest.type, everybody));
  }
  return all;
}

CommbenchPlan plan_commbench(CommbenchOptions const& options, Topology const& topology, bool nccl) {
  CommbenchPlan plan;
  RowPicker picker(options, nccl, plan.left_out);
  for (Collective const collective : options.collectives) {
    bool const without_data = !has_data(collective);
    for (ElementType const type : options.types) {
      for (std::uint64_t const bytes : options.sizes) {
        auto const elements = static_cast<Index>(bytes / size_of(type));
        Problem problem = problem_of_size(collective, elements, topology, options.root, options.servers);
        problem.shared_memory = options.buffers.shared_memory;
        std::vector<PlannedRow> rows = picker.rows(problem, type);
        if (!rows.empty()) plan.contests.push_back({problem, type, std::move(rows)});
        if (without_data) break;
      }
      if (without_data) break;
    }
  }
  TRAINSTONE_REQUIRE_INPUT(!plan.contests.empty(), "nothing to measure: {}",
                           plan.left_out.empty() ? "no algorithm for these collectives" : plan.left_out.front());
  return plan;
}

void predict_contests(CommbenchPlan& plan, MachineModel const& machine) {
  for (PlannedContest& contest : plan.contests) {
    std::size_t const element = size_of(contest.type);
    for (PlannedRow& row : contest.rows) {
      if (!row.contestant.algorithm) continue; // a library's
      if (row.algorithm == automatic) {
        row.candidates = close_candidates(contest.problem, element, machine);
        row.pick(row.candidates.front());
      } else {
        row.predict(price(contest.problem, *row.contestant.algorithm, element, machine));
      }
    }
  }
}

} // namespace trainstone
