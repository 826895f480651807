// What explanations say: the states of small collectives written down by hand, and what holds for every algorithm.

#include "report/explanation_svg.hpp"
#include "report/explanation_text.hpp"

#include "comm/algorithms/registry.hpp"
#include "core/error.hpp"
#include "support/problems.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

Problem on_one_node(Collective collective, Index elements, Rank ranks) {
  return Problem::on_one_node(collective, Partition::even(elements, ranks));
}

/// The cells of a round, rank by rank.
std::vector<std::vector<std::string>> cells(Explanation const& explanation, std::size_t round) {
  std::vector<std::vector<std::string>> texts;
  for (auto const& of_rank : explanation.rounds[round].held) {
    texts.emplace_back();
    for (Contents const& contents : of_rank) texts.back().push_back(cell_text(explanation, contents));
  }
  return texts;
}

using Cells = std::vector<std::vector<std::string>>;

std::size_t occurrences(std::string const& text, std::string const& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

} // namespace

TEST_CASE("the ring on three ranks goes through the states that one draws by hand", "[report][explanation]") {
  Explanation const ring = explain(on_one_node(Collective::all_reduce, 3, 3), Algorithm::ring);
  REQUIRE(ring.rounds.size() == 5);
  CHECK(cells(ring, 0) == Cells{{"0", "0", "0"}, {"1", "1", "1"}, {"2", "2", "2"}});
  CHECK(cells(ring, 1) == Cells{{"0", "0+2", "0"}, {"1", "1", "0+1"}, {"1+2", "2", "2"}});
  CHECK(cells(ring, 2) == Cells{{"all", "0+2", "0"}, {"1", "all", "0+1"}, {"1+2", "2", "all"}});
  CHECK(cells(ring, 3) == Cells{{"all", "0+2", "all"}, {"all", "all", "0+1"}, {"1+2", "all", "all"}});
  CHECK(cells(ring, 4) == Cells(3, {"all", "all", "all"}));
  REQUIRE(ring.rounds[2].messages.size() == 3);
  ExplainedMessage const& to_1 = ring.rounds[2].messages[1];
  CHECK(to_1.from == 0);
  CHECK(to_1.to == 1);
  CHECK(cell_text(ring, to_1.contents) == "0+2");
}

TEST_CASE("a round is when things can happen, whatever number it has on each rank", "[report][explanation]") {
  // rank 1 sends first and waits until the sum comes back; rank 3 likewise
  Explanation const tree = explain(on_one_node(Collective::all_reduce, 4, 4), Algorithm::tree);
  REQUIRE(tree.rounds.size() == 5);
  auto const first_block = [&](std::size_t round) {
    std::vector<std::string> column;
    for (auto const& of_rank : cells(tree, round)) column.push_back(of_rank[0]);
    return column;
  };
  CHECK(first_block(1) == std::vector<std::string>{"0+1", "1", "2+3", "3"});
  CHECK(first_block(2) == std::vector<std::string>{"all", "1", "2+3", "3"});
  CHECK(first_block(3) == std::vector<std::string>{"all", "1", "all", "3"});
  CHECK(first_block(4) == std::vector<std::string>(4, "all"));
}

TEST_CASE("blocks and messages have their names", "[report][explanation]") {
  Explanation const gather = explain(on_one_node(Collective::all_gather, 4, 2), Algorithm::ring);
  CHECK(cells(gather, 0) == Cells{{"0", "-"}, {"-", "1"}});
  CHECK(cells(gather, 1) == Cells{{"0", "1"}, {"0", "1"}});

  Explanation const exchange = explain(on_one_node(Collective::all_to_all, 8, 2), Algorithm::pairwise);
  CHECK(cells(exchange, 0) == Cells{{"0>0", "0>1"}, {"1>0", "1>1"}});
  CHECK(cells(exchange, exchange.rounds.size() - 1) == Cells{{"0>0", "1>0"}, {"0>1", "1>1"}});

  Problem push = on_one_node(Collective::server_push, 3, 3);
  push.partition = server_partition(3, 2, 1);
  push.servers = 1;
  Explanation const pushed = explain(push, Algorithm::direct);
  CHECK(place_name(pushed, 2) == "block 0");
  CHECK(rank_name(pushed, 2) == "rank 2, server 0");
  CHECK(cells(pushed, 1)[2][2] == "all"); // of the workers
}

TEST_CASE("parts of a block that hold different things are told apart", "[report][explanation]") {
  Explanation const both_ways = explain(on_one_node(Collective::all_reduce, 6, 3), Algorithm::bidirectional_ring);
  auto const halves = cells(both_ways, 1);
  CHECK(std::ranges::any_of(halves[0], [](std::string const& text) { return text.find('|') != std::string::npos; }));
}

TEST_CASE("many contributions are written in runs", "[report][explanation]") {
  Explanation const tree = explain(on_one_node(Collective::reduce, 16, 16), Algorithm::binomial);
  CHECK(cells(tree, 3)[0][0] == "0..7");
  CHECK(cells(tree, 3)[8][5] == "8..15");
  CHECK(cell_text(tree, {{1, 0, {0, 1, 2, 4, 6, 7, 9}}}) == "0..2+4+6+7+9");
  CHECK(cell_text(tree, {{1, 0, {0, 1, 2, 4, 6, 7}}}) == "0+1+2+4+6+7");
}

