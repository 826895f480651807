// What the instructions of a step cost: what of a collective is the core's, what the wire's, and who owns how much.

#include "parallel/program/step_prices.hpp"

#include "comm/simulation/simulator.hpp"
#include "core/error.hpp"
#include "parallel/program/step_programs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>

using namespace trainstone;

namespace {

constexpr Index layers = 3;

ShardPlan plan_of(ParallelConfig const& parallel, Rank ranks, Index micro_batches = 1) {
  GptConfig const model{.layers = layers, .heads = 1, .channels = 16, .context = 8, .vocab = 16};
  return make_shard_plan(parallel, {}, {}, {}, ParameterTable(model, mesh_of(parallel, ranks).parts()),
                         Topology::one_node(ranks), 0, micro_batches);
}

PartTimes parts() {
  PartTimes times;
  times.parts = {{PartKind::embed, {1e-6, 2e-6, 3e-6}},
                 {PartKind::attention, {1e-6, 2e-6, 3e-6}},
                 {PartKind::mlp, {3e-6, 3e-6, 3e-6}},
                 {PartKind::head, {7e-6, 8e-6, 9e-6}}};
  times.load = 1e-7;
  times.loss = 2e-7;
  times.agree = 3e-7;
  times.norm_of_element = 1e-9;
  times.update_of_element = 2e-9;
  times.copy_of_element = 3e-9;
  times.add_of_element = 4e-9;
  return times;
}

constexpr AlphaBetaGamma costs{.alpha = 2e-6, .beta = 3e-9, .gamma = 5e-9};

Instruction reduction(Index bucket) { return {.act = Act::reduce, .subject = bucket, .micro_batch = 0, .slot = 0}; }

} // namespace

TEST_CASE("pieces of a pass take their measured shares of it, or equal ones", "[parallel][prices]") {
  PartTimes times = parts();
  GptConfig const model{.layers = layers, .heads = 2, .channels = 16, .context = 8, .vocab = 16};
  GptOptions const options{.slices = {.blocks = 2, .ranks = 2}};
  ShardPlan const plan = make_shard_plan({.tensor = 2}, {}, {}, {}, ParameterTable(model, 1, options.slices),
                                         Topology::one_node(2), 0, 1, options, {{2, 8}, 16});
  auto const prices_of = [&](Instruction one) {
    StepPrices prices({&plan}, {}, times, {uniform_machine(costs)});
    std::vector<Nanoseconds> all;
    for (one.piece = 0; one.piece < std::ssize(pieces_of(one, plan.parts)); ++one.piece)
      all.push_back(prices.of(0, one).compute);
    return all;
  };
  Instruction const backward{.act = Act::backward, .subject = 2, .micro_batch = 0}, // of mlp 0: 3000 ns
      loss{.act = Act::loss, .micro_batch = 0};                                     // 200 ns
  CHECK(prices_of(backward) == std::vector<Nanoseconds>{750, 750, 750, 750});
  times.piece_shares = {{{PartKind::mlp, Pass::backward}, {0.1, 0.5, 0.3, 0.1}},
                        {{PartKind::head, Pass::loss}, {0.25, 0.5, 0.25}}};
  CHECK(prices_of(backward) == std::vector<Nanoseconds>{300, 1500, 900, 300});
  CHECK(prices_of(loss) == std::vector<Nanoseconds>{50, 100, 50});
  times.piece_shares[{PartKind::mlp, Pass::backward}] = {0.5, 0.5}; // of other pieces
  CHECK(prices_of(backward) == std::vector<Nanoseconds>{750, 750, 750, 750});
}

TEST_CASE("where messages leave cores free, additions are the core's and messages the wire's", "[parallel][prices]") {
  constexpr Rank ranks = 4;
  PartTimes const times = parts();
  ShardPlan const plan = plan_of({.strategy = Strategy::ddp}, ranks);
  StepPrices prices({&plan}, {}, times, {uniform_machine(costs)});
  InstructionPrice const price = prices.of(0, reduction(0));
  REQUIRE(price.collectives.size() == 1);
  double const bytes = 4.0 * static_cast<double>(plan.reductions.buckets.bucket(0).share_elements());
  double const added = bytes * (ranks - 1) / ranks;
  CHECK(price.collectives[0].core == std::llround(1e9 * costs.gamma * added));
  double const messages = 2 * (ranks - 1) * costs.alpha + 2 * costs.beta * added; // a ring, one port
  CHECK(std::abs(price.collectives[0].wire - std::llround(1e9 * messages)) <= 1);
  CHECK(price.collectives[0].communicator.axis == Axis::replica);
}

