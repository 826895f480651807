// Every schedule of a pipeline on every legal shape: the simulated time, slots and messages are those of closed forms,
// which are written here a second time, as they are printed. And no program waits for ever.

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_bound.hpp"
#include "parallel/pipeline/pipeline_formulas.hpp"
#include "parallel/pipeline/pipeline_proof.hpp"
#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <string>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

// Many messages are shorter than the shortest operation, and chunks have whole times.
constexpr Ticks unit = 12 * 1000;

/// Times that the closed forms hold for: f = b, f < b and f > b. Where w is apart, w = min(f, b) and w < min(f, b).
std::vector<ChunkPrice> stage_times(PipelineSchedule const& schedule) {
  if (!schedule.splits_backward) return {{unit, unit}, {unit, 2 * unit}, {3 * unit, unit}};
  return {{unit, unit / 2, unit / 2}, {unit, unit, unit},         {2 * unit, 3 * unit, 2 * unit},
          {3 * unit, unit, unit},     {unit, 3 * unit, unit / 2}, {3 * unit, 2 * unit, unit}};
}

/// The table of closed forms, multiplied by p where it has a fraction: p and v times the printed time.
struct Printed {
  std::string name;
  Ticks p, m, v, f, b, w;

  /// v times the time.
  Ticks time() const {
    if (name == "naive") return v * m * p * (f + b);
    if (name == "interleaved") return (m * v + p - 1) * (f + b);
    if (name == "zb-h1" && m >= p) return m * (f + b + w) + (p - 1) * (f + b - w);
    if (name == "zb-h1") return (m + p - 1) * (f + b) + w;
    return (m + p - 1) * (f + b);
  }
  Index in_flight(Index i) const {
    if (name == "naive") return 1;
    if (name == "gpipe") return m;
    if (name == "1f1b") return std::min(m, p - i);
    if (name == "1f1b-eager") return std::min(m, 2 * (p - 1 - i) + 1);
    if (name == "zb-h1") return std::min(m, p);
    return std::min(m * v, 2 * (p - 1 - i) + (v - 1) * p + 1);
  }
  /// Whether the table has a number for these.
  bool has_exposed() const {
    if (name == "1f1b") return m % p == 0 && p > 1;
    return name != "zb-h1" || (m > p && f == b && b == w);
  }
  Index exposed() const {
    if (name == "naive") return 2 * (p - 1) * m;
    if (name == "1f1b") return 2 * (p - 1) * m / p + 2 * (p - 2);
    if (name == "interleaved") return 2 * (p * v - 1);
    return (name == "zb-h1" ? 4 : 2) * (p - 1);
  }
};

/// A chunk that begins the model receives nothing. Every other chunk keeps its input as long as its slot, and a message
/// more is received ahead.
bool has_inputs_for_slots(StageProgram const& own, Index stage, Index stages, Index chunks) {
  bool const receives_nothing = stages == 1 || (stage == 0 && chunks == 1);
  if (receives_nothing) return own.inputs == 0;
  return own.inputs >= (stage > 0 ? own.slots : 1) && own.inputs <= own.slots + 1;
}

void check_pipeline(PipelineSchedule const& schedule, PipelineShape const& shape, ChunkPrice const& stage) {
  auto const [p, m, v] = shape;
  CAPTURE(schedule.name, p, m, v, stage.forward, stage.backward, stage.weights);
  PipelineProgram const program = make_pipeline_program(shape, make_pipeline_order(schedule, shape));
  std::optional<PipelineFinding> const defect = find_pipeline_defect(program);
  REQUIRE((defect ? defect->message : "") == "");

  PipelinePrices prices = equal_prices(shape, stage);
  PipelineTimeline const timeline = play_pipeline(program, prices);
  Printed const printed{std::string(schedule.name), p, m, v, stage.forward, stage.backward, stage.weights};
  Ticks const bound = pipeline_bound(shape, program.splits_backward, prices);
  CHECK(timeline.time >= bound);
  std::optional<PipelineFormulas> const formulas = pipeline_formulas(schedule.name, shape, stage);
  if (!formulas) return; // a schedule without closed forms
  CHECK(v * timeline.time == printed.time());
  CHECK(timeline.time == formulas->time);
  bool same_slots = true;
  for (Index i = 0; i < p; ++i) {
    StageProgram const& own = program.stages[static_cast<std::size_t>(i)];
    same_slots = same_slots && own.slots == printed.in_flight(i) &&
                 own.slots == formulas->in_flight[static_cast<std::size_t>(i)] && own.slots == timeline.peak_slots(i) &&
                 timeline.stages[static_cast<std::size_t>(i)].busy == m * stage.sum() &&
                 has_inputs_for_slots(own, i, p, v) && own.gradients <= (i + 1 < p ? 3 : own.slots + 3);
  }
  CHECK(same_slots);
  CHECK(std::ssize(timeline.messages) == 2 * m * (p * v - 1));
  CHECK(formulas->messages == 2 * m * (p * v - 1));

  bool const reaches = schedule.name == "naive" ? m == 1 || p == 1
                       : schedule.splits_backward
                           ? stage.forward == stage.weights && stage.backward == stage.weights && m >= p
                           : true;
  CHECK((!reaches || timeline.time == bound));

  prices.message = 1;
  Ticks const exposed = exposed_messages(program, prices);
  if (printed.has_exposed()) CHECK(exposed == printed.exposed());
  if (formulas->exposed_messages) CHECK(exposed == *formulas->exposed_messages);
}

} // namespace

