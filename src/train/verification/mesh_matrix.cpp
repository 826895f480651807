#include "train/verification/mesh_matrix.hpp"

#include "parallel/pipeline/pipeline_schedules.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace trainstone {

namespace {

using Recomputation = std::vector<Recompute>;

constexpr std::array all_delays{MatrixDelays::none, MatrixDelays::slow_sends, MatrixDelays::slow_kernels};

struct Kind {
  std::int64_t micro_batches;
  RecipeName recipe;
};

constexpr std::array kinds{Kind{8, RecipeName::fp32}, Kind{16, RecipeName::mixed16}, Kind{8, RecipeName::mixed16},
                           Kind{16, RecipeName::fp32}};

/// Stages with their schedule, uncut and without a strategy. One stage has no schedule.
std::vector<ParallelConfig> schedules_of(Rank stages) {
  if (stages == 1) return {{}};
  std::vector<ParallelConfig> all;
  for (PipelineSchedule const& schedule : pipeline_schedules()) {
    if (schedule.splits_backward) continue; // for explain only
    std::int64_t const chunks = schedule.has_chunks && 2 * stages <= mesh_layers ? 2 : 1;
    all.push_back({.pipeline = stages, .pipeline_schedule = std::string(schedule.name), .pipeline_chunks = chunks});
  }
  return all;
}

/// Of stages with one chunk: with the head alone, and with the embedding alone where there are more than two.
std::vector<std::int64_t> listed_stages(Rank stages) {
  switch (stages) {
  case 2: return {8, 0};
  case 4: return {0, 5, 3, 0};
  default: return {1, 2, 1, 1, 1, 1, 1, 0};
  }
}

/// Even first.
std::vector<ParallelConfig> cuts_of(ParallelConfig scheduled) {
  std::vector<ParallelConfig> all{scheduled};
  if (scheduled.pipeline == 1 || scheduled.pipeline_chunks > 1) return all; // chunks are cut evenly
  scheduled.stage_cut = StageCut::balanced;
  all.push_back(scheduled);
  scheduled.stage_cut = StageCut::listed;
  scheduled.stages = listed_stages(static_cast<Rank>(scheduled.pipeline));
  all.push_back(scheduled);
  return all;
}

ParallelConfig with_zero_stage(ParallelConfig cut, std::int64_t stage) {
  cut.reduction = ReductionMode::ordered;
  cut.strategy = stage == 0 ? Strategy::ddp : Strategy::zero;
  cut.zero_stage = stage;
  return cut;
}

class Rows {
public:
  Rows(MessageBuffers buffers, GptOptions const& options)
      : m_shared(buffers == MessageBuffers::host),
        m_again(recomputations(options, {{Recompute::none}, {Recompute::selective}, {Recompute::full}})) {}

  std::vector<Recomputation> const& recomputations_of_rows() const { return m_again; }

  void add(Kind const& kind, ParallelConfig parallel, MatrixDelays delays, Recomputation const& again) {
    std::size_t const number = m_rows.size();
    if (number / 3 % 2 == 1) parallel.bucket_bytes = parallel.first_bucket_bytes = tiny_bucket;
    parallel.overlap = number % 5 != 0;
    std::string const algorithm = m_shared && number / 5 % 2 == 1 ? "shared" : "ordered";
    m_rows.push_back({kind.micro_batches, kind.recipe, std::move(parallel), algorithm, delays, again, mesh_layers});
  }
  /// Delays and what is computed again follow from the row's number.
  void add_in_turn(Kind const& kind, ParallelConfig parallel) {
    std::size_t const number = m_rows.size();
    add(kind, std::move(parallel), all_delays.at(number % 3), m_again[number / 3 % m_again.size()]);
  }
  std::vector<MatrixRow> take() { return std::move(m_rows); }

private:
  bool m_shared;
  std::vector<Recomputation> m_again;
  std::vector<MatrixRow> m_rows;
};

/// One row for each strategy.
void add_quick(Rows& rows, ParallelConfig const& scheduled, std::size_t number) {
  std::vector<ParallelConfig> const cuts = cuts_of(scheduled);
  for (std::size_t stage = 0; stage <= 3; ++stage)
    rows.add_in_turn(kinds.at((number + stage) % kinds.size()),
                     with_zero_stage(cuts[(number + stage) % cuts.size()], static_cast<std::int64_t>(stage)));
}

void add_all(Rows& rows, ParallelConfig const& scheduled) {
  std::vector<ParallelConfig> const cuts = cuts_of(scheduled);
  for (Kind const& kind : kinds)
    for (std::int64_t stage = 0; stage <= 3; ++stage) {
      for (Recomputation const& again : rows.recomputations_of_rows())
        for (MatrixDelays const delays : all_delays)
          rows.add(kind, with_zero_stage(cuts.front(), stage), delays, again);
      for (std::size_t cut = 1; cut < cuts.size(); ++cut) rows.add_in_turn(kind, with_zero_stage(cuts[cut], stage));
    }
}

} // namespace

std::vector<MatrixRow> mesh_matrix(Rank ranks, bool quick, MessageBuffers buffers, GptOptions const& options) {
  Rows rows(buffers, options);
  for (Rank const data : {1, 2}) {
    if (ranks % data != 0 || ranks / data > mesh_layers) continue;
    std::size_t number = 0;
    for (ParallelConfig const& scheduled : schedules_of(ranks / data))
      if (quick)
        add_quick(rows, scheduled, number++);
      else
        add_all(rows, scheduled);
  }
  return rows.take();
}

} // namespace trainstone
