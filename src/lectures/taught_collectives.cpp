#include "lectures/taught_collectives.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/simulation/chooser.hpp"
#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

namespace trainstone {

namespace {

constexpr std::size_t element = taught_element_bytes;

/// Numbers that the formulas are written with.
struct Numbers {
  double n;             ///< ranks
  double s;             ///< bytes
  std::uint64_t ranks;  ///< N
  std::uint64_t bytes;  ///< S
  std::uint64_t core;   ///< P = 2^k, the largest power of two <= N
  std::uint64_t folded; ///< e = N - P
  std::uint64_t floor;  ///< k
  std::uint64_t ceil;   ///< lg N rounded up

  Numbers(int ranks_given, std::uint64_t bytes_given)
      : n(ranks_given),
        s(static_cast<double>(bytes_given)),
        ranks(static_cast<std::uint64_t>(ranks_given)),
        bytes(bytes_given),
        core(std::bit_floor(ranks)),
        folded(ranks - core),
        floor(static_cast<std::uint64_t>(std::bit_width(ranks)) - 1),
        ceil(floor + (folded > 0 ? 1 : 0)) {}

  bool power_of_two() const { return folded == 0; }
  double share() const { return (n - 1) / n; }
  double rounds() const { return static_cast<double>(ceil); }
};

/// A way to do an all-reduce: one collective, or two one after the other.
struct Method {
  std::string name;
  Algorithm algorithm;
  bool server = false; ///< push to and pull from one dedicated server, a further rank

  std::vector<Problem> problems(Numbers const& numbers) const {
    auto const ranks = static_cast<Rank>(numbers.ranks);
    auto const elements = static_cast<Index>(numbers.bytes / element);
    if (!server) return {Problem::on_one_node(Collective::all_reduce, Partition::even(elements, ranks))};
    Problem push = Problem::on_one_node(Collective::server_push, server_partition(elements, ranks, 1));
    push.servers = 1;
    Problem pull = push;
    pull.collective = Collective::server_pull;
    return {push, pull};
  }

  /// Of segmented algorithms with the best segment.
  double price_on(MachineModel const& machine, Numbers const& numbers) const {
    double seconds = 0;
    for (Problem const& problem : problems(numbers))
      seconds += choose_algorithm(problem, element, machine, {&algorithm, 1}).seconds;
    return seconds;
  }
};

/// What the schedules of a method say, rank by rank.
struct Counted {
  Index rounds = 0;
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;

  std::uint64_t total() const { return std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}); }
  std::uint64_t busiest() const { return std::ranges::max(sent); }
  double balance() const {
    return static_cast<double>(busiest()) * static_cast<double>(sent.size()) / static_cast<double>(total());
  }
  std::uint64_t load(std::size_t rank) const { return sent[rank] + received[rank]; }
};

Counted count_method(Method const& method, Numbers const& numbers) {
  Counted counted;
  for (Problem const& problem : method.problems(numbers)) {
    std::vector<Schedule> const schedules = make_schedules(problem, method.algorithm);
    counted.rounds += count(problem, schedules, element).rounds;
    counted.sent.resize(schedules.size(), 0);
    counted.received.resize(schedules.size(), 0);
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      counted.sent[rank] += predict_traffic(schedules[rank], problem.topology, element).bytes;
      for (Round const& round : schedules[rank].rounds)
        for (Move const& move : round)
          if (move.action == Action::receive)
            counted.received[rank] += static_cast<std::uint64_t>(move.size()) * element;
    }
  }
  return counted;
}

Method const main_device{"main device", Algorithm::main_device};
Method const dedicated_server{"dedicated server", Algorithm::direct, true};
Method const naive{"naive", Algorithm::naive};
Method const ring{"ring", Algorithm::ring};
Method const whole_ring{"ring of whole data", Algorithm::whole_ring};
Method const tree{"tree", Algorithm::tree};
Method const pipelined_tree{"pipelined tree", Algorithm::pipelined_tree};
Method const butterfly{"butterfly", Algorithm::butterfly};
Method const rabenseifner{"rabenseifner", Algorithm::rabenseifner};
Method const circulant{"circulant", Algorithm::circulant};

std::vector<TotalRow> total_rows(Numbers const& x) {
  std::uint64_t const folded_butterfly = x.core * x.floor * x.bytes + 2 * x.folded * x.bytes;
  std::uint64_t const once_each_way = 2 * (x.ranks - 1) * x.bytes;
  std::vector<TotalRow> rows{
      {"", "2 N M", 2 * x.n * x.s, "2 (N-1) S", once_each_way},
      {"", "2 N M", 2 * x.n * x.s, "2 N S", 2 * x.ranks * x.bytes},
      {"", "N^2 M", x.n * x.n * x.s, "N (N-1) S", x.ranks * (x.ranks - 1) * x.bytes},
      {"", "2 N M", 2 * x.n * x.s, "2 (N-1) S", once_each_way},
      {"", "2 N M", 2 * x.n * x.s, "2 (N-1) S", once_each_way},
      {"", "N M lg N", x.n * x.s * std::log2(x.n), x.power_of_two() ? "N S lg N" : "P k S + 2 e S", folded_butterfly},
  };
  Method const* const methods[] = {&main_device, &dedicated_server, &naive, &ring, &tree, &butterfly};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Counted const counted = count_method(*methods[i], x);
    rows[i].method = methods[i]->name;
    rows[i].counted = counted.total();
    rows[i].balance = counted.balance();
  }
  return rows;
}

