// Each way of breaking the program of a pipeline is found by its name, and the message says in which stage and where.

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_proof.hpp"
#include "support/pipelines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

using enum StageAct;
using enum MessageKind;

/// A right program, in which tests make mistakes.
struct Broken {
  PipelineProgram program;

  explicit Broken(std::string_view schedule = "1f1b", PipelineShape const& shape = {3, 4, 1})
      : program(program_of(schedule, shape)) {
    if (find_pipeline_defect(program)) throw Error("the program is wrong from the beginning");
  }

  std::vector<StageInstruction>& stage(std::size_t stage) { return program.stages[stage].instructions; }

  /// The place of an instruction of a stage.
  std::ptrdiff_t find(std::size_t number, StageAct act, Index micro_batch, MessageKind kind = activation,
                      Index chunk = 0) {
    auto& list = stage(number);
    auto const found = std::ranges::find_if(list, [&](StageInstruction const& one) {
      return one.act == act && one.micro_batch == micro_batch && one.chunk == chunk &&
             (computes(act) || one.kind == kind);
    });
    if (found == list.end()) throw Error("the program has no such instruction");
    return found - list.begin();
  }
  StageInstruction& at(std::size_t number, StageAct act, Index micro_batch, MessageKind kind = activation) {
    return stage(number)[static_cast<std::size_t>(find(number, act, micro_batch, kind))];
  }
  void drop(std::size_t number, StageAct act, Index micro_batch, MessageKind kind = activation) {
    stage(number).erase(stage(number).begin() + find(number, act, micro_batch, kind));
  }
  void repeat(std::size_t number, StageAct act, Index micro_batch, MessageKind kind = activation) {
    auto const place = find(number, act, micro_batch, kind);
    StageInstruction const twice = stage(number)[static_cast<std::size_t>(place)];
    stage(number).insert(stage(number).begin() + place, twice);
  }
  /// Moves an instruction to the place of another one.
  void move(std::size_t number, std::ptrdiff_t from, std::ptrdiff_t to) {
    auto const begin = stage(number).begin();
    if (from < to)
      std::rotate(begin + from, begin + from + 1, begin + to + 1);
    else
      std::rotate(begin + to, begin + from, begin + from + 1);
  }

  void check(PipelineDefect defect, Index where, std::string const& words) const {
    std::optional<PipelineFinding> const found = find_pipeline_defect(program);
    REQUIRE(found);
    INFO(found->message);
    CHECK(to_string(found->defect) == to_string(defect));
    CHECK(found->stage == where);
    CHECK_THAT(found->message, ContainsSubstring("stage " + std::to_string(where)) && ContainsSubstring(words));
  }
};

} // namespace

TEST_CASE("a lost forward is found") {
  Broken broken;
  broken.drop(1, forward, 2);
  broken.check(PipelineDefect::not_there, 1, "(send activation 2 from slot 0): what is sent has not been computed");
}

TEST_CASE("a lost backward is found") {
  Broken broken("gpipe", {1, 3, 1});
  broken.drop(0, backward, 2);
  broken.check(PipelineDefect::missing, 0, "ends without backward of micro-batch 2");
}

TEST_CASE("a lost message is found") {
  Broken broken;
  broken.drop(0, send, 3);
  broken.drop(0, wait_send, 3);
  broken.check(PipelineDefect::waits_for_ever, 0,
               "(wait for receive of gradient 2 into gradient 0): waits for ever, stage 1 does not send it: it is at "
               "instruction 25 (wait for receive of activation 3 into input");
  Broken other;
  other.drop(2, receive, 1, activation);
  other.check(PipelineDefect::not_started, 2, "(wait for receive of activation 1");
}

TEST_CASE("a stage that never computes gradients of parameters is found") {
  Broken broken("zb-h1");
  std::erase_if(broken.stage(1), [](StageInstruction const& one) { return one.act == weights; });
  broken.check(PipelineDefect::written_while_used, 1, "is still used by micro-batch 0");
  PipelineShape const shape{2, 2, 1};
  std::vector<StageOrder> orders = make_pipeline_order(parse_pipeline_schedule("zb-h1"), shape);
  std::erase_if(orders[1], [](ChunkOperation const& one) { return one.act == ChunkAct::weights; });
  broken.program = make_pipeline_program(shape, orders);
  broken.check(PipelineDefect::missing, 1, "ends without weights of micro-batch 0");
}

