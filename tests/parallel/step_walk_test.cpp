// The walk through a training step: what it sends against the plan and against closed forms, and what ranks hold where
// a strategy is drawn by hand.

#include "parallel/program/shard_traffic.hpp"
#include "parallel/program/step_walk.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <utility>

using namespace trainstone;

namespace {

StepWalk walk_small(ParallelConfig const& parallel, Rank ranks, Index layers = 2,
                    PrecisionConfig const& precision = {}) {
  GptConfig const model{.layers = layers, .heads = 1, .channels = 8, .context = 8, .vocab = 16};
  ParameterTable const table(model, mesh_of(parallel, ranks).parts(), {}, parallel.unit);
  return walk_step(parallel, {}, table, Topology::one_node(ranks), precision);
}

std::uint64_t sent(StepWalk const& walk, Rank rank) {
  std::uint64_t sum = 0;
  for (WalkedCollective const& collective : collectives_of(walk))
    sum += collective.traffic[static_cast<std::size_t>(rank)].bytes;
  return sum;
}

std::uint64_t messages(StepWalk const& walk, Rank rank) {
  std::uint64_t sum = 0;
  for (WalkedCollective const& collective : collectives_of(walk))
    sum += collective.traffic[static_cast<std::size_t>(rank)].messages;
  return sum;
}

Moment const& moment(StepWalk const& walk, std::string const& name) {
  return *std::ranges::find(walk.moments, name, &Moment::name);
}

std::vector<Holding> parameters(Moment const& moment) {
  std::vector<Holding> all;
  for (UnitState const& state : moment.states) all.push_back(state.parameters);
  return all;
}

std::vector<Holding> gradients(Moment const& moment) {
  std::vector<Holding> all;
  for (UnitState const& state : moment.states) all.push_back(state.gradient);
  return all;
}

/// "parameters of root; gradient of block 1"
std::string whats(std::vector<WalkedCollective> const& collectives) {
  std::string text;
  for (WalkedCollective const& collective : collectives) text += (text.empty() ? "" : "; ") + collective.what;
  return text;
}

ParallelConfig zero(Index stage) { return {.strategy = Strategy::zero, .zero_stage = stage}; }

ParallelConfig by_all_reduce(Index stage) {
  ParallelConfig parallel = zero(stage);
  parallel.gradient_reduction = GradientReductionWay::all_reduce;
  return parallel;
}

ParallelConfig with_owners(Index stage) {
  ParallelConfig parallel = zero(stage);
  parallel.partition = StatePartition::inter_layer;
  return parallel;
}

constexpr Holding nothing = Holding::nothing, share = Holding::share, own = Holding::own,
                  under_way = Holding::under_way, whole = Holding::whole, copy = Holding::copy;

using Held = std::vector<Holding>;

/// By rank, what it has of a unit.
Held parameters_by_rank(StepWalk const& walk, std::string const& name, Index unit) {
  Held held;
  for (Rank rank = 0; rank < walk.ranks(); ++rank)
    held.push_back(held_by(walk.layout(), unit, rank, StatePart::parameters,
                           moment(walk, name).states[static_cast<std::size_t>(unit)].parameters));
  return held;
}
Held gradients_by_rank(StepWalk const& walk, std::string const& name, Index unit) {
  Held held;
  for (Rank rank = 0; rank < walk.ranks(); ++rank)
    held.push_back(held_by(walk.layout(), unit, rank, StatePart::gradient,
                           moment(walk, name).states[static_cast<std::size_t>(unit)].gradient));
  return held;
}

} // namespace

TEST_CASE("the walk sends what the plan says, however far it gathers ahead", "[parallel][walk]") {
  Rank const ranks = GENERATE(1, 2, 3, 4, 7, 8);
  Index const prefetch = GENERATE(0, 1, 2, 9), layers = GENERATE(1, 2, 3);
  std::vector<ParallelConfig> all{{}, zero(1), zero(2), zero(3)};
  for (Index const stage : {1, 2}) all.push_back(by_all_reduce(stage));
  for (Index const stage : {1, 2, 3}) all.push_back(with_owners(stage));
  for (Granularity const granularity : {Granularity::step, Granularity::tensor})
    all.push_back({.granularity = granularity});
  if (ranks % 2 == 0) all.push_back({.strategy = Strategy::hsdp, .shard_group = 2});
  all.push_back({.strategy = Strategy::naive});
  for (ParallelConfig& parallel : all) {
    parallel.prefetch = prefetch;
    parallel.unit = layers == 3 ? 2 : 1;
    StepWalk const walk = walk_small(parallel, ranks, layers);
    INFO(to_string(parallel.strategy) << " stage " << parallel.zero_stage << " on " << ranks << " ranks, prefetch "
                                      << prefetch);
    for (Rank rank = 0; rank < ranks; ++rank) {
      Traffic planned;
      for (TrafficRow const& row : step_traffic(walk.plans[static_cast<std::size_t>(rank)])) planned += row.traffic;
      CHECK(sizeof(float) * sent(walk, rank) == planned.bytes);
      CHECK(messages(walk, rank) == planned.messages);
    }
  }
}