/// The closed forms of the one-port machine; nothing where there is none.
std::optional<double> closed_price(Algorithm algorithm, Numbers const& x, AlphaBetaGamma const& c) {
  double const message = c.alpha + c.beta * x.s; // of the whole data
  double const halving = (2 * c.beta + c.gamma) * x.s * x.share();
  switch (algorithm) {
  case Algorithm::main_device: return 2 * (x.n - 1) * message + (x.n - 1) * c.gamma * x.s;
  case Algorithm::direct: return 2 * x.n * message + (x.n - 1) * c.gamma * x.s;
  case Algorithm::ring: return 2 * (x.n - 1) * c.alpha + halving;
  case Algorithm::circulant: return 2 * x.rounds() * c.alpha + halving;
  case Algorithm::tree: return x.rounds() * (2 * message + c.gamma * x.s);
  case Algorithm::butterfly:
    return x.power_of_two() ? std::optional(x.rounds() * (message + c.gamma * x.s)) : std::nullopt;
  case Algorithm::rabenseifner:
    return x.power_of_two() ? std::optional(2 * x.rounds() * c.alpha + halving) : std::nullopt;
  default: return std::nullopt;
  }
}

TimeTable time_table(Numbers const& x, MachineModel const& machine) {
  AlphaBetaGamma const constants = constants_of(machine, x.bytes);
  MachineModel const without_start = uniform_machine({0, constants.beta, 0});
  MachineModel const uniform = uniform_machine(constants);
  TimeTable table{x.bytes, constants, {}};
  double const transfer = x.s * constants.beta;
  auto const add = [&](Method const& method, std::string const& taught_formula, std::optional<double> taught) {
    table.rows.push_back({method.name, taught_formula, taught, method.price_on(without_start, x),
                          closed_price(method.algorithm, x, constants), method.price_on(uniform, x),
                          method.price_on(machine, x), "", std::nullopt});
  };
  auto const add_cost = [&](std::string const& formula, double rounds) {
    table.rows.back().taught_cost_formula = formula;
    table.rows.back().taught_cost = rounds * constants.alpha + 2 * (x.n - 1) * transfer / x.n;
  };
  add(main_device, "M N / B", transfer * x.n);
  add(dedicated_server, "M N / B", transfer * x.n);
  add(naive, "", std::nullopt);
  add(ring, "2 M / B", 2 * transfer);
  add_cost("2 (N-1) (alpha + beta S/(N B))", 2 * (x.n - 1));
  add(tree, "2 M lg N / B", 2 * transfer * std::log2(x.n));
  add(pipelined_tree, "", std::nullopt);
  add(butterfly, "", std::nullopt);
  add(rabenseifner, "", std::nullopt);
  add_cost("2 ceil(lg N) alpha + 2 (N-1) beta S/(N B)", 2 * x.rounds());
  add(circulant, "", std::nullopt);
  return table;
}

std::vector<RankRow> rank_rows(Numbers const& x) {
  auto const rounds = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  bool const even = x.power_of_two();
  std::uint64_t const twice_around = 2 * x.bytes / x.ranks * (x.ranks - 1);
  std::uint64_t const folded = 2 * x.bytes / x.core * (x.core - 1) + (even ? 0 : x.bytes);
  std::uint64_t const whole = (x.ranks - 1) * x.bytes;
  std::int64_t const around = rounds(2 * (x.ranks - 1)), both_ways = rounds(2 * x.ceil);
  double const taught = 2 * x.s * x.share();
  std::string const formula = "2 S (N-1)/N";
  std::vector<RankRow> rows{
      {ring.name, around, around, 0, formula, taught, formula, twice_around},
      {"ring, 2 M each", {}, around, 0, "2 M", 2 * x.s, formula, twice_around},
      {whole_ring.name, around / 2, around / 2, 0, "(N-1) S", (x.n - 1) * x.s, "(N-1) S", whole},
      {tree.name, both_ways, both_ways, 0, "", {}, even ? "lg N S" : "ceil(lg N) S", x.ceil * x.bytes},
      {butterfly.name, rounds(x.ceil), rounds(x.floor + (even ? 0 : 2)), 0, "S lg N", x.s * std::log2(x.n),
       even ? "S lg N" : "(k+1) S", (x.floor + (even ? 0 : 1)) * x.bytes},
      {rabenseifner.name, both_ways, rounds(2 * x.floor + (even ? 0 : 2)), 0, formula, taught,
       even ? formula : "2 S (P-1)/P + S", folded},
      {circulant.name, {}, both_ways, 0, "", {}, formula, twice_around},
  };
  Method const* const methods[] = {&ring, &ring, &whole_ring, &tree, &butterfly, &rabenseifner, &circulant};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Counted const counted = count_method(*methods[i], x);
    rows[i].counted_rounds = counted.rounds;
    rows[i].counted_bytes = counted.busiest();
  }
  return rows;
}