TEST_CASE("a doubled operation is found") {
  Broken broken;
  broken.repeat(1, forward, 0);
  broken.check(PipelineDefect::doubled, 1, "(forward 0, slot 0): is computed twice");
  Broken other("zb-h1");
  other.repeat(0, weights, 1);
  other.check(PipelineDefect::doubled, 0, "(weights 1, slot 1): is computed twice");
}

TEST_CASE("a doubled message is found") {
  Broken broken;
  broken.repeat(1, send, 0, gradient);
  broken.check(PipelineDefect::doubled, 1, "(send gradient 0 from gradient");
  Broken other;
  other.repeat(1, receive, 1, activation);
  other.check(PipelineDefect::doubled, 1, "(receive activation 1 into input");
}

TEST_CASE("swapped operations are found") {
  Broken broken;
  std::swap(broken.at(2, forward, 1), broken.at(2, forward, 2));
  broken.check(PipelineDefect::not_there, 2, "(forward 2, slot 0): what input 0 should have is not there yet");
}

TEST_CASE("a backward before its forward is found") {
  Broken broken;
  broken.move(2, broken.find(2, backward, 0), broken.find(2, forward, 0));
  broken.check(PipelineDefect::not_there, 2, "(backward 0, slot 0): its forward has not been computed");
}

TEST_CASE("a send before what it sends has been computed is found") {
  Broken broken;
  broken.move(0, broken.find(0, send, 1), broken.find(0, forward, 1));
  broken.check(PipelineDefect::not_there, 0, "(send activation 1 from slot 1): what is sent has not been computed");
  Broken other;
  other.move(1, other.find(1, send, 0, gradient), other.find(1, backward, 0));
  other.check(PipelineDefect::not_there, 1, "(send gradient 0");
}

TEST_CASE("a slot that is used again one operation too early is found") {
  Broken broken;
  StageInstruction& early = broken.at(0, forward, 2);
  early.slot = 1;
  broken.check(PipelineDefect::written_while_used, 0, "(forward 2, slot 1): slot 1 is still used by micro-batch 1");
}

TEST_CASE("a wrong slot is found") {
  Broken broken;
  broken.at(0, backward, 1).slot = 2;
  broken.check(PipelineDefect::wrong_buffer, 0, "(backward 1, slot 2): slot 2 has micro-batch 2");
  Broken other;
  other.at(0, forward, 0).slot = 3;
  other.check(PipelineDefect::malformed, 0, "there is no slot 3, the program has 3");
}

TEST_CASE("crossed receives are found") {
  Broken broken("gpipe");
  StageInstruction& first = broken.at(1, receive, 1);
  StageInstruction& second = broken.at(1, receive, 2);
  std::swap(first.micro_batch, second.micro_batch);
  broken.check(PipelineDefect::not_started, 1, "(wait for receive of activation 1 into input 1): no receive");
  // both ends of the stage agree on the wrong order
  Broken other("gpipe", {2, 4, 1});
  for (StageInstruction& one : other.stage(1))
    if (one.kind == activation && (one.act == receive || one.act == wait_receive) && one.micro_batch != 0)
      one.micro_batch = one.micro_batch == 1 ? 2 : one.micro_batch == 2 ? 1 : one.micro_batch;
  other.check(PipelineDefect::other_message, 1, "(wait for receive of activation 2");
}

TEST_CASE("an order of a channel that the two ends see differently is found") {
  PipelineShape const shape{2, 4, 2};
  std::vector<StageOrder> orders = make_pipeline_order(parse_pipeline_schedule("interleaved"), shape);
  std::swap(orders[0][0], orders[0][1]);
  Broken broken("interleaved", shape);
  broken.program = make_pipeline_program(shape, orders);
  broken.check(PipelineDefect::other_message, 1, "(wait for receive of activation 0, chunk 0");
}

