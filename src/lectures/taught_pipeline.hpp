#pragma once

// Pipelines as lectures draw them, beside closed forms and this program's own simulation: the cells in which stages
// wait, shares of waiting, messages and what is kept. Owns the taught figures. Orders, programs, times and closed forms
// are parallel/pipeline's. Pure; renders no text (lectures/lecture_pipeline.hpp).
// Source: GPipe, arXiv:1811.06965; PipeDream, arXiv:1806.03377; Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM, arXiv:2104.04473.

#include "core/index.hpp"

#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// What every stage computes in one direction: [stage][cell] the micro-batch, or cell_waits.
using PipelineCells = std::vector<std::vector<Index>>;
inline constexpr Index cell_waits = -1;

/// Forward and backward as slides draw them: all forwards, then all backwards, and every one takes a cell.
struct PipelineGrid {
  Index micro_batches = 1;
  std::optional<Index> taught_waits = {}; ///< per direction, counted on the slides; nothing for other shapes
  std::optional<Index> taught_cells = {};
  Index exact_waits = 0; ///< p (p-1)
  Index exact_cells = 0; ///< p (m+p-1)
  PipelineCells forward = {};
  PipelineCells backward = {};
};

/// The number of cells in which a stage waits.
Index waiting_cells(PipelineCells const& cells);

/// A schedule whose backward takes twice as long as forward: closed forms, and what the simulation finds.
struct PipelineRow {
  std::string schedule;
  Index micro_batches = 1;
  Index chunks = 1;
  double share = 0; ///< waiting time / all time
  double simulated_share = 0;
  double ratio = 0; ///< waiting time / computing time
  double simulated_ratio = 0;
  std::vector<Index> in_flight = {}; ///< by stage: chunks of micro-batches that are kept at most
  std::vector<Index> simulated_in_flight = {};
  Index messages = 0; ///< of all stages
  Index counted_messages = 0;
  std::optional<Index> exposed = {}; ///< times of a short message that the step takes longer; none: no closed form
  Index simulated_exposed = 0;
};

struct TaughtPipeline {
  Index stages = 1;
  std::vector<PipelineGrid> grids; ///< by number of micro-batches
  std::vector<PipelineRow> rows;   ///< every schedule for these numbers, but those that do not exist for one
  double message_bytes = 0;        ///< between two stages of gpt3-175b, of one sequence in 16 bits, in one direction
};

/// Of the slides.
inline constexpr Index taught_stages = 3;
inline constexpr Index most_taught_stages = 64;
inline constexpr Index most_taught_micro_batches = 1024;

/// \param[in] stages  2 to most_taught_stages
/// \param[in] micro_batches  1 to most_taught_micro_batches; nothing: 1, 2 and 3 as on the slides
/// \throws InputError for other numbers
TaughtPipeline compare_taught_pipeline(Index stages, std::optional<Index> micro_batches);

} // namespace trainstone
