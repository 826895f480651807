// The closed forms of the algorithms in a node's shared memory: no message, reads and writes instead; and the tree that
// sums are evaluated in.

#include "comm/algorithms/closed_forms.hpp"
#include "core/error.hpp"
#include "support/problems.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;

namespace {

Problem shared_problem(Collective collective, Partition const& partition, Rank root = 0) {
  Problem problem = Problem::on_one_node(collective, partition);
  problem.root = root;
  problem.shared_memory = true;
  return problem;
}

struct SharedRow {
  Index barriers;
  Index busiest; ///< elements read and written by the busiest rank
  Index total;   ///< by all ranks
  Index reduced; ///< by the busiest rank
};

void check_shared_row(CollectiveCounts const& counts, SharedRow const& row) {
  CHECK(counts.rounds == 0);
  CHECK(counts.barriers == row.barriers);
  CHECK(counts.total.messages == 0);
  CHECK(counts.total.bytes == 0);
  CHECK(counts.busiest.shared_bytes == in_bytes(row.busiest));
  CHECK(counts.total.shared_bytes == in_bytes(row.total));
  CHECK(counts.busiest.reduced == static_cast<std::uint64_t>(row.reduced));
}

std::vector<Partition> partitions_to_try(Rank n) {
  std::vector<Partition> partitions{Partition::even(2 * n + 1, n), Partition::even(3, n)};
  for (auto const& sizes : uneven_block_sizes(n)) partitions.push_back(Partition::of_sizes(sizes));
  return partitions;
}

struct Line {
  Collective collective;
  Algorithm algorithm;
};
constexpr Line lines[] = {
    {Collective::all_reduce, Algorithm::shared},         {Collective::all_reduce, Algorithm::shared_copy},
    {Collective::reduce_scatter, Algorithm::shared},     {Collective::all_gather, Algorithm::shared},
    {Collective::broadcast, Algorithm::shared},          {Collective::reduce, Algorithm::shared},
    {Collective::all_reduce, Algorithm::shared_mailbox}, {Collective::reduce_scatter, Algorithm::shared_mailbox},
    {Collective::all_gather, Algorithm::shared_mailbox}, {Collective::broadcast, Algorithm::shared_mailbox},
    {Collective::all_gather, Algorithm::shared_push},    {Collective::broadcast, Algorithm::shared_push}};

} // namespace

TEST_CASE("counts in shared memory equal the closed forms where N divides S", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    if (n == 1) continue;
    INFO(n << " ranks");
    Index const block = 12;
    Index const s = block * n;
    Partition const even = Partition::even(s, n);
    auto const counts = [&](Collective collective, Algorithm algorithm, Rank root = 0) {
      return counted(shared_problem(collective, even, root), algorithm);
    };
    check_shared_row(counts(Collective::all_reduce, Algorithm::shared), {2, 2 * s, 2 * n * s, block * (n - 1)});
    // (n + 1) blocks for the sum, two for each copy
    check_shared_row(counts(Collective::all_reduce, Algorithm::shared_copy),
                     {3, block * (3 * n - 1), (3 * n - 1) * s, block * (n - 1)});
    check_shared_row(counts(Collective::reduce_scatter, Algorithm::shared),
                     {2, block * (n + 1), (n + 1) * s, block * (n - 1)});
    check_shared_row(counts(Collective::all_gather, Algorithm::shared), {2, 2 * block * (n - 1), 2 * (n - 1) * s, 0});
    for (Rank const root : {0, n / 2, n - 1}) {
      check_shared_row(counts(Collective::broadcast, Algorithm::shared, root),
                       {2, 2 * block * (n - 1), 2 * (n - 1) * s, 0});
      check_shared_row(counts(Collective::reduce, Algorithm::shared, root),
                       {2, block * (n + 1), (n + 1) * s, block * (n - 1)});
    }
  }
}

TEST_CASE("counts in shared memory equal the exact sums of block sizes", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    if (n == 1) continue;
    for (Partition const& partition : partitions_to_try(n)) {
      INFO(n << " ranks, " << partition.elements() << " elements, largest block " << partition.largest());
      Index const s = partition.elements();
      Index const largest = partition.largest();
      auto const barriers = [&](Index some) { return s > 0 ? some : 0; };
      check_shared_row(counted(shared_problem(Collective::all_reduce, partition), Algorithm::shared),
                       {barriers(2), 2 * n * largest, 2 * n * s, (n - 1) * largest});
      check_shared_row(counted(shared_problem(Collective::reduce_scatter, partition), Algorithm::shared),
                       {barriers(2), (n + 1) * largest, (n + 1) * s, (n - 1) * largest});
      CollectiveCounts const copies =
          counted(shared_problem(Collective::all_reduce, partition), Algorithm::shared_copy);
      CHECK(copies.barriers == barriers(3));
      CHECK(copies.total.shared_bytes == in_bytes((3 * n - 1) * s));
      CHECK(copies.busiest.reduced == static_cast<std::uint64_t>((n - 1) * largest));
      // a rank copies what is not its own, the one with the smallest block most
      Index smallest = s;
      for (Rank rank = 0; rank < n; ++rank) smallest = std::min(smallest, partition.size(rank));
      check_shared_row(counted(shared_problem(Collective::all_gather, partition), Algorithm::shared),
                       {barriers(2), 2 * (s - smallest), 2 * (n - 1) * s, 0});
    }
  }
}