TEST_CASE("a step sends 2 (N-1)/N of the parameters, fully sharded 3 (N-1)/N", "[parallel][walk]") {
  auto const ranks = static_cast<std::uint64_t>(GENERATE(2, 3, 4, 5, 8));
  for (auto const& [parallel, times] : {std::pair{ParallelConfig{}, 2},
                                        {zero(1), 2},
                                        {by_all_reduce(1), 3},
                                        {zero(2), 2},
                                        {by_all_reduce(2), 3},
                                        {zero(3), 3}}) {
    StepWalk const walk = walk_small(parallel, static_cast<Rank>(ranks));
    auto const psi = static_cast<std::uint64_t>(walk.plan().layout.elements());
    for (Rank rank = 0; rank < walk.ranks(); ++rank)
      CHECK(ranks * sent(walk, rank) == static_cast<std::uint64_t>(times) * (ranks - 1) * psi);
  }
}

TEST_CASE("hybrid sharding reduces in the group first, and sums meet across replicas while the next bucket is reduced",
          "[parallel][walk]") {
  StepWalk const walk = walk_small({.strategy = Strategy::hsdp, .shard_group = 2}, 6);
  std::vector<WalkedCollective> const& after = moment(walk, "backward block 0").after;
  REQUIRE(after.size() == 2);
  CHECK(after[0].planned.axis == Axis::replica);
  CHECK(after[0].planned.problem.collective == Collective::all_reduce);
  CHECK(after[0].what == "its share of the gradient of block 1");
  CHECK(after[1].planned.axis == Axis::shard);
  CHECK(after[1].planned.problem.collective == Collective::reduce_scatter);
  CHECK(after[1].what == "gradient of block 0");
}

TEST_CASE("a fully sharded step goes through the moments that one draws by hand", "[parallel][walk]") {
  StepWalk const walk = walk_small(zero(3), 4);
  std::vector<std::string> names;
  for (Moment const& one : walk.moments) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{"start", "forward embed", "forward block 0", "forward block 1",
                                          "forward head", "backward head", "backward block 1", "backward block 0",
                                          "backward embed", "update"});
  // with one group gathered ahead of the one in use
  CHECK(whats(moment(walk, "start").before) == "parameters of root; parameters of block 0");
  CHECK(parameters(moment(walk, "forward embed")) == Held{whole, under_way, share});
  CHECK(parameters(moment(walk, "forward block 0")) == Held{share, whole, under_way});
  CHECK(parameters(moment(walk, "forward block 1")) == Held{under_way, share, whole}); // root again, for the head
  CHECK(moment(walk, "forward block 1").dropped == std::vector<Index>{1});
  CHECK(parameters(moment(walk, "forward head")) == Held{whole, share, under_way});
  CHECK(parameters(moment(walk, "backward head")) == Held{whole, share, under_way}); // kept, nothing gathered
  CHECK(whats(moment(walk, "backward head").before).empty());
  CHECK(parameters(moment(walk, "backward block 1")) == Held{share, under_way, whole});
  CHECK(parameters(moment(walk, "update")) == Held{share, share, share});

  CHECK(gradients(moment(walk, "forward head")) == Held{nothing, nothing, nothing});
  CHECK(gradients(moment(walk, "backward head")) == Held{own, nothing, nothing}); // root's, embed adds to it
  CHECK(whats(moment(walk, "backward head").after).empty());
  CHECK(gradients(moment(walk, "backward block 1")) == Held{own, nothing, own});
  CHECK(whats(moment(walk, "backward block 1").after) == "gradient of block 1");
  CHECK(gradients(moment(walk, "backward block 0")) == Held{own, own, under_way});
  CHECK(whats(moment(walk, "backward embed").after) == "gradient of root");
  CHECK(gradients(moment(walk, "update")) == Held{share, share, share});
}

