#include "lectures/taught_pipeline.hpp"

#include "core/error.hpp"
#include "core/storage.hpp"
#include "model/config.hpp"
#include "parallel/pipeline/pipeline_formulas.hpp"
#include "parallel/pipeline/pipeline_proof.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace trainstone {

namespace {

/// What a slide shows of taught_stages stages in each direction.
struct TaughtCells {
  Index micro_batches, waits, cells;
};
constexpr std::array<TaughtCells, 3> taught_cells{{{1, 6, 9}, {2, 6, 12}, {3, 6, 15}}};

constexpr std::array<std::string_view, 4> schedules{"naive", "gpipe", "1f1b", "interleaved"};
constexpr Index interleaved_chunks = 2;

// A forward of a stage in ticks: long beside a message of one tick, however many add up. The number of chunks divides
// it.
constexpr Ticks forward_ticks = Ticks{1} << 20;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

PipelineProgram proved_program(PipelineSchedule const& schedule, PipelineShape const& shape) {
  PipelineProgram program = make_pipeline_program(shape, make_pipeline_order(schedule, shape));
  require_proved(program);
  return program;
}

/// Plays GPipe with forwards and backwards of one tick, so that a tick is a cell.
PipelineGrid make_grid(Index stages, Index micro_batches) {
  PipelineShape const shape{stages, micro_batches};
  PipelineProgram const program = proved_program(parse_pipeline_schedule("gpipe"), shape);
  PipelineTimeline const timeline = play_pipeline(program, equal_prices(shape, {1, 1}));
  PipelineGrid grid{.micro_batches = micro_batches,
                    .exact_waits = stages * (stages - 1),
                    .exact_cells = stages * (micro_batches + stages - 1)};
  auto const cells = at(timeline.time / 2); // both directions take as long
  grid.forward = grid.backward = PipelineCells(at(stages), std::vector<Index>(cells, cell_waits));
  for (Index stage = 0; stage < stages; ++stage)
    for (PipelineSpan const& span : timeline.stages[at(stage)].spans) {
      StageInstruction const& one = program.stages[at(stage)].instructions[at(span.instruction)];
      if (one.act == StageAct::forward) grid.forward[at(stage)].at(at(span.begin)) = one.micro_batch;
      if (one.act == StageAct::backward) grid.backward[at(stage)].at(at(span.begin) - cells) = one.micro_batch;
    }
  auto const* const taught = std::ranges::find(taught_cells, micro_batches, &TaughtCells::micro_batches);
  if (stages != taught_stages || taught == taught_cells.end()) return grid;
  grid.taught_waits = taught->waits;
  grid.taught_cells = taught->cells;
  return grid;
}

/// Nothing if the schedule does not exist for the shape.
std::optional<PipelineRow> make_row(PipelineSchedule const& schedule, PipelineShape const& shape) {
  if (!shape_problem(schedule, shape).empty()) return std::nullopt;
  ChunkPrice const stage{forward_ticks, 2 * forward_ticks};
  std::optional<PipelineFormulas> const formulas = pipeline_formulas(schedule.name, shape, stage);
  TRAINSTONE_REQUIRE(formulas, "{} has no closed forms", schedule.name);
  PipelineProgram const program = proved_program(schedule, shape);
  PipelineTimeline const timeline = play_pipeline(program, equal_prices(shape, stage));
  auto const busy = static_cast<double>(timeline.busy());
  PipelineRow row{.schedule = std::string(schedule.name),
                  .micro_batches = shape.micro_batches,
                  .chunks = shape.chunks,
                  .share = formulas->bubble_share(),
                  .simulated_share = timeline.idle_share(),
                  .ratio = formulas->bubble_ratio,
                  .simulated_ratio = (static_cast<double>(shape.stages * timeline.time) - busy) / busy,
                  .in_flight = formulas->in_flight,
                  .messages = formulas->messages,
                  .counted_messages = std::ssize(timeline.messages),
                  .exposed = formulas->exposed_messages,
                  .simulated_exposed = exposed_messages(program, equal_prices(shape, stage, 1))};
  for (Index i = 0; i < shape.stages; ++i) row.simulated_in_flight.push_back(timeline.peak_slots(i));
  return row;
}

} // namespace

Index waiting_cells(PipelineCells const& cells) {
  Index waits = 0;
  for (std::vector<Index> const& stage : cells) waits += std::ranges::count(stage, cell_waits);
  return waits;
}

TaughtPipeline compare_taught_pipeline(Index stages, std::optional<Index> micro_batches) {
  TRAINSTONE_REQUIRE_INPUT(stages >= 2 && stages <= most_taught_stages,
                           "--stages {}: the lecture on pipelines has 2 to {} stages", stages, most_taught_stages);
  TRAINSTONE_REQUIRE_INPUT(!micro_batches || (*micro_batches >= 1 && *micro_batches <= most_taught_micro_batches),
                           "--micro-batches {}: the lecture on pipelines has 1 to {} micro-batches",
                           micro_batches.value_or(0), most_taught_micro_batches);
  TaughtPipeline lecture{.stages = stages, .grids = {}, .rows = {}};
  for (Index const m : micro_batches ? std::vector<Index>{*micro_batches} : std::vector<Index>{1, 2, 3}) {
    lecture.grids.push_back(make_grid(stages, m));
    for (std::string_view const name : schedules) {
      PipelineSchedule const& schedule = parse_pipeline_schedule(name);
      PipelineShape const shape{stages, m, schedule.has_chunks ? interleaved_chunks : 1};
      if (std::optional<PipelineRow> row = make_row(schedule, shape)) lecture.rows.push_back(std::move(*row));
    }
  }
  GptConfig const gpt3 = *find_preset("gpt3-175b");
  lecture.message_bytes = static_cast<double>(gpt3.context * gpt3.channels * bytes_per_value(Storage::bf16));
  return lecture;
}

} // namespace trainstone