TEST_CASE("bytes in shared memory are those that moves beyond a rank's own memory read and write, element by element",
          "[comm][algorithms]") {
  // a reduce reads both sides, every neighbour's memory is another one
  auto const touched = [](Move const& move, Schedule const& schedule) {
    std::uint64_t elements = 0;
    bool is_beyond = false;
    auto const touch = [&](Slice const& slice) {
      std::vector<Rank> owners{slice.owner};
      if (slice.owner == every_neighbour) owners = schedule.neighbours;
      for (std::size_t owner = 0; owner < owners.size(); ++owner) {
        is_beyond = is_beyond || slice.owner != own_memory;
        for (Index element = slice.range.begin; element < slice.range.end; ++element) ++elements;
      }
    };
    touch(move.from);
    touch(move.to);
    if (move.action == Action::reduce) touch(move.to);
    return is_beyond ? elements : 0;
  };
  int seen = 0;
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    for (Rank const n : {2, 3, 4, 7, 8}) {
      if (!line.uses_shared_memory()) continue;
      for (NamedProblem const& named : problems_for(line, n)) {
        INFO(name_of(line) << ", " << named.name);
        for (Schedule const& schedule : make_schedules(named.problem, line.algorithm)) {
          std::uint64_t elements = 0;
          for (Round const& round : schedule.rounds)
            for (Move const& move : round)
              if (move.is_local()) elements += touched(move, schedule);
          CHECK(predict_traffic(schedule, named.problem.topology, bytes_of_float).shared_bytes ==
                elements * bytes_of_float);
          seen += elements > 0 ? 1 : 0;
        }
      }
    }
  }
  CHECK(seen > 100);
}

TEST_CASE("owners push what neighbours would fetch: as many bytes, by other ranks", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    if (n == 1) continue;
    for (Partition const& partition : partitions_to_try(n)) {
      INFO(n << " ranks, " << partition.elements() << " elements, largest block " << partition.largest());
      Index const s = partition.elements();
      Index const barriers = s > 0 ? 2 : 0;
      // a rank writes its block n - 1 times, the one with the largest block most
      check_shared_row(counted(shared_problem(Collective::all_gather, partition), Algorithm::shared_push),
                       {barriers, 2 * (n - 1) * partition.largest(), 2 * (n - 1) * s, 0});
      check_shared_row(counted(shared_problem(Collective::broadcast, partition, n - 1), Algorithm::shared_push),
                       {barriers, 2 * (n - 1) * s, 2 * (n - 1) * s, 0});
    }
  }
}

TEST_CASE("through mailboxes there is one barrier, and everybody fetches or adds up what it needs",
          "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    if (n == 1) continue;
    for (Partition const& partition : partitions_to_try(n)) {
      if (partition.elements() == 0 || partition.elements() > mailbox_elements) continue;
      INFO(n << " ranks, " << partition.elements() << " elements, largest block " << partition.largest());
      Index const s = partition.elements();
      Index const largest = partition.largest();
      Index smallest = s;
      for (Rank rank = 0; rank < n; ++rank) smallest = std::min(smallest, partition.size(rank));
      auto const counts = [&](Collective collective) {
        return counted(shared_problem(collective, partition, has_root(collective) ? n - 1 : 0),
                       Algorithm::shared_mailbox);
      };
      check_shared_row(counts(Collective::all_reduce), {1, (n + 1) * s, n * (n + 1) * s, (n - 1) * s});
      check_shared_row(counts(Collective::reduce_scatter), {1, (n + 1) * largest, (n + 1) * s, (n - 1) * largest});
      check_shared_row(counts(Collective::all_gather), {1, 2 * (s - smallest), 2 * (n - 1) * s, 0});
      check_shared_row(counts(Collective::broadcast), {1, 2 * s, 2 * (n - 1) * s, 0});
    }
  }
}

