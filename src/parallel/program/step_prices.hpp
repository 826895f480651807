#pragma once

// What each instruction of a step takes: computing parts by their times, collectives by the model of a machine. Owns
// how a collective's price divides into the core's part and the wire's part (step_timeline.hpp). Pure.
//
// While a message is under way, its core is free for the share MachineModel::overlap of the time. The core carries the
// rest with its own hands. So the core's part of a collective is its price on a machine without the shares that cores
// are free. Copies, sums and work in shared memory are the core's. A delay of an emulated network is the wire's.

#include "comm/schedule/out_port.hpp"
#include "comm/simulation/machine_model.hpp"
#include "parallel/plan/shard_plan.hpp"
#include "parallel/program/part_times.hpp"
#include "parallel/program/step_timeline.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace trainstone {

struct PricedMachine {
  MachineModel model;
  EmulatedNetwork network = {};
  bool cores_communicate = true; ///< false: a device computes, and all of a collective passes beside it
};

class StepPrices {
public:
  /// \param[in] plan  of any rank     \param[in] batch_scatter  of a micro-batch to each rank, if rank 0 loads them
  /// Everything referred to must outlive the object.
  StepPrices(ShardPlan const& plan, std::optional<PlannedCollective> batch_scatter, PartTimes const& parts,
             PricedMachine machine);

  /// Ranks that own equally much of every group, and load alike. Complexity: O(ranks).
  std::vector<RankClass> const& classes() const { return m_classes; }
  /// For instructions of make_step_program. Each different collective is priced once. \throws Error if a part is not
  /// known
  InstructionPrice of(std::size_t number_of_class, Instruction const& instruction);
  /// of(), for play_step().
  PriceOf price();

private:
  using Key = std::tuple<int, int, int, Index, std::size_t>; ///< collective, algorithm, axis, elements, their bytes

  CollectivePrice of(PlannedCollective const& planned, std::optional<Axis> axis, std::size_t element_bytes);
  InstructionPrice of_reduction(Instruction const& instruction);
  InstructionPrice of_gather(Rank member, Instruction const& instruction);
  Nanoseconds of_part(Instruction const& instruction) const;
  Nanoseconds of_elements(Rank member, Instruction const& instruction) const;

  ShardPlan const* m_plan;
  std::optional<PlannedCollective> m_batch_scatter;
  PartTimes const* m_parts;
  MachineModel m_machine, m_cores;
  bool m_cores_communicate;
  std::vector<RankClass> m_classes;
  std::map<Key, CollectivePrice> m_known;
  std::map<Index, std::vector<CollectivePrice>> m_reductions; ///< by a bucket's elements of an owner's share
};

} // namespace trainstone