TEST_CASE("schedules of pipelines take the time, slots and messages of their closed forms") {
  Index pipelines = 0;
  for_each_pipeline([&](PipelineSchedule const& schedule, PipelineShape const& shape) {
    for (ChunkPrice const& stage : stage_times(schedule)) {
      check_pipeline(schedule, shape, stage);
      if (pipeline_formulas(schedule.name, shape, stage)) ++pipelines;
    }
  });
  // four schedules and zb-h1 with 3 and 6 times; interleaved: 53 pairs of stages and micro-batches
  CHECK(pipelines == (4 * 3 + 6) * 8 * 32 + 3 * 4 * 53);
}

TEST_CASE("a zero bubble pipeline takes a third of the bubble if all three parts are equal") {
  PipelineShape const shape{4, 8, 1};
  CHECK(play_pipeline(program_of("zb-h1", shape), equal_prices(shape, {1, 1, 1})).time == 27);
  CHECK(play_pipeline(program_of("1f1b", shape), equal_prices(shape, {1, 1, 1})).time == 33);
}

TEST_CASE("published times of four stages and eight micro-batches") {
  ChunkPrice const stage{2, 4};
  auto const time = [&](std::string_view schedule, Index chunks) {
    PipelineShape const shape{4, 8, chunks};
    return play_pipeline(program_of(schedule, shape), equal_prices(shape, stage));
  };
  CHECK(time("gpipe", 1).time == 2 * 33);
  CHECK(time("interleaved", 2).time == 57);
  CHECK(time("naive", 1).time == 2 * 96);
  CHECK(time("1f1b", 1).idle_share() == 1 - 8.0 / 11);
  CHECK(time("naive", 1).idle_share() == 0.75);
  PipelineShape const shape{4, 8, 2};
  CHECK(program_of("interleaved", shape).stages[0].slots == 4 * 2 + 4 - 1);
}

TEST_CASE("orders of three stages are those of the literature") {
  PipelineShape const shape{3, 4, 1};
  auto const text = [&](std::string_view schedule, std::size_t stage) {
    std::string line;
    std::vector<StageOrder> const orders = make_pipeline_order(parse_pipeline_schedule(schedule), shape);
    for (ChunkOperation const& one : orders[stage])
      line += "FBW"[static_cast<int>(one.act)] + std::to_string(one.micro_batch) + " ";
    return line;
  };
  CHECK(text("naive", 1) == "F0 B0 F1 B1 F2 B2 F3 B3 ");
  CHECK(text("gpipe", 1) == "F0 F1 F2 F3 B0 B1 B2 B3 ");
  CHECK(text("1f1b", 0) == "F0 F1 F2 B0 F3 B1 B2 B3 ");
  CHECK(text("1f1b", 2) == "F0 B0 F1 B1 F2 B2 F3 B3 ");
  CHECK(text("1f1b-eager", 1) == "F0 F1 F2 B0 F3 B1 B2 B3 ");
  CHECK(text("zb-h1", 0) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 ");
  CHECK(text("zb-h1", 2) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 ");
}

TEST_CASE("posted sends never wait for ever, blocking sends in the obvious order almost always do") {
  Index stopped = 0, interleaved = 0, posted = 0, all = 0;
  for_each_pipeline([&](PipelineSchedule const& schedule, PipelineShape const& shape) {
    if (shape.stages == 1 || (schedule.name != "1f1b" && !(schedule.has_chunks && shape.chunks > 1))) return;
    PipelineProgram const obvious = program_of(schedule.name, shape, {.ahead = ReceiveAhead::no});
    std::optional<PipelineFinding> const found = find_pipeline_defect(obvious, Sends::blocking);
    ++all;
    posted += find_pipeline_defect(obvious).has_value() ? 1 : 0;
    if (!found) return;
    CHECK(found->defect == PipelineDefect::waits_for_ever);
    (schedule.name == "1f1b" ? stopped : interleaved) += 1;
  });
  CHECK(stopped == 217);
  CHECK(interleaved == 3 * 53);
  CHECK(all == 224 + 3 * 53);
  CHECK(posted == 0);
}

TEST_CASE("stages that wait for their sends at once never wait for ever, and use no more buffers") {
  for_each_pipeline([&](PipelineSchedule const& schedule, PipelineShape const& shape) {
    PipelineProgram const late = program_of(schedule.name, shape);
    PipelineProgram const at_once = program_of(schedule.name, shape, {.waits = SendWaits::at_once});
    std::optional<PipelineFinding> const found = find_pipeline_defect(at_once);
    INFO(schedule.name << " on " << shape.stages << " stages: " << (found ? found->message : ""));
    CHECK_FALSE(found);
    CHECK(orders_of(at_once) == orders_of(late));
    for (std::size_t stage = 0; stage < at_once.stages.size(); ++stage) {
      std::vector<StageInstruction> const& all = at_once.stages[stage].instructions;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i].act == StageAct::send && (i + 1 == all.size() || all[i + 1].act != StageAct::wait_send))
          FAIL_CHECK("nothing waits at once for a send");
      CHECK(at_once.stages[stage].slots == late.stages[stage].slots);
      CHECK(at_once.stages[stage].inputs == late.stages[stage].inputs);
      CHECK(at_once.stages[stage].gradients <= late.stages[stage].gradients);
    }
  });
}