TEST_CASE("blocks of a unit are gathered, computed and reduced as one moment", "[parallel][walk][unit]") {
  ParallelConfig parallel = zero(3);
  parallel.unit = 2;
  StepWalk const walk = walk_small(parallel, 4, 3);
  std::vector<std::string> names;
  for (Moment const& one : walk.moments) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{"start", "forward embed", "forward blocks 0 to 1", "forward block 2",
                                          "forward head", "backward head", "backward block 2", "backward blocks 0 to 1",
                                          "backward embed", "update"});
  CHECK(whats(moment(walk, "start").before) == "parameters of root; parameters of blocks 0 to 1");
  CHECK(parameters(moment(walk, "forward blocks 0 to 1")) == Held{share, whole, under_way});
  CHECK(whats(moment(walk, "backward blocks 0 to 1").after) == "gradient of blocks 0 to 1");
  CHECK(gradients(moment(walk, "backward blocks 0 to 1")) == Held{own, own, under_way});
}

TEST_CASE("without sharding nothing is gathered, and gradients end whole", "[parallel][walk]") {
  StepWalk const walk = walk_small({}, 3);
  for (Moment const& one : walk.moments) {
    CHECK(parameters(one) == Held{whole, whole, whole});
    CHECK(one.before.empty());
  }
  CHECK(gradients(moment(walk, "update")) == Held{whole, whole, whole});
}

TEST_CASE("naive data parallelism collects gradients on rank 0 after backward and sends out their sum",
          "[parallel][walk]") {
  StepWalk const walk = walk_small({.strategy = Strategy::naive}, 4);
  auto const psi = static_cast<std::uint64_t>(walk.plan().layout.elements());
  for (Rank rank = 0; rank < walk.ranks(); ++rank) CHECK(sent(walk, rank) == (rank == 0 ? 3 * psi : psi));
  for (Moment const& one : walk.moments) {
    CHECK(parameters(one) == Held{whole, whole, whole});
    CHECK(one.after.empty() == (one.name != "backward embed"));
  }
  CHECK(whats(moment(walk, "backward embed").after) ==
        "gradient of root, block 0, block 1; the sum of the gradient of root, block 0, block 1");
  CHECK_FALSE(moment(walk, "backward embed").after[0].follows);
  CHECK(moment(walk, "backward embed").after[1].follows);
  CHECK(gradients(moment(walk, "backward embed")) == Held{own, own, own});
  CHECK(gradients(moment(walk, "update")) == Held{whole, whole, whole});
}

TEST_CASE("an all-reduce leaves stage 1 the whole sum, stage 2 a share of it: the rest is dropped",
          "[parallel][walk]") {
  CHECK(gradients(moment(walk_small(by_all_reduce(1), 3), "update")) == Held{whole, whole, whole});
  CHECK(gradients(moment(walk_small(by_all_reduce(2), 3), "update")) == Held{share, share, share});
}

TEST_CASE("more reductions than scratch wait in line, and for it where gradients are staged", "[parallel][walk]") {
  ParallelConfig one_at_a_time;
  one_at_a_time.in_flight = 1;
  StepWalk const replicated = walk_small(one_at_a_time, 3);
  CHECK_FALSE(moment(replicated, "backward block 1").after[0].waits);
  CHECK(moment(replicated, "backward block 0").after[0].waits);
  CHECK(gradients(moment(replicated, "backward embed")) == Held{own, under_way, under_way});
  one_at_a_time = zero(2);
  one_at_a_time.in_flight = 1;
  StepWalk const staged = walk_small(one_at_a_time, 3);
  CHECK_FALSE(moment(staged, "backward block 0").after[0].waits);
  CHECK(gradients(moment(staged, "backward embed")) == Held{own, under_way, share});
}

TEST_CASE("stages 1 and 2 gather updated parameters, during the next forward", "[parallel][walk]") {
  StepWalk const walk = walk_small(zero(GENERATE(1, 2)), 4);
  CHECK(parameters(moment(walk, "start")) == Held{under_way, under_way, share});
  CHECK(parameters(moment(walk, "forward embed")) == Held{whole, under_way, share});
  CHECK(parameters(moment(walk, "forward block 0")) == Held{whole, whole, under_way});
  CHECK(whats(moment(walk, "forward block 0").before) == "parameters of block 1");
  CHECK(parameters(moment(walk, "forward head")) == Held{whole, whole, whole});
  CHECK(gradients(moment(walk, "update")) == Held{share, share, share});
  CHECK(whats(moment(walk, "update").after) == "parameters of root; parameters of block 0");
}