TEST_CASE("mailboxes hold a fixed number of elements, and more are refused", "[comm][algorithms]") {
  for (Collective const collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast}) {
    Problem const largest = shared_problem(collective, Partition::even(mailbox_elements, 3));
    CHECK(defect_of(largest, Algorithm::shared_mailbox) == "");
    Problem const larger = shared_problem(collective, Partition::even(mailbox_elements + 1, 3));
    CHECK(refusal(larger, Algorithm::shared_mailbox) ==
          fmt::format("{} shared_mailbox is for up to 125 elements", to_string(collective)));
    CHECK_THROWS_AS(make_schedule(larger, Algorithm::shared_mailbox, 0), InputError);
  }
}

TEST_CASE("a rank alone and an empty buffer need no barrier", "[comm][algorithms]") {
  for (Line const& line : lines) {
    CHECK(make_schedule(shared_problem(line.collective, Partition::even(7, 1)), line.algorithm, 0).rounds.empty());
    CHECK(make_schedule(shared_problem(line.collective, Partition::even(0, 3)), line.algorithm, 1).rounds.empty());
  }
}

TEST_CASE("sums in shared memory are evaluated in the balanced tree over the ranks on every rank",
          "[comm][algorithms]") {
  for (Rank n = 1; n <= 17; ++n) {
    for (Partition const& partition : partitions_to_try(n)) {
      for (Algorithm const algorithm : {Algorithm::shared, Algorithm::shared_copy, Algorithm::shared_mailbox}) {
        Problem const problem = shared_problem(Collective::all_reduce, partition);
        if (!refusal(problem, algorithm).empty()) continue;
        auto const schedules = make_schedules(problem, algorithm);
        for (Index element = 0; element < partition.elements(); element += 3) {
          INFO(to_string(algorithm) << " of " << n << " ranks, element " << element);
          for (Rank const rank : {0, n - 1}) {
            CHECK(reduction_tree(problem, schedules, rank, element) == balanced_tree(n));
          }
        }
      }
      Problem const scatter = shared_problem(Collective::reduce_scatter, partition);
      auto const schedules = make_schedules(scatter, Algorithm::shared);
      for (Rank rank = 0; rank < n; ++rank) {
        if (partition.size(rank) == 0) continue;
        CHECK(reduction_tree(scatter, schedules, rank, partition.range(rank).begin) == balanced_tree(n));
      }
      if (partition.elements() == 0) continue;
      Problem const reduce = shared_problem(Collective::reduce, partition, n / 2);
      CHECK(reduction_tree(reduce, make_schedules(reduce, Algorithm::shared), n / 2, partition.elements() - 1) ==
            balanced_tree(n));
    }
  }
}

TEST_CASE("algorithms in shared memory have no defect", "[comm][algorithms]") {
  for (Rank const n : ranks_to_try()) {
    if (n > 33) continue;
    for (Partition const& partition : partitions_to_try(n)) {
      for (Line const& line : lines) {
        if (partition.elements() > find_algorithm(line.collective, line.algorithm).most_elements) continue;
        INFO(to_string(line.collective) << ' ' << to_string(line.algorithm) << " of " << n << " ranks, "
                                        << partition.elements() << " elements");
        for (Rank const root : {0, n - 1}) {
          if (root > 0 && !has_root(line.collective)) continue;
          CHECK(defect_of(shared_problem(line.collective, partition, root), line.algorithm) == "");
        }
      }
    }
  }
}

TEST_CASE("without any one of its barriers an algorithm in shared memory is refuted", "[comm][algorithms]") {
  for (Line const& line : lines) {
    Problem const problem = shared_problem(line.collective, Partition::even(7, 3));
    auto const schedules = make_schedules(problem, line.algorithm);
    Round const barrier{Move::node_barrier()};
    for (Index which = 0; which < std::ranges::count(schedules[0].rounds, barrier); ++which) {
      auto broken = schedules;
      for (Schedule& schedule : broken) {
        auto found = std::ranges::find(schedule.rounds, barrier);
        for (Index i = 0; i < which; ++i) found = std::find(found + 1, schedule.rounds.end(), barrier);
        schedule.rounds.erase(found);
      }
      INFO(to_string(line.collective) << ' ' << to_string(line.algorithm) << " without barrier " << which);
      auto const finding = find_defect(problem, broken);
      REQUIRE(finding);
      CHECK(finding->defect == Defect::read_while_written);
    }
  }
}

TEST_CASE("algorithms in shared memory refuse several nodes and private buffers", "[comm][algorithms]") {
  for (Line const& line : lines) {
    Problem problem = shared_problem(line.collective, Partition::even(12, 4));
    problem.shared_memory = false;
    CHECK_THAT(refusal(problem, line.algorithm), ContainsSubstring("needs buffers in the node's shared memory"));
    problem.shared_memory = true;
    problem.topology = Topology::block(4, 2);
    CHECK_THAT(refusal(problem, line.algorithm), ContainsSubstring("works inside one node, and the"));
    CHECK_THROWS_AS(make_schedule(problem, line.algorithm, 0), InputError);
  }
}
