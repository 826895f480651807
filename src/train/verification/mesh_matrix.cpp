#include "train/verification/mesh_matrix.hpp"

#include "parallel/pipeline/pipeline_schedules.hpp"

#include <array>
#include <cstddef>
#include <optional>
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

/// All of them, and once more with the positions of a sample shared among tensor ranks, if there are several.
std::vector<ParallelConfig> with_sequence(std::vector<ParallelConfig> all) {
  std::size_t const number = all.size();
  for (std::size_t i = 0; i < number && all[i].tensor > 1; ++i) {
    all.push_back(all[i]);
    all.back().sequence = true;
  }
  return all;
}

/// Stages with their schedule, uncut and without a strategy. One stage has no schedule. Tensor ranks come with two
/// schedules.
std::vector<ParallelConfig> schedules_of(Rank stages, Rank tensor) {
  if (stages == 1) return with_sequence({{.tensor = tensor}});
  std::vector<ParallelConfig> all;
  for (PipelineSchedule const& schedule : pipeline_schedules()) {
    if (schedule.splits_backward) continue; // for explain only
    if (tensor > 1 && schedule.name != "1f1b" && !schedule.has_chunks) continue;
    std::int64_t const chunks = schedule.has_chunks && 2 * stages <= mesh_layers ? 2 : 1;
    all.push_back({.tensor = tensor,
                   .pipeline = stages,
                   .pipeline_schedule = std::string(schedule.name),
                   .pipeline_chunks = chunks});
  }
  return with_sequence(std::move(all));
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

/// ddp, the stages of ZeRO, and with slices, which leave more than two data ranks, hsdp.
std::vector<ParallelConfig> strategies_of(Rank data, bool in_slices) {
  std::vector<ParallelConfig> all{{.strategy = Strategy::ddp}};
  for (std::int64_t const stage : {1, 2, 3}) all.push_back({.strategy = Strategy::zero, .zero_stage = stage});
  if (in_slices && data % 2 == 0) all.push_back({.strategy = Strategy::hsdp, .shard_group = 2});
  return all;
}

ParallelConfig with_strategy(ParallelConfig cut, ParallelConfig const& strategy) {
  cut.reduction = ReductionMode::ordered;
  cut.strategy = strategy.strategy;
  cut.zero_stage = strategy.zero_stage;
  cut.shard_group = strategy.shard_group;
  return cut;
}

class Rows {
public:
  Rows(bool shares_memory, GptOptions const& options)
      : m_shared(shares_memory),
        m_again(recomputations(options, {{Recompute::none}, {Recompute::selective}, {Recompute::full}})) {}

  std::vector<Recomputation> const& recomputations_of_rows() const { return m_again; }

  void add(Kind const& kind, ParallelConfig parallel, MatrixDelays delays, Recomputation const& again) {
    std::size_t const number = m_rows.size();
    if (number / 3 % 2 == 1) parallel.bucket_bytes = parallel.first_bucket_bytes = tiny_bucket;
    parallel.overlap = number % 5 != 0;
    parallel.tensor_keep_gathered = parallel.sequence && number % 7 < 3;
    set_residences(parallel, number);
    set_unit(parallel, number, 3);
    std::string const algorithm = m_shared && number / 5 % 2 == 1 ? "shared" : "ordered";
    m_rows.push_back({kind.micro_batches, kind.recipe, std::move(parallel), algorithm, delays, again, mesh_layers});
  }
  /// What is computed again follows from the row's number, and so do delays if none are given.
  void add_in_turn(Kind const& kind, ParallelConfig parallel, std::optional<MatrixDelays> delays = {}) {
    std::size_t const number = m_rows.size();
    add(kind, std::move(parallel), delays.value_or(all_delays.at(number % 3)), m_again[number / 3 % m_again.size()]);
  }
  std::vector<MatrixRow> take() { return std::move(m_rows); }

private:
  bool m_shared;
  std::vector<Recomputation> m_again;
  std::vector<MatrixRow> m_rows;
};

/// One row for each strategy.
void add_quick(Rows& rows, ParallelConfig const& scheduled, std::vector<ParallelConfig> const& strategies,
               std::size_t number) {
  std::vector<ParallelConfig> const cuts = cuts_of(scheduled);
  for (ParallelConfig const& strategy : strategies) {
    rows.add_in_turn(kinds.at(number % kinds.size()), with_strategy(cuts[number % cuts.size()], strategy));
    ++number;
  }
}

/// The even cut with all delays: of a whole model with everything that blocks compute again, of slices in turn.
void add_all(Rows& rows, ParallelConfig const& scheduled, std::vector<ParallelConfig> const& strategies,
             bool in_slices) {
  std::vector<ParallelConfig> const cuts = cuts_of(scheduled);
  for (Kind const& kind : kinds)
    for (ParallelConfig const& strategy : strategies) {
      ParallelConfig const even = with_strategy(cuts.front(), strategy);
      for (MatrixDelays const delays : all_delays)
        if (in_slices)
          rows.add_in_turn(kind, even, delays);
        else
          for (Recomputation const& again : rows.recomputations_of_rows()) rows.add(kind, even, delays, again);
      for (std::size_t cut = 1; cut < cuts.size(); ++cut) rows.add_in_turn(kind, with_strategy(cuts[cut], strategy));
    }
}

} // namespace

std::vector<MatrixRow> mesh_matrix(Rank ranks, bool quick, bool shares_memory, GptOptions const& options) {
  Rows rows(shares_memory, options);
  bool const in_slices = options.slices.cuts();
  Rank const most_data = in_slices ? ranks : 2;
  for (Rank tensor = 1; tensor <= options.slices.blocks; tensor *= 2)
    for (Rank data = 1; data <= most_data; data *= 2) {
      if (ranks % (tensor * data) != 0 || ranks / tensor / data > mesh_layers) continue;
      std::vector<ParallelConfig> const strategies = strategies_of(data, in_slices);
      std::size_t number = 0;
      for (ParallelConfig const& scheduled : schedules_of(ranks / tensor / data, tensor))
        if (quick)
          add_quick(rows, scheduled, strategies, number++);
        else
          add_all(rows, scheduled, strategies, in_slices);
    }
  return rows.take();
}

} // namespace trainstone
