#pragma once

// Programs in which tests make mistakes, and the check that the simulator finds them.

#include "core/error.hpp"
#include "parallel/program/step_programs.hpp"
#include "parallel/program/step_simulator.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainstone::test {

/// The plans of a strategy on some ranks.
inline std::vector<ShardPlan> plans_of(ParallelConfig const& parallel, Rank ranks, Index micro_batches,
                                       GptOptions const& options) {
  GptConfig const model{.layers = 2, .heads = 1, .channels = 16, .context = 4, .vocab = 16};
  ParameterTable const table(model, ranks);
  std::vector<ShardPlan> plans;
  for (Rank rank = 0; rank < ranks; ++rank)
    plans.push_back(
        make_shard_plan(parallel, {}, {}, {}, table, Topology::one_node(ranks), rank, micro_batches, options));
  return plans;
}

/// Plans and correct programs of some ranks, in which tests make mistakes.
struct Steps {
  std::vector<ShardPlan> plans;
  std::vector<StepProgram> programs;

  explicit Steps(std::vector<ShardPlan> of_all) : plans(std::move(of_all)) {
    for (ShardPlan const& plan : plans) programs.push_back(make_step_program(plan));
    if (find_step_defect(plans, programs)) throw Error("a program is wrong from the beginning");
  }
  explicit Steps(ParallelConfig const& parallel, Rank ranks = 4, Index micro_batches = 2,
                 GptOptions const& options = {})
      : Steps(plans_of(parallel, ranks, micro_batches, options)) {}

  using Same = std::function<bool(Instruction const&)>;

  /// The `number`-th instruction (from 0) of a rank's step that is meant.
  std::pair<std::vector<Instruction>*, std::ptrdiff_t> find(Rank rank, Same const& meant, int number = 0) {
    for (Segment& segment : programs[static_cast<std::size_t>(rank)].step)
      for (std::size_t i = 0; i < segment.instructions.size(); ++i)
        if (meant(segment.instructions[i]) && number-- == 0)
          return {&segment.instructions, static_cast<std::ptrdiff_t>(i)};
    throw Error("the program has no such instruction");
  }
  Instruction& at(Rank rank, Same const& meant, int number = 0) {
    auto const [list, place] = find(rank, meant, number);
    return (*list)[static_cast<std::size_t>(place)];
  }
  void drop(Rank rank, Same const& meant, int number = 0) {
    auto const [list, place] = find(rank, meant, number);
    list->erase(list->begin() + place);
  }
  void drop_everywhere(Same const& meant, int number = 0) {
    for (Rank rank = 0; rank < static_cast<Rank>(plans.size()); ++rank) drop(rank, meant, number);
  }
  void repeat_everywhere(Same const& meant, int number = 0) {
    for (Rank rank = 0; rank < static_cast<Rank>(plans.size()); ++rank) {
      auto const [list, place] = find(rank, meant, number);
      Instruction const twice = (*list)[static_cast<std::size_t>(place)];
      list->insert(list->begin() + place, twice);
    }
  }
};

inline void check_found(Steps const& steps, StepDefect defect, std::string const& words) {
  std::optional<StepFinding> const found = find_step_defect(steps.plans, steps.programs);
  REQUIRE(found);
  INFO(found->message);
  CHECK(to_string(found->defect) == to_string(defect));
  CHECK_THAT(found->message, Catch::Matchers::ContainsSubstring(words));
}

inline Steps::Same is(Act act, Index subject = Instruction::none, Index micro_batch = Instruction::none) {
  return [=](Instruction const& one) {
    return one.act == act && (subject == Instruction::none || one.subject == subject) &&
           (micro_batch == Instruction::none || one.micro_batch == micro_batch);
  };
}

inline Steps::Same waits_for(Act act, Index subject = Instruction::none) {
  return [=](Instruction const& one) {
    return one.act == Act::wait && one.started == act && (subject == Instruction::none || one.subject == subject);
  };
}

inline ParallelConfig const ddp{};
inline ParallelConfig const in_slices{.bucket_bytes = 4096, .first_bucket_bytes = 4096}; // four of a block
inline ParallelConfig const zero1{.strategy = Strategy::zero, .zero_stage = 1};
inline ParallelConfig const zero2{.strategy = Strategy::zero, .zero_stage = 2};
inline ParallelConfig const zero3{.strategy = Strategy::zero, .zero_stage = 3};
inline ParallelConfig const hsdp{.strategy = Strategy::hsdp, .shard_group = 2};
inline ParallelConfig const ordered{.reduction = ReductionMode::ordered};

} // namespace trainstone::test
