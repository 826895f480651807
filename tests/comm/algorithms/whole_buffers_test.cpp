// All-reduces that send whole buffers: naive, ring of whole buffers, main device, binomial tree, pipelined tree. The
// closed forms do not depend on the partition; of no elements nothing is sent.

#include "comm/algorithms/totals.hpp"

#include <fmt/format.h>

#include <algorithm>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// Of n > 1 ranks and s > 0 elements.
struct ClosedForm {
  Row row;
  Index messages_of_all;
  Index reduced_by_all;
};

ClosedForm closed_form(Algorithm algorithm, Rank n, Index s) {
  Index const others = n - 1;
  Index const levels = ceil_lg(n);
  switch (algorithm) {
  case Algorithm::naive: return {{1, others, others * s, n * others * s, others * s}, n * others, n * others * s};
  case Algorithm::whole_ring:
    return {{others, others, others * s, n * others * s, others * s}, n * others, n * others * s};
  case Algorithm::main_device: return {{2, others, others * s, 2 * others * s, others * s}, 2 * others, others * s};
  default: return {{2 * levels, levels, levels * s, 2 * others * s, levels * s}, 2 * others, others * s}; // tree
  }
}

Problem all_reduce(Partition const& partition) { return Problem::on_one_node(Collective::all_reduce, partition); }

/// 0 ... ranks-1 one after the other: "(((0+1)+2)+3)"
std::string tree_in_rank_order(Rank ranks) {
  std::string tree = "0";
  for (Rank rank = 1; rank < ranks; ++rank) tree = fmt::format("({}+{})", tree, rank);
  return tree;
}

} // namespace

TEST_CASE("all-reduces of whole buffers send and add what the closed forms say", "[comm][algorithms]") {
  for (Algorithm const algorithm : {Algorithm::naive, Algorithm::whole_ring, Algorithm::main_device, Algorithm::tree}) {
    for (Rank const ranks : ranks_to_try()) {
      for (std::vector<Index> const& sizes : block_sizes_to_try(ranks)) {
        Index const elements = sum_of(sizes, 0, sizes.size());
        INFO(to_string(algorithm) << ", " << text_of(sizes));
        bool const nothing = ranks == 1 || elements == 0;
        ClosedForm const form = nothing ? ClosedForm{} : closed_form(algorithm, ranks, elements);
        CollectiveCounts const counts = counted(all_reduce(Partition::of_sizes(sizes)), algorithm);
        check_row(counts, form.row);
        CHECK(counts.total == in_all(form.messages_of_all, form.row.total, form.reduced_by_all));
      }
    }
  }
}

TEST_CASE("naive, whole ring and main device add in the order of ranks on every rank", "[comm][algorithms]") {
  for (Algorithm const algorithm : {Algorithm::naive, Algorithm::whole_ring, Algorithm::main_device}) {
    for (Rank const ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
      INFO(to_string(algorithm) << " on " << ranks);
      Problem problem = all_reduce(Partition::even(11, ranks));
      CHECK(common_tree(problem, algorithm, 10) == without_order(tree_in_rank_order(ranks)));
      problem.topology = Topology::cyclic(ranks, std::min(ranks, 3)); // the ring no longer goes by ranks
      CHECK(common_tree(problem, algorithm, 0) == without_order(tree_in_rank_order(ranks)));
    }
  }
}

TEST_CASE("the binomial tree adds in the balanced tree, the same on every rank", "[comm][algorithms]") {
  for (Rank const ranks : {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31}) {
    INFO(ranks << " ranks");
    CHECK(common_tree(all_reduce(Partition::even(5, ranks)), Algorithm::tree, 4) ==
          without_order(balanced_tree(ranks)));
  }
  CHECK(common_tree(all_reduce(Partition::even(1, 6)), Algorithm::tree, 0) == without_order("(((0+1)+(2+3))+(4+5))"));
}

TEST_CASE("the pipelined tree has one tree for all ranks and segments", "[comm][algorithms]") {
  for (Rank const ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    Problem problem = all_reduce(Partition::even(29, ranks));
    problem.segment = 4;
    std::string const tree = reduction_tree(problem, make_schedules(problem, Algorithm::pipelined_tree), 0, 0);
    for (Index element = 0; element < 29; element += 7) {
      INFO(ranks << " ranks, element " << element);
      CHECK(common_tree(problem, Algorithm::pipelined_tree, element) == without_order(tree));
    }
  }
  CHECK(common_tree(all_reduce(Partition::even(1, 5)), Algorithm::pipelined_tree, 0) ==
        without_order("((0+(1+2))+(3+4))"));
}

