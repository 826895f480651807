#include "lectures/taught_gathers.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/counters.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"
#include "parallel/plan/ownership.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

namespace trainstone {

namespace {

constexpr std::string_view model = "gpt2";
constexpr std::uint64_t gathers_per_step = 2; // forward and backward
constexpr std::size_t element_bytes = 2;

struct Method {
  char const* name;
  Collective collective;
  Algorithm algorithm;
};

constexpr std::array methods{
    Method{"all-gather, ring", Collective::all_gather, Algorithm::ring},
    Method{"broadcast, linear", Collective::broadcast, Algorithm::linear},
    Method{"broadcast, binomial", Collective::broadcast, Algorithm::binomial},
    Method{"broadcast, scatter + all-gather", Collective::broadcast, Algorithm::scatter_all_gather},
};

MachineModel without_start(MachineModel const& machine) {
  PiecewiseLinear const& message = machine.of(Link::intra);
  constexpr double large = 1e9; // bytes: where start-up does not count
  return uniform_machine({0, (message(2 * large) - message(large)) / large, 0});
}

/// Seconds of all units, one after the other. On one node it does not matter who the owner is.
double price_of(Method const& method, std::vector<ParameterUnit> const& units, Rank ranks,
                MachineModel const& machine) {
  std::map<std::int64_t, double> of_size;
  double seconds = 0;
  for (ParameterUnit const& unit : units) {
    auto const [found, is_new] = of_size.try_emplace(unit.padded, 0);
    if (is_new)
      found->second = price(Problem::on_one_node(method.collective, Partition::even(unit.padded, ranks)),
                            method.algorithm, element_bytes, machine);
    seconds += found->second;
  }
  return static_cast<double>(gathers_per_step) * seconds;
}

/// A linear or binomial broadcast, and a ring, bring every element to N-1 ranks once. A scatter on a binomial tree of
/// N = 2^k ranks sends half of the data on each of its lg N levels, and then the ring sends everything.
std::optional<std::int64_t> closed_total(Method const& method, std::int64_t parameters, Rank ranks) {
  std::int64_t const once = parameters * (ranks - 1);
  if (method.algorithm != Algorithm::scatter_all_gather) return gathers_per_step * once;
  auto const n = static_cast<unsigned>(ranks);
  if (!std::has_single_bit(n)) return std::nullopt;
  return gathers_per_step * (once + parameters / 2 * (std::bit_width(n) - 1));
}

GatherRow count_method(Method const& method, std::vector<ParameterUnit> const& units, Ownership const& owners,
                       Rank ranks) {
  std::vector<Traffic> sent(static_cast<std::size_t>(ranks));
  for (ParameterUnit const& unit : units) {
    Problem problem = Problem::on_one_node(method.collective, Partition::even(unit.padded, ranks));
    if (has_root(method.collective)) problem.root = owners.owner(unit.first_group).value();
    for (Rank rank = 0; rank < ranks; ++rank)
      sent[static_cast<std::size_t>(rank)] +=
          gathers_per_step * predict_traffic(make_schedule(problem, method.algorithm, rank), problem.topology, 1);
  }
  GatherRow row{.method = method.name, .exact_total = {}};
  for (Traffic const& traffic : sent) {
    row.busiest = std::max(row.busiest, static_cast<std::int64_t>(traffic.bytes)); // of elements of one byte
    row.messages = std::max(row.messages, traffic.messages);
    row.counted_total += static_cast<std::int64_t>(traffic.bytes);
  }
  row.balance = static_cast<double>(row.busiest) * ranks / static_cast<double>(row.counted_total);
  return row;
}

} // namespace

TaughtGathers compare_taught_gathers(Rank ranks, MachineModel const& machine) {
  TRAINSTONE_REQUIRE(2 <= ranks && ranks <= most_gather_ranks, "gathers of 2 to {} ranks are compared, not of {}",
                     most_gather_ranks, ranks);
  ParameterTable const table(*find_preset(model), ranks);
  std::vector<ParameterUnit> const& units = table.units();
  Ownership const owners = Ownership::of_units(table.groups(), units, ranks);
  TaughtGathers lecture{std::string(model), table.size(), 0, {}};
  for (Rank rank = 0; rank < ranks; ++rank) lecture.most_owned = std::max(lecture.most_owned, owners.elements(rank));
  for (Method const& method : methods) {
    GatherRow row = count_method(method, units, owners, ranks);
    row.exact_total = closed_total(method, table.size(), ranks);
    row.without_start = price_of(method, units, ranks, without_start(machine));
    row.priced = price_of(method, units, ranks, machine);
    if (has_root(method.collective))
      row.memory_balance = static_cast<double>(lecture.most_owned) * ranks / static_cast<double>(table.size());
    lecture.rows.push_back(std::move(row));
  }
  return lecture;
}

} // namespace trainstone