TEST_CASE("what neighbours write in shared memory is seen in the owner's cells", "[report][explanation]") {
  Problem problem = on_one_node(Collective::all_reduce, 2, 2);
  problem.shared_memory = true;
  Explanation const shared = explain(problem, Algorithm::shared);
  REQUIRE(shared.rounds.size() == 4);
  CHECK(cells(shared, 1) == cells(shared, 0)); // a barrier
  CHECK(cells(shared, 2) == Cells(2, {"all", "all"}));
  std::string const text = explanation_text(shared);
  CHECK_THAT(text, ContainsSubstring("ranks 0, 1: node barrier"));
  CHECK_THAT(text, ContainsSubstring("rank 1: combine of data [1, 2) of all neighbours"));
  CHECK_THAT(text, ContainsSubstring("node barriers: 2"));
  CHECK_THAT(explanation_svg(shared), ContainsSubstring("class=\"memory\""));
}

TEST_CASE("a barrier shows who has heard of whom", "[report][explanation]") {
  Explanation const barrier = explain(on_one_node(Collective::barrier, 0, 3), Algorithm::dissemination);
  CHECK(cells(barrier, 0) == Cells{{"0"}, {"1"}, {"2"}});
  CHECK(cells(barrier, 1) == Cells{{"0+2"}, {"0+1"}, {"1+2"}});
  CHECK(cells(barrier, 2) == Cells(3, {"all"}));
}

TEST_CASE("the text has a table per round, marks what is new, and ends with the counts", "[report][explanation]") {
  std::string const text = explanation_text(explain(on_one_node(Collective::all_reduce, 4, 2), Algorithm::ring));
  CHECK(text == R"(all_reduce ring on 2 ranks, 1 node, 4 elements
Every rank holds data; all end with the sum over ranks.

A cell names the ranks whose contributions are added up there: "-" nothing, "|" in parts of the block; * is new.

start
          block 0  block 1
          [0, 2)   [2, 4)
  rank 0  0        0
  rank 1  1        1

after round 1
          block 0  block 1
          [0, 2)   [2, 4)
  rank 0  all*     0
  rank 1  1        all*
  messages
    rank 1 -> rank 0: data [0, 2) to scratch [0, 2), holding 1
    rank 0 -> rank 1: data [2, 4) to scratch [0, 2), holding 0
  in memory
    rank 0: reduce of scratch [0, 2) into data [0, 2)
    rank 1: reduce of scratch [0, 2) into data [2, 4)

after round 2
          block 0  block 1
          [0, 2)   [2, 4)
  rank 0  all      all*
  rank 1  all*     all
  messages
    rank 1 -> rank 0: data [2, 4) to data [2, 4), holding all
    rank 0 -> rank 1: data [0, 2) to data [0, 2), holding all

longest chain of messages: 2
busiest rank: 2 messages, 4 elements sent, 2 added
all ranks: 4 messages, 8 elements sent, 4 added
)");
}

TEST_CASE("the picture has a panel per round, a cell per block and an arrow per message", "[report][explanation]") {
  Explanation const ring = explain(on_one_node(Collective::all_reduce, 10, 5), Algorithm::ring);
  std::string const svg = explanation_svg(ring);
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(occurrences(svg, ">after round ") == 8);
  CHECK(occurrences(svg, "<rect x=") == 9 * 25);
  CHECK(occurrences(svg, "class=\"arrow\"") == 8 * 5);
  CHECK(occurrences(svg, "<text") == occurrences(svg, "</text>"));
  std::string const exchange = explanation_svg(explain(on_one_node(Collective::all_to_all, 2, 2), Algorithm::pairwise));
  CHECK_THAT(exchange, ContainsSubstring(">1&gt;0<"));
}

TEST_CASE("every algorithm is explained to its end, with all its messages", "[report][explanation]") {
  for (RegisteredAlgorithm const& line : registered_algorithms()) {
    for (Rank const ranks : {3, 4, 7}) {
      test::NamedProblem const named = test::typical_problem(line, ranks);
      INFO(test::name_of(line) << " on " << ranks << " ranks, " << named.name);
      Explanation const explanation = explain(named.problem, line.algorithm);
      std::uint64_t messages = 0;
      for (ExplainedRound const& round : explanation.rounds) messages += round.messages.size();
      CHECK(messages == explanation.counts.total.messages);
      CHECK(std::ssize(explanation.rounds) > explanation.counts.rounds);
      std::string const svg = explanation_svg(explanation);
      CHECK(occurrences(svg, "class=\"arrow\"") == messages);
      CHECK(svg.find("nan") == std::string::npos);
      CHECK_THAT(explanation_text(explanation), ContainsSubstring(test::name_of(line)));
    }
  }
}

TEST_CASE("what cannot be explained is refused with the reason", "[report][explanation]") {
  CHECK_THROWS_AS(explain(on_one_node(Collective::all_reduce, 2, 2), Algorithm::shared), InputError);
  Problem long_pipeline = on_one_node(Collective::all_reduce, 1000, 2);
  long_pipeline.segment = 1;
  CHECK_THROWS_MATCHES(explain(long_pipeline, Algorithm::segmented_ring), InputError,
                       MessageMatches(ContainsSubstring("longer segments")));
}