TEST_CASE("the pipelined tree is proved for segments of any length, on any nodes", "[comm][algorithms]") {
  for (Rank const ranks : ranks_to_try()) {
    for (Index const segment : {1, 3, 7, 40, 0}) {
      Problem problem = all_reduce(Partition::even(40, ranks));
      problem.segment = segment;
      INFO(ranks << " ranks, segments of " << segment);
      CHECK(defect_of(problem, Algorithm::pipelined_tree) == "");
      problem.topology = Topology::cyclic(ranks, std::min(ranks, 3));
      CHECK(defect_of(problem, Algorithm::pipelined_tree) == "");
    }
  }
}

TEST_CASE("the pipelined tree sends every segment up and down each edge, at most three steps per level",
          "[comm][algorithms]") {
  for (Rank const ranks : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33}) {
    Rank const depth = floor_lg(ranks);
    for (Index const elements : {0, 1, 3, 30, 1009}) {
      for (Index const segment : {1, 3, 7, 2000, 0}) {
        Problem problem = all_reduce(Partition::even(elements, ranks));
        problem.segment = segment;
        Index const segments = segment == 0 ? (elements > 0 ? 1 : 0) : (elements + segment - 1) / segment;
        INFO(ranks << " ranks, " << elements << " elements, segments of " << segment);
        CollectiveCounts const counts = counted(problem, Algorithm::pipelined_tree);
        CHECK(counts.total == in_all(2 * (ranks - 1) * segments, 2 * (ranks - 1) * elements, (ranks - 1) * elements));
        bool const nothing = ranks == 1 || segments == 0;
        CHECK(counts.rounds <= (nothing ? 0 : segments + 3 * depth - 1));
        CHECK(counts.rounds >= (nothing ? 0 : segments + 2 * depth - 1));
        CHECK(counts.busiest.messages <= static_cast<std::uint64_t>(3 * segments));
        CHECK(counts.busiest.bytes <= static_cast<std::uint64_t>(3 * elements) * bytes_of_float);
      }
    }
  }
}

TEST_CASE("the pipelined tree adds while messages are under way", "[comm][algorithms]") {
  Problem problem = all_reduce(Partition::even(100, 13));
  problem.segment = 9;
  Index additions = 0;
  for (Schedule const& schedule : make_schedules(problem, Algorithm::pipelined_tree)) {
    for (Round const& round : schedule.rounds) {
      auto const first_message = std::ranges::find_if(round, &Move::is_message);
      CHECK(first_message != round.end());
      CHECK(std::ranges::none_of(first_message, round.end(), &Move::is_local));
      additions += first_message - round.begin();
    }
  }
  CHECK(additions == 12 * 12); // 12 segments on 12 edges
}

TEST_CASE("the pipelined tree crosses a node border at most once per level, and once more", "[comm][algorithms]") {
  for (Rank const ranks : {16, 64}) {
    for (Topology const& topology : {Topology::block(ranks, 4), Topology::cyclic(ranks, 4)}) {
      Problem problem = all_reduce(Partition::even(10, ranks));
      problem.topology = topology;
      CollectiveCounts const counts = counted(problem, Algorithm::pipelined_tree);
      Index const borders = 3;
      CHECK(counts.total.messages == static_cast<std::uint64_t>(2 * (ranks - 1)));
      CHECK(counts.total.inter_messages <= static_cast<std::uint64_t>(2 * borders * (floor_lg(ranks) + 1)));
      CHECK(counts.total.inter_messages >= static_cast<std::uint64_t>(2 * borders));
    }
  }
}

TEST_CASE("the whole ring crosses each node border once per round", "[comm][algorithms]") {
  for (Topology const& topology : {Topology::block(12, 3), Topology::cyclic(12, 3), Topology({0, 1, 1, 2, 0, 1, 2})}) {
    Problem problem = all_reduce(Partition::even(10, topology.ranks()));
    problem.topology = topology;
    CollectiveCounts const counts = counted(problem, Algorithm::whole_ring);
    CHECK(counts.total.inter_messages == static_cast<std::uint64_t>(3 * (topology.ranks() - 1)));
  }
}

TEST_CASE("segments pay on the pipelined tree as soon as messages are long", "[comm][algorithms]") {
  MachineModel const machine = uniform_machine({.alpha = 1, .beta = 1, .gamma = 0.25});
  for (Rank const ranks : {4, 7, 16, 33}) {
    Problem problem = all_reduce(Partition::even(4096, ranks));
    problem.segment = 4096;
    double const whole = price(problem, Algorithm::pipelined_tree, bytes_of_float, machine);
    problem.segment = 128;
    double const segmented = price(problem, Algorithm::pipelined_tree, bytes_of_float, machine);
    INFO(ranks << " ranks: " << whole << " s in one piece, " << segmented << " s in segments");
    CHECK(segmented < 0.75 * whole);
  }
}