TEST_CASE("the owner of a unit sends copies of it, which all others drop, and alone gets its gradient",
          "[parallel][walk]") {
  StepWalk const walk = walk_small(with_owners(3), 4, 3); // root and three blocks, of which rank i owns the i-th
  CHECK(parameters_by_rank(walk, "forward embed", 0) == Held{whole, copy, copy, copy});
  CHECK(parameters_by_rank(walk, "forward embed", 1) == Held{under_way, whole, under_way, under_way});
  CHECK(parameters_by_rank(walk, "forward embed", 2) == Held{nothing, nothing, whole, nothing});
  CHECK(parameters_by_rank(walk, "forward block 0", 1) == Held{copy, whole, copy, copy});
  CHECK(parameters_by_rank(walk, "forward block 1", 1) == Held{nothing, whole, nothing, nothing});
  CHECK(gradients_by_rank(walk, "backward block 2", 3) == Held{own, own, own, own});
  WalkedCollective const& reduced = moment(walk, "backward block 2").after.front();
  CHECK(reduced.planned.problem.collective == Collective::reduce);
  CHECK(reduced.planned.problem.root == 3);
  for (Index unit = 0; unit < 4; ++unit) {
    Held one(4, nothing);
    one[static_cast<std::size_t>(unit)] = whole;
    CHECK(gradients_by_rank(walk, "update", unit) == one);
    CHECK(parameters_by_rank(walk, "update", unit) == one);
    for (Rank rank = 0; rank < 4; ++rank) CHECK(optimizer_held_by(walk.layout(), unit, rank) == one[rank]);
  }
}

TEST_CASE("with owners all ranks together send as much as without", "[parallel][walk]") {
  Rank const ranks = GENERATE(2, 3, 4, 7);
  for (auto const& [stage, times] : {std::pair{1, 2}, {2, 2}, {3, 3}}) {
    StepWalk const walk = walk_small(with_owners(stage), ranks, 3);
    std::uint64_t all = 0;
    for (Rank rank = 0; rank < ranks; ++rank) all += sent(walk, rank);
    CHECK(all == static_cast<std::uint64_t>(times * (ranks - 1) * walk.plan().layout.elements()));
  }
}

TEST_CASE("of stage 1 with owners all ranks have the parameters, and one has the sum of gradients",
          "[parallel][walk]") {
  StepWalk const walk = walk_small(with_owners(1), 3);
  CHECK(parameters_by_rank(walk, "forward head", 1) == Held{whole, whole, whole});
  CHECK(gradients_by_rank(walk, "update", 0) == Held{whole, nothing, nothing});
  ParallelConfig all_reduced = with_owners(1);
  all_reduced.gradient_reduction = GradientReductionWay::all_reduce;
  CHECK(gradients_by_rank(walk_small(all_reduced, 3), "update", 0) == Held{whole, whole, whole});
}

TEST_CASE("DDP's rungs reduce everything at once, or tensor by tensor", "[parallel][walk]") {
  StepWalk const step = walk_small({.granularity = Granularity::step}, 3);
  REQUIRE(collectives_of(step).size() == 1);
  CHECK(whats(moment(step, "backward embed").after) == "gradient of root, block 0, block 1");
  StepWalk const tensors = walk_small({.granularity = Granularity::tensor}, 3);
  CHECK(collectives_of(tensors).size() == 4 + 2 * 12); // wte, wpe, and two of lnf; 12 of a block
  std::vector<WalkedCollective> const& after = moment(tensors, "backward block 1").after;
  CHECK(after.front().what == "gradient of block 1 fcprojb");
  CHECK(gradients(moment(tensors, "backward block 1")) == Held{own, nothing, own});
  CHECK(gradients(moment(tensors, "backward block 0")) == Held{own, own, under_way});
  CHECK(gradients(moment(tensors, "update")) == Held{whole, whole, whole});
}

TEST_CASE("mixed recipes send parameters and gradients in their own types", "[parallel][walk]") {
  for (auto const& [recipe, gradient] : {std::pair{RecipeName::fp32, Storage::fp32},
                                         {RecipeName::mixed16, Storage::bf16},
                                         {RecipeName::mixed18, Storage::fp32},
                                         {RecipeName::mixed20, Storage::bf16}}) {
    StepWalk const walk = walk_small(zero(2), 4, 2, {.recipe = recipe});
    CHECK(walk.is_mixed() == (recipe != RecipeName::fp32));
    for (WalkedCollective const& one : collectives_of(walk)) {
      bool const is_gradient = one.what.starts_with("gradient");
      CHECK(one.storage == (is_gradient ? gradient : walk.is_mixed() ? Storage::bf16 : Storage::fp32));
    }
  }
}