TEST_CASE("a stage alone sends nothing, also between its chunks") {
  PipelineShape const shape{1, 3, 2};
  StageOrder order;
  for (Index j = 0; j < 3; ++j)
    for (auto const& [act, chunk] : {std::pair(ChunkAct::forward, 0), std::pair(ChunkAct::forward, 1),
                                     std::pair(ChunkAct::backward, 1), std::pair(ChunkAct::backward, 0)})
      order.push_back({act, j, chunk});
  PipelineProgram const program = make_pipeline_program(shape, {order});
  CHECK_FALSE(find_pipeline_defect(program));
  CHECK(program.stages[0].instructions.size() == order.size());
  CHECK(program.stages[0].slots == 2);
  CHECK(program.stages[0].gradients == 1);
  CHECK(orders_of(program) == std::vector<StageOrder>{order});
}

TEST_CASE("an evaluation keeps nothing and fills the pipeline once") {
  for (Index stages = 1; stages <= 8; ++stages)
    for (Index micro_batches = 1; micro_batches <= 32; ++micro_batches)
      for (Index const chunks : {1, 2}) {
        PipelineShape const shape{stages, micro_batches, chunks};
        CAPTURE(stages, micro_batches, chunks);
        std::vector<StageOrder> const orders(static_cast<std::size_t>(stages), pipeline_evaluation_order(shape));
        PipelineProgram const program = make_pipeline_program(shape, orders);
        CHECK(program.forward_only);
        std::optional<PipelineFinding> const defect = find_pipeline_defect(program);
        REQUIRE((defect ? defect->message : "") == "");
        PipelineTimeline const timeline = play_pipeline(program, equal_prices(shape, {2, 4}));
        if (chunks == 1 || micro_batches % stages == 0)
          CHECK(chunks * timeline.time == 2 * (chunks * micro_batches + stages - 1));
        CHECK(std::ssize(timeline.messages) == micro_batches * (stages * chunks - 1) * (stages > 1 ? 1 : 0));
        bool small = true;
        for (Index i = 0; i < stages; ++i) {
          StageProgram const& own = program.stages[static_cast<std::size_t>(i)];
          small =
              small && own.slots <= 2 && own.inputs <= 2 && own.gradients == 0 && own.slots == timeline.peak_slots(i);
        }
        CHECK(small);
      }
}

TEST_CASE("what a schedule cannot do is refused with the nearest legal values") {
  auto const refused = [](std::string_view schedule, PipelineShape const& shape, std::string const& words) {
    CHECK_THROWS_MATCHES(make_pipeline_order(parse_pipeline_schedule(schedule), shape), InputError,
                         MessageMatches(ContainsSubstring(words)));
  };
  refused("interleaved", {4, 10, 2}, "10 is no multiple of 4; the nearest are 8 and 12");
  refused("interleaved", {4, 3, 2}, "the nearest is 4");
  refused("interleaved", {1, 4, 2}, "at least 2 stages");
  refused("1f1b", {4, 8, 2}, "1 chunk per stage, not 2");
  refused("gpipe", {0, 8, 1}, "at least 1 stage");
  CHECK_THROWS_MATCHES(parse_pipeline_schedule("2f1b"), InputError,
                       MessageMatches(ContainsSubstring("must be one of " + pipeline_schedule_names())));
  PipelineSchedule const& interleaved = parse_pipeline_schedule("interleaved");
  CHECK(blocks_problem(interleaved, {4, 8, 3}, 12).empty());
  CHECK_THAT(blocks_problem(interleaved, {4, 8, 2}, 12), ContainsSubstring("is 1 or 3, not 2"));
  CHECK_THAT(blocks_problem(interleaved, {4, 8, 2}, 10), ContainsSubstring("the nearest are 8 and 12"));
  CHECK(blocks_problem(parse_pipeline_schedule("1f1b"), {4, 8, 1}, 10).empty());
}
