#include "train/pace.hpp"

#include "core/launch.hpp"
#include "core/random.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace trainstone {

namespace {

constexpr double longest_slice = 2e-4;                     ///< s: messages go on at least as often
constexpr std::int64_t most_ranks = std::int64_t{1} << 20; ///< so that a step and a rank have one index

} // namespace

std::optional<ConfigProblem> find_pace_problem(FaultConfig const& faults) {
  bool const straggles = faults.straggler_rank >= 0, is_slower = faults.straggler_factor > 1;
  if (straggles && !is_slower)
    return ConfigProblem{"faults.straggler.rank", "faults.straggler.rank needs faults.straggler.factor above 1"};
  if (is_slower && !straggles)
    return ConfigProblem{"faults.straggler.factor",
                         "faults.straggler.factor needs faults.straggler.rank, counted from 0"};
  if ((straggles || faults.straggler_sigma > 0) && !faults.has_pace())
    return ConfigProblem{straggles ? "faults.straggler.rank" : "faults.straggler.sigma",
                         "faults.straggler makes paced times longer: it needs faults.pace.forward or "
                         "faults.pace.backward"};
  return std::nullopt;
}

std::optional<ConfigProblem> find_pace_problem(FaultConfig const& faults, std::int64_t ranks, std::int64_t servers) {
  if (faults.straggler_rank < ranks) return std::nullopt;
  return problem("faults.straggler.rank", "faults.straggler.rank = {} is no rank of this run; nearest legal value: {}",
                 faults.straggler_rank, ranks - servers - 1);
}

double straggler_factor(FaultConfig const& faults, std::int64_t rank, std::int64_t clock) {
  double const lasting = rank == faults.straggler_rank ? faults.straggler_factor : 1, sigma = faults.straggler_sigma;
  if (sigma == 0 || clock == 0) return lasting;
  double const z = normal(static_cast<std::uint64_t>(faults.straggler_seed), RandomStream::stragglers,
                          static_cast<std::uint64_t>(clock * most_ranks + rank));
  return lasting * std::exp(sigma * z - sigma * sigma / 2);
}

Pace::Pace(FaultConfig const& faults, std::int64_t rank) : m_faults(faults), m_rank(rank) { begin(0); }

void Pace::begin(std::int64_t clock) { m_factor = straggler_factor(m_faults, m_rank, clock); }

double Pace::least_seconds(Instruction const& instruction, PartTable const& parts) const {
  bool const is_forward = instruction.act == Act::forward, is_backward = instruction.act == Act::backward;
  if ((!is_forward && !is_backward) || parts[instruction.subject].block < 0) return 0;
  double const whole = m_factor * (is_forward ? m_faults.pace_forward : m_faults.pace_backward) / 2;
  if (instruction.piece == Instruction::none) return whole;
  return whole / static_cast<double>(pieces_of(instruction, parts).size());
}

void sleep_until_passed(SteadyTime begin, double seconds) {
  for (double rest = seconds - seconds_since(begin); rest > 0; rest = seconds - seconds_since(begin)) {
    if (between_launches()) between_launches()();
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(rest, longest_slice)));
  }
}

PartTimes paced(PartTimes times, FaultConfig const& faults) {
  for (PartKind const kind : {PartKind::attention, PartKind::mlp}) {
    auto const found = times.parts.find(kind);
    if (found == times.parts.end()) continue;
    PartTimes::OfPart& part = found->second;
    part.forward = std::max(part.forward, faults.pace_forward / 2);
    part.backward = std::max(part.backward, faults.pace_backward / 2);
    part.backward_adding = std::max(part.backward_adding, faults.pace_backward / 2);
  }
  return times;
}

} // namespace trainstone