std::vector<LoadRow> load_rows(Numbers const& x) {
  std::vector<LoadRow> rows{{tree.name, 2 * x.s * std::log2(x.n), 2 * x.ceil * x.bytes},
                            {pipelined_tree.name, {}, {}},
                            {ring.name, {}, 4 * x.bytes / x.ranks * (x.ranks - 1)}};
  Method const* const methods[] = {&tree, &pipelined_tree, &ring};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Counted const counted = count_method(*methods[i], x);
    for (std::size_t rank = 0; rank < counted.sent.size(); ++rank) {
      rows[i].counted_busiest = std::max(rows[i].counted_busiest, counted.load(rank));
      rows[i].mean += static_cast<double>(counted.load(rank)) / x.n;
    }
  }
  return rows;
}

/// First halves, then quarters, and so on, and back.
std::vector<ExchangeRow> exchange_rows(Numbers const& x) {
  std::vector<ExchangeRow> rows;
  if (!x.power_of_two()) return rows;
  auto const rounds = static_cast<int>(2 * x.floor);
  for (int round = 1; round <= rounds; ++round) {
    int const halvings = std::min(round, rounds + 1 - round);
    rows.push_back({round, fmt::format("S/{}", 1U << halvings), std::ldexp(x.s, -halvings), 0});
  }
  for (Schedule const& schedule : make_schedules(rabenseifner.problems(x).front(), rabenseifner.algorithm)) {
    TRAINSTONE_REQUIRE(schedule.rounds.size() == rows.size(), "{} rounds, not {}", schedule.rounds.size(), rows.size());
    for (std::size_t round = 0; round < rows.size(); ++round) {
      std::uint64_t sent = 0;
      for (Move const& move : schedule.rounds[round])
        if (move.action == Action::send) sent += static_cast<std::uint64_t>(move.size()) * element;
      rows[round].counted = std::max(rows[round].counted, sent);
    }
  }
  return rows;
}

std::optional<double> butterfly_until(Numbers const& x, AlphaBetaGamma const& c) {
  double const gain = (x.rounds() - 2 * x.share()) * c.beta + (x.rounds() - x.share()) * c.gamma;
  if (!x.power_of_two() || gain <= 0) return std::nullopt;
  return x.rounds() * c.alpha / gain;
}

void require_legal(int ranks, std::uint64_t bytes) {
  TRAINSTONE_REQUIRE_INPUT(ranks >= 2 && ranks <= most_taught_ranks,
                           "a lecture on {} ranks: must be 2 to {}; `commbench --simulate ranks={}` prices more", ranks,
                           most_taught_ranks, std::max(ranks, most_taught_ranks));
  std::uint64_t const step = taught_size_step(ranks);
  std::uint64_t const below = bytes / step * step;
  TRAINSTONE_REQUIRE_INPUT(bytes > 0 && bytes % step == 0,
                           "{} bytes on {} ranks: blocks must be equal, so the size must be a multiple of {}; nearest "
                           "legal values: {}{}",
                           bytes, ranks, step, below > 0 ? fmt::format("{} and ", below) : "", below + step);
}

} // namespace

std::uint64_t taught_size_step(int ranks) {
  auto const n = static_cast<std::uint64_t>(ranks);
  return element * std::lcm(n, std::bit_floor(n));
}

AlphaBetaGamma constants_of(MachineModel const& machine, std::uint64_t bytes) {
  PiecewiseLinear const& message = machine.of(Link::intra);
  auto const size = static_cast<double>(bytes);
  return {message(0), (message(size) - message(0)) / size, (machine.reduce(size) - machine.reduce(0)) / size};
}

TaughtCollectives compare_taught_collectives(int ranks, std::uint64_t bytes, MachineModel const& machine) {
  require_legal(ranks, bytes);
  Numbers const x(ranks, bytes);
  Numbers const small(ranks, element * x.ranks);
  TaughtCollectives lecture{ranks, bytes, total_rows(x), {}, rank_rows(x), load_rows(x), exchange_rows(x), {}};
  lecture.times = {time_table(x, machine), time_table(small, machine)};
  lecture.butterfly_until = butterfly_until(x, lecture.times.front().constants);
  return lecture;
}

} // namespace trainstone