TEST_CASE("a missing wait is found") {
  Broken broken;
  broken.drop(0, wait_send, 0);
  broken.check(PipelineDefect::written_while_used, 0, "(backward 0, slot 0): nothing has waited for the send");
  Broken gradients;
  gradients.drop(1, wait_send, 0, gradient);
  std::optional<PipelineFinding> const found = find_pipeline_defect(gradients.program);
  REQUIRE(found);
  CHECK(found->stage == 1);
  CHECK_THAT(found->message, ContainsSubstring("gradient 0"));
  Broken receives;
  receives.drop(2, wait_receive, 1);
  receives.check(PipelineDefect::not_there, 2, "(forward 1, slot 0): what input 1 should have is not there yet");
}

TEST_CASE("a wait for what nobody has started is found") {
  Broken broken;
  broken.drop(1, send, 3, gradient);
  broken.check(PipelineDefect::not_started, 1, "(wait for send of gradient 3");
}

TEST_CASE("a gradient that is read before it has come is found") {
  Broken broken;
  broken.move(0, broken.find(0, wait_receive, 0, gradient), broken.find(0, backward, 0));
  broken.check(PipelineDefect::not_there, 0, "(backward 0, slot 0): what gradient 0 should have is not there yet");
}

TEST_CASE("stages that wait for each other are found") {
  PipelineShape const shape{2, 2, 1};
  std::vector<StageOrder> orders = make_pipeline_order(parse_pipeline_schedule("gpipe"), shape);
  // stage 0 wants the gradient of micro-batch 0 before it sends the activation that stage 1 needs first
  orders[0] = {{ChunkAct::forward, 0}, {ChunkAct::backward, 0}, {ChunkAct::forward, 1}, {ChunkAct::backward, 1}};
  Broken broken;
  broken.program = make_pipeline_program(shape, orders);
  broken.check(PipelineDefect::waits_for_ever, 0, "stage 1 does not send it");
}

TEST_CASE("another number of slots than the peak is found") {
  Broken broken;
  broken.program.stages[1].slots = 3;
  broken.check(PipelineDefect::wrong_count, 1, "has 3 slots and uses 2");
}

TEST_CASE("gradients that are complete in a mixed order are found") {
  PipelineShape const shape{1, 3, 1};
  auto const defect = [&](std::vector<Index> const& backwards) {
    StageOrder order{{ChunkAct::forward, 0}, {ChunkAct::forward, 1}, {ChunkAct::forward, 2}};
    for (Index const j : backwards) order.push_back({ChunkAct::backward, j});
    return find_pipeline_defect(make_pipeline_program(shape, {order}));
  };
  CHECK_FALSE(defect({0, 1, 2}));
  CHECK_FALSE(defect({2, 1, 0}));
  std::optional<PipelineFinding> const mixed = defect({1, 0, 2});
  REQUIRE(mixed);
  CHECK(mixed->defect == PipelineDefect::mixed_order);
  CHECK_THAT(mixed->message, ContainsSubstring("stage 0, instruction 5 (backward 2") && ContainsSubstring("1, 0"));
}

TEST_CASE("an operation that is changed in any place is found in every schedule") {
  Index mutants = 0;
  for (PipelineSchedule const& schedule : pipeline_schedules()) {
    PipelineShape const shape{3, 6, schedule.has_chunks ? 2 : 1};
    PipelineProgram const right = program_of(schedule.name, shape);
    for (std::size_t stage = 0; stage < right.stages.size(); ++stage)
      for (std::size_t place = 0; place < right.stages[stage].instructions.size(); ++place) {
        CAPTURE(schedule.name, stage, place);
        PipelineProgram lost = right, doubled = right;
        auto& shorter = lost.stages[stage].instructions;
        shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(place));
        auto& longer = doubled.stages[stage].instructions;
        longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(place), longer[place]);
        PipelineProgram other = right;
        StageInstruction& moved = other.stages[stage].instructions[place];
        moved.micro_batch = (moved.micro_batch + 1) % shape.micro_batches;
        for (PipelineProgram const* const mutant : {&lost, &doubled, &other}) {
          std::optional<PipelineFinding> const found = find_pipeline_defect(*mutant);
          ++mutants;
          if (!found) FAIL_CHECK("not found: " << to_string(right.stages[stage].instructions[place], shape.chunks));
        }
      }
  }
  CHECK(mutants > 1000);
}