TEST_CASE("where cores carry messages themselves, the wire takes nothing", "[parallel][prices]") {
  PartTimes const times = parts();
  ShardPlan const plan = plan_of({.strategy = Strategy::ddp}, 4);
  MachineModel machine = uniform_machine(costs);
  machine.overlap = {0, 0};
  StepPrices prices({&plan}, {}, times, {machine});
  CollectivePrice const price = prices.of(0, reduction(0)).collectives.at(0);
  PlannedCollective const planned = plan.reductions.reduction_of(plan.reductions.buckets.bucket(0), plan.layout).at(0);
  CHECK(price.wire == 0);
  CHECK(price.core == std::llround(1e9 * trainstone::price(planned.problem, planned.algorithm, 4, machine)));
}

TEST_CASE("delays of an emulated network are the wire's", "[parallel][prices]") {
  constexpr Rank ranks = 4;
  PartTimes const times = parts();
  ShardPlan const plan = plan_of({.strategy = Strategy::ddp}, ranks);
  MachineModel machine = uniform_machine(costs);
  machine.overlap = {0, 0};
  EmulatedLink const link{.latency = 1e-3, .seconds_per_byte = 1e-8};
  EmulatedNetwork const network = EmulatedNetwork::uniform(link);
  StepPrices prices({&plan}, {}, times, {machine, network}), fast({&plan}, {}, times, {machine});
  CollectivePrice const price = prices.of(0, reduction(0)).collectives.at(0);
  double const bytes = 4.0 * static_cast<double>(plan.reductions.buckets.bucket(0).share_elements());
  double const delays = 2 * (ranks - 1) * link.seconds(bytes / ranks);
  CHECK(price.core == fast.of(0, reduction(0)).collectives.at(0).core);
  CHECK(std::abs(price.wire - std::llround(1e9 * delays)) <= 1);
}

TEST_CASE("beside a device all of a collective passes", "[parallel][prices]") {
  PartTimes const times = parts();
  ShardPlan const plan = plan_of({.strategy = Strategy::ddp}, 4);
  StepPrices host({&plan}, {}, times, {uniform_machine(costs)}),
      device({&plan}, {}, times, {uniform_machine(costs), {}, false});
  CollectivePrice const of_host = host.of(0, reduction(0)).collectives.at(0);
  CollectivePrice const of_device = device.of(0, reduction(0)).collectives.at(0);
  CHECK(of_device.core == 0);
  CHECK(std::abs(of_device.wire - (of_host.core + of_host.wire)) <= 1);
}

TEST_CASE("the price of a step's computation is the sum of its parts", "[parallel][prices]") {
  Index const micro_batches = GENERATE(1, 4);
  PartTimes const times = parts();
  ShardPlan const plan = plan_of({.strategy = Strategy::ddp}, 2, micro_batches);
  StepPrices prices({&plan}, {}, times, {uniform_machine({})});
  StepTimeline const timeline = play_step({make_step_program(plan)}, prices.classes(), prices.price());
  Nanoseconds const forward = 1000 + layers * (1000 + 3000) + 7000, backward = 2000 + layers * (2000 + 3000) + 8000;
  Nanoseconds const adding = 3000 + layers * (3000 + 3000) + 9000;
  Nanoseconds const each = 100 + 200 + forward, elements = plan.layout.elements(); // load, loss
  CHECK(timeline.step == micro_batches * each + backward + (micro_batches - 1) * adding + 300 + elements * (1 + 2));
}

TEST_CASE("sharded gradients are overwritten and added to sums, share by share", "[parallel][prices]") {
  constexpr Rank ranks = 2;
  PartTimes const times = parts();
  ShardPlan const plan = plan_of({.strategy = Strategy::zero, .zero_stage = 2}, ranks, 3);
  StepPrices prices({&plan}, {}, times, {uniform_machine({})});
  StepTimeline const timeline = play_step({make_step_program(plan)}, prices.classes(), prices.price());
  Nanoseconds const forward = 1000 + layers * (1000 + 3000) + 7000, backward = 2000 + layers * (2000 + 3000) + 8000;
  Nanoseconds const share = plan.layout.elements() / ranks;
  // of three micro-batches the first is copied, the others are added
  CHECK(timeline.step == 3 * (100 + 200 + forward + backward) + 300 + share * (3 + 2 * 4) + share * (1 + 2));
}

TEST_CASE("ranks that own different groups are classes of their own", "[parallel][prices]") {
  PartTimes const times = parts();
  auto const classes = [&](ParallelConfig const& parallel, Rank ranks) {
    ShardPlan const plan = plan_of(parallel, ranks);
    return StepPrices({&plan}, {}, times, {uniform_machine({})}).classes().size();
  };
  CHECK(classes({.strategy = Strategy::ddp}, 64) == 1);
  CHECK(classes({.strategy = Strategy::zero, .zero_stage = 3}, 64) == 1);
  CHECK(classes({.strategy = Strategy::hsdp, .shard_group = 8}, 64) == 1);
  ParallelConfig const whole{.strategy = Strategy::zero, .zero_stage = 1, .partition = StatePartition::inter_layer};
  CHECK(classes(whole, 64) == layers + 2); // each owns one group; the others own nothing
  CHECK(classes({.strategy = Strategy::naive}, 64) == 2);
}

