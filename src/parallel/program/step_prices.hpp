#pragma once

// What each instruction of a step takes: computing parts by their times, collectives by the model of a machine. Owns
// how a collective's price divides into the core's part and the wire's part (step_timeline.hpp). Pure.
//
// While a message is under way, its core is free for the share MachineModel::overlap of the time. The core carries the
// rest with its own hands. So the core's part of a collective is its price on a machine without the shares that cores
// are free. Copies, sums and work in shared memory are the core's. A delay of an emulated network is the wire's.

#include "comm/schedule/emulated_network.hpp"
#include "comm/schedule/problem_memory.hpp"
#include "comm/simulation/machine_model.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/offload_prediction.hpp"
#include "parallel/program/part_times.hpp"
#include "parallel/program/step_timeline.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace trainstone {

/// In s.
struct RememberedPrice {
  double all = 0;
  double core = 0; ///< of this, what cores do with their own hands
};

/// Prices of collectives on one machine and network, which the timelines of several plans share.
using PriceMemory = ProblemMemory<RememberedPrice>;

struct PricedMachine {
  MachineModel model;
  EmulatedNetwork network = {};
  bool cores_communicate = true; ///< false: a device computes, and all of a collective passes beside it
  OffloadRates files = {};       ///< 0: not known
  PriceMemory* memory = nullptr; ///< prices of earlier plans on the same machine and network; null: of this plan alone
};

class StepPrices {
public:
  /// \param[in] stages  by stage, the plan of any of its ranks. Its lines stand for those of the other ranks.
  /// \param[in] batch_scatter  of a micro-batch to each rank, if rank 0 loads them
  /// Everything referred to must outlive the object.
  StepPrices(std::vector<ShardPlan const*> stages, std::optional<PlannedCollective> batch_scatter,
             PartTimes const& parts, PricedMachine machine);

  /// Ranks of a stage that own equally much of every group, and load alike. Complexity: O(ranks).
  std::vector<RankClass> const& classes() const { return m_classes; }
  /// For instructions of make_step_program. Each different collective is priced once. \throws Error if a part is not
  /// known
  InstructionPrice of(std::size_t number_of_class, Instruction const& instruction);
  /// of(), for play_step().
  PriceOf price();

private:
  /// Stage, axis, pair of stages, collective, algorithm, elements, their bytes.
  using Key = std::tuple<Index, int, Rank, Rank, int, int, Index, std::size_t>;

  CollectivePrice of(ShardPlan const& plan, PlannedCollective const& planned, std::size_t element_bytes);
  CollectivePrice of(ShardPlan const& plan, PlannedCollective const& planned, CommunicatorId const& communicator,
                     std::size_t element_bytes);
  double copy_of_share(OffloadPlan const& offload, std::size_t element_bytes) const;
  InstructionPrice of_load(ShardPlan const& plan);
  InstructionPrice of_message(ShardPlan const& plan, Instruction const& instruction);
  InstructionPrice of_reduction(ShardPlan const& plan, bool serves, Instruction const& instruction);
  InstructionPrice of_fetch(ShardPlan const& plan, Rank member, Instruction const& instruction);
  InstructionPrice of_gather(ShardPlan const& plan, Rank member, bool serves, Instruction const& instruction);
  InstructionPrice of_tie(ShardPlan const& plan, Rank member, Instruction const& instruction);
  InstructionPrice of_agree(ShardPlan const& plan);
  InstructionPrice of_norm(ShardPlan const& plan, Rank member, Instruction const& instruction);
  std::vector<int> const& placement(ShardPlan const& plan, CommunicatorId const& communicator);
  double part_of_pass(ShardPlan const& plan, Instruction const& instruction) const;
  Nanoseconds of_part(ShardPlan const& plan, Instruction const& instruction) const;
  Nanoseconds of_elements(ShardPlan const& plan, Rank member, Instruction const& instruction) const;

  std::vector<ShardPlan const*> m_stages;
  std::optional<PlannedCollective> m_batch_scatter;
  PartTimes const* m_parts;
  MachineModel m_machine, m_cores;
  bool m_cores_communicate;
  OffloadRates m_files;
  PriceMemory m_own_memory;
  PriceMemory* m_memory; ///< null: m_own_memory
  std::vector<RankClass> m_classes;
  std::map<Key, CollectivePrice> m_known;
  std::optional<CollectivePrice> m_agreement; ///< its problem has a number for every rank, and is made once
  std::map<std::tuple<int, Rank, Rank>, std::vector<int>> m_placements; ///< by axis and pair of stages
  /// By stage and a bucket's elements of an owner's share.
  std::map<std::pair<Index, Index>, std::vector<CollectivePrice>> m_reductions;
};

} // namespace trainstone
