#include "advice/way.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/pipeline/pipeline_stages.hpp"
#include "parallel/plan/strategies.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
    if (number % divisor != 0) continue;
    small.push_back(divisor);
    if (divisor * divisor != number) large.insert(large.begin(), number / divisor);
  }
  small.insert(small.end(), large.begin(), large.end());
  return small;
}

std::string strategy_of(Way const& way) {
  std::string text(to_string(way.strategy));
  if (way.zero_stage > 0) text += fmt::format(" {}", way.zero_stage);
  if (way.shard_group > 0) text += fmt::format(" {}", way.shard_group);
  return text;
}

} // namespace

std::string to_string(Way const& way) {
  std::string text = fmt::format("tensor {} x data {} x pipeline {}", way.tensor, way.data, way.pipeline);
  if (way.pipeline > 1) text += ", " + way.schedule + (way.chunks > 1 ? fmt::format(" {}", way.chunks) : "");
  text += ", " + strategy_of(way);
  if (way.sequence) text += ", sequence";
  if (way.recompute != Recompute::none) text += fmt::format(", recompute {}", to_string(way.recompute));
  if (way.optimizer != Residence::kernels) text += fmt::format(", offload optimizer {}", to_string(way.optimizer));
  return text;
}

WayBatch batch_of_ways(DeckOnRanks const& asked) {
  Deck const deck = asked.deck();
  BatchConfig const& batch = deck.config.batch;
  Mesh const mesh = mesh_of(deck.config.parallel, asked.ranks);
  if (batch.micro > 0 && batch.global > 0) return {batch.micro, batch.global};
  BatchConfig const resolved = resolve_batch(batch, mesh.data());
  return {resolved.micro, resolved.global};
}

std::vector<std::string> keys_of(Way const& way, WayBatch const& batch, Deck const& deck) {
  ParallelConfig const& asked = deck.config.parallel;
  std::vector<std::string> keys;
  auto const set = [&](std::string_view key, auto const& value) { keys.push_back(fmt::format("{}={}", key, value)); };
  auto const change = [&](std::string_view key, auto const& value, auto const& now) {
    if (value != now) set(key, value);
  };
  std::int64_t const expected = deck.config.comm.expected_ranks;
  if (expected != 0) change("comm.expected_ranks", way.ranks(), expected);
  set("batch.micro", batch.micro);
  set("batch.global", batch.global);
  if (deck.config.batch.accumulation > 0) set("batch.accumulation", way.accumulation(batch));
  if (asked.has_grid())
    set("parallel.tensor_grid", fmt::format("[{}, 1, 1]", way.tensor));
  else
    change("parallel.tensor", way.tensor, asked.tensor);
  change("parallel.pipeline", way.pipeline, asked.pipeline);
  if (way.pipeline > 1) {
    set("parallel.pipeline_schedule", way.schedule);
    if (way.chunks > 1 || asked.pipeline_chunks > 1) set("parallel.pipeline_chunks", way.chunks);
  }
  change("parallel.strategy", to_string(way.strategy), to_string(asked.strategy));
  if (way.zero_stage > 0) set("parallel.zero_stage", way.zero_stage);
  if (way.shard_group > 0) set("parallel.shard_group", way.shard_group);
  change("parallel.sequence", way.sequence, asked.sequence);
  change("memory.recompute", to_string(way.recompute), to_string(deck.config.model_options.recompute_of(0)));
  change("memory.offload_optimizer", to_string(way.optimizer), to_string(asked.offload_optimizer));
  return keys;
}

DeckOnRanks on_way(DeckOnRanks const& asked, Deck const& deck, Way const& way, WayBatch const& batch) {
  DeckOnRanks on = asked.with(keys_of(way, batch, deck));
  on.ranks = way.ranks();
  on.nodes = std::min(asked.nodes, on.ranks);
  return on;
}

std::vector<Way> meshes(GptConfig const& model, WayBatch const& batch, std::int64_t ranks) {
  std::vector<Way> all;
  for (std::int64_t const tensor : divisors(ranks)) {
    if (model.heads % tensor != 0) continue;
    for (std::int64_t const pipeline : divisors(ranks / tensor)) {
      std::int64_t const data = ranks / tensor / pipeline;
      if (pipeline > most_stages(model.layers) || batch.global % (batch.micro * data) != 0) continue;
      all.push_back({.tensor = tensor, .pipeline = pipeline, .data = data});
    }
  }
  return all;
}

std::vector<Way> with_schedules(Way const& mesh, GptConfig const& model, WayBatch const& batch) {
  if (mesh.pipeline == 1) return {mesh};
  std::vector<Way> all;
  for (PipelineSchedule const& schedule : pipeline_schedules()) {
    if (schedule.splits_backward || schedule.name == "naive") continue;
    for (std::int64_t const chunks : divisors(std::max<std::int64_t>(1, model.layers / mesh.pipeline))) {
      PipelineShape const shape{mesh.pipeline, mesh.accumulation(batch), chunks};
      if ((chunks > 1) != schedule.has_chunks || !shape_problem(schedule, shape).empty()) continue;
      if (chunks > 1 && !blocks_problem(schedule, shape, model.layers).empty()) continue;
      Way way = mesh;
      way.schedule = schedule.name;
      way.chunks = chunks;
      all.push_back(way);
    }
  }
  return all;
}

std::vector<Way> with_strategies(Way const& way) {
  std::vector<Way> all;
  auto const add = [&](Strategy strategy, std::int64_t stage, std::int64_t group) {
    all.push_back(way);
    all.back().strategy = strategy;
    all.back().zero_stage = stage;
    all.back().shard_group = group;
  };
  add(Strategy::ddp, 0, 0);
  if (way.data == 1) return all; // nothing to share
  for (std::int64_t const stage : {1, 2, 3}) add(Strategy::zero, stage, 0);
  for (std::int64_t const group : divisors(way.data))
    if (group > 1 && group < way.data) add(Strategy::hsdp, 0, group);
  return all;
}

std::vector<Way> with_savings(Way const& way, RunConfig const& config) {
  bool const materialized = config.model_options.attention == AttentionKind::materialized;
  std::vector<Way> all;
  for (Residence const optimizer : {Residence::kernels, Residence::host, Residence::file})
    for (Recompute const recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      if (recompute == Recompute::selective && !materialized) continue;
      for (bool const sequence : {false, true}) {
        if (sequence && way.tensor == 1) continue;
        all.push_back(way);
        all.back().recompute = recompute;
        all.back().sequence = sequence;
        all.back().optimizer = optimizer;
      }
    }
  return all;
}

} // namespace trainstone