TEST_CASE("a part without times is named", "[parallel][prices]") {
  PartTimes times = parts();
  times.parts.erase(PartKind::head);
  ShardPlan const plan = plan_of({.strategy = Strategy::ddp}, 2);
  StepPrices prices({&plan}, {}, times, {uniform_machine({})});
  CHECK_THROWS_AS(play_step({make_step_program(plan)}, prices.classes(), prices.price()), Error);
}

TEST_CASE("workers compute side by side, and queue at their server", "[parallel][prices][timeline]") {
  Rank const workers = GENERATE(1, 2, 3, 6);
  PartTimes const times = parts();
  ParallelConfig const parallel{
      .strategy = Strategy::parameter_server, .servers = 1, .bucket_bytes = 1e9, .overlap = false};
  ShardPlan const plan = plan_of(parallel, workers + 1);
  constexpr double beta = 1e-9;
  StepPrices prices({&plan}, {}, times, {uniform_machine({.beta = beta})});
  StepProgram const program = make_step_program(plan);
  StepTimeline const timeline = play_step({program, make_server_program(plan)}, prices.classes(), prices.price());
  Nanoseconds const forward = 1000 + layers * (1000 + 3000) + 7000, backward = 2000 + layers * (2000 + 3000) + 8000;
  Nanoseconds const elements = plan.layout.elements(), messages = 4 * elements * workers; // of 1 ns per byte
  Nanoseconds control = 0; // of losses and norms, some bytes
  for (Act const act : {Act::agree, Act::norm})
    for (CollectivePrice const& one : prices.of(0, {.act = act}).collectives) control += one.core + one.wire;
  CHECK(control < messages / 10);
  // pushes, then norm and update on the server, then pulls
  CHECK(timeline.step == 100 + 200 + forward + backward + messages + 300 + elements * (1 + 2) + messages + control);
  CHECK(timeline.classes.size() == 2);
  CHECK(timeline.busiest().ranks.ranks == workers);
}

TEST_CASE("by priority, pushes and pulls hide behind backward and forward, and what is needed first overtakes",
          "[parallel][prices][timeline][servers]") {
  constexpr Rank workers = 2;
  constexpr double slice_bytes = 2048;
  PartTimes times = parts();
  times.update_of_element = 0;
  ParallelConfig const parallel{.strategy = Strategy::parameter_server,
                                .servers = 1,
                                .server_schedule = ServerSchedule::priority,
                                .server_slice_bytes = slice_bytes};
  ShardPlan const plan = plan_of(parallel, workers + 1);
  auto const elements = [&](std::size_t unit) { return plan.layout.units[unit].padded; };
  Nanoseconds const forward_block = 1000 + 3000, backward_block = 2000 + 3000;
  Nanoseconds const forward = 1000 + layers * forward_block + 7000, backward = 2000 + layers * backward_block + 8000;
  auto const step = [&](double seconds_per_byte) {
    EmulatedNetwork network;
    for (EmulatedLink& link : network.links) link.seconds_per_byte = seconds_per_byte;
    StepPrices prices({&plan}, {}, times, {uniform_machine({}), network});
    Nanoseconds agree = 0; // what the core does is hidden
    for (CollectivePrice const& one : prices.of(0, {.act = Act::agree}).collectives) agree += one.core + one.wire;
    StepTimeline const timeline =
        play_step({make_step_program(plan), make_server_program(plan)}, prices.classes(), prices.price());
    return std::pair(timeline.step, agree);
  };
  auto const transfer = [&](std::size_t unit, double seconds_per_byte) { // of all workers, through the server's port
    return std::llround(static_cast<double>(4 * workers * elements(unit)) * seconds_per_byte * 1e9);
  };
  SECTION("where computation is long, only the root is waited for, whose gradient is there last") {
    constexpr double fast = 5e-11;
    auto const [found, agree] = step(fast);
    CHECK(transfer(1, fast) < 2000); // hidden behind the backward of embed
    Nanoseconds const closed = 200 + forward + backward + agree + 2 * transfer(0, fast); // loading is hidden, too
    CHECK(std::abs(found - closed) <= 2 * 5); // each of its slices is rounded
  }
  SECTION("where transfers are long, the link is never idle, and the second block comes last") {
    constexpr double slow = 1e-8;
    auto const [found, agree] = step(slow);
    Nanoseconds pushes = 0; // the last block has begun before the others are complete
    for (std::size_t unit = 0; unit <= layers; ++unit) pushes += transfer(unit, slow);
    Nanoseconds const after = transfer(2, slow) + 2 * forward_block + 7000 + 200;
    Nanoseconds const closed = 8000 + backward_block + pushes + after;
    CHECK(found >= closed);
    // losses go behind the slices that are on their way, and slices that come then behind them
    CHECK(found <= closed + 4 * (agree + std::llround(workers * slice_bytes * slow * 1e9)));
  }
}
