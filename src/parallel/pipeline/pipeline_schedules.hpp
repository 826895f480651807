#pragma once

// The schedules of a pipeline as rows of one table: in which order a stage computes forward and backward of its
// micro-batches. A model is cut into stages x chunks pieces of consecutive blocks. Virtual stage s = chunk x stages +
// stage runs piece s, so a micro-batch visits stage 0, 1, ..., and begins again at stage 0 with the next chunk.
// Generators are pure functions. Messages, buffers and slots are no part of an order: stage_program.hpp derives them.

#include "core/index.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainstone {

/// What a stage computes for one micro-batch in one chunk.
enum class ChunkAct {
  forward,  ///< in the last virtual stage with head, loss and the head's backward at its end
  backward, ///< all of it, or only gradients of inputs where a schedule has `weights`
  weights,  ///< gradients of parameters, apart from backward
};

std::string_view to_string(ChunkAct act);

struct ChunkOperation {
  ChunkAct act;
  Index micro_batch;
  Index chunk = 0; ///< among those of this stage

  bool operator==(ChunkOperation const&) const = default;
};

/// What a stage computes, in order.
using StageOrder = std::vector<ChunkOperation>;

/// "forward 3", "backward 3, chunk 1": chunks are named if there are several.
std::string to_string(ChunkOperation const& operation, Index chunks);

struct PipelineShape {
  Index stages = 1;
  Index micro_batches = 1;
  Index chunks = 1; ///< per stage

  constexpr Index virtual_stages() const { return stages * chunks; }
  constexpr Index virtual_stage(Index stage, Index chunk) const { return chunk * stages + stage; }
  /// Whether the chunk begins the model: its input is no message.
  constexpr bool is_first(Index stage, Index chunk) const { return virtual_stage(stage, chunk) == 0; }
  /// Whether the chunk ends the model: its forward turns round in the head.
  constexpr bool is_last(Index stage, Index chunk) const { return virtual_stage(stage, chunk) == virtual_stages() - 1; }

  bool operator==(PipelineShape const&) const = default;
};

/// A generator and what it is for.
struct PipelineSchedule {
  std::string_view name; ///< as `explain` writes it
  std::string_view meaning;
  StageOrder (*order)(PipelineShape const& shape, Index stage);
  bool has_chunks = false;         ///< several chunks per stage make sense
  bool splits_backward = false;    ///< gradients of parameters are an act of their own
  bool needs_whole_groups = false; ///< several stages, and their number divides the number of micro-batches
};

std::span<PipelineSchedule const> pipeline_schedules();

/// "naive, gpipe, 1f1b, ..."
std::string pipeline_schedule_names();

/// Those that a training can have: its parts compute gradients of inputs and parameters together.
std::vector<std::string> training_schedules();

/// The schedule of that name. \throws InputError listing the legal names
PipelineSchedule const& parse_pipeline_schedule(std::string_view name);

/// Why a schedule does not exist for these numbers, with the nearest legal values ("interleaved needs ... 10 is no
/// multiple of 4; the nearest are 8 and 12"); empty if it does.
std::string shape_problem(PipelineSchedule const& schedule, PipelineShape const& shape);

/// Why a model of so many blocks cannot be cut for a schedule with chunks, with the nearest legal numbers of chunks;
/// empty if it can.
std::string blocks_problem(PipelineSchedule const& schedule, PipelineShape const& shape, Index blocks);

/// The orders of all stages. \throws InputError if the schedule does not exist for the shape
std::vector<StageOrder> make_pipeline_order(PipelineSchedule const& schedule, PipelineShape const& shape);

/// Forward alone, the same for all stages: groups of as many micro-batches as stages run through all chunks. For every
/// shape.
StageOrder pipeline_evaluation_order(PipelineShape const& shape);

} // namespace trainstone
