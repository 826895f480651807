#include "advice/way.hpp"

#include "core/error.hpp"
#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/pipeline/pipeline_stages.hpp"
#include "parallel/plan/strategies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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
  std::string const tensor =
      way.features > 1 ? fmt::format("grid {} x {}", way.tensor, way.features) : fmt::format("tensor {}", way.tensor);
  std::string text = fmt::format("{} x data {} x pipeline {}", tensor, way.data, way.pipeline);
  if (way.pipeline > 1) text += ", " + way.schedule + (way.chunks > 1 ? fmt::format(" {}", way.chunks) : "");
  text += ", " + strategy_of(way);
  if (way.sequence) text += ", sequence";
  if (way.recompute != Recompute::none) text += fmt::format(", recompute {}", to_string(way.recompute));
  if (way.optimizer != Residence::kernels) text += fmt::format(", offload optimizer {}", to_string(way.optimizer));
  if (way.parameters != Residence::kernels) text += fmt::format(", offload parameters {}", to_string(way.parameters));
  return text;
}

WayBatch batch_of_ways(DeckOnRanks const& asked) {
  Deck const deck = asked.deck();
  BatchConfig const& batch = deck.config.batch;
  Mesh const mesh = mesh_of(deck.config.parallel, asked.ranks);
  if (batch.micro > 0 && batch.global > 0) return {batch.micro, batch.global};
  if (batch.global > 0 && batch.accumulation > 0 && batch.global % (batch.accumulation * mesh.data()) != 0)
    return {1, batch.global};
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
    set("parallel.tensor_grid", fmt::format("[{}, {}, 1]", way.tensor, way.features));
  else
    change("parallel.tensor", way.tensor, asked.tensor);
  change("parallel.pipeline", way.pipeline, asked.pipeline);
  if (way.pipeline > 1) {
    set("parallel.pipeline_schedule", way.schedule);
    if (way.chunks > 1 || asked.pipeline_chunks > 1) set("parallel.pipeline_chunks", way.chunks);
  }
  change("parallel.strategy", to_string(way.strategy), to_string(asked.strategy));
  change("parallel.zero_stage", way.zero_stage, asked.zero_stage);
  change("parallel.shard_group", way.shard_group, asked.shard_group);
  change("parallel.sequence", way.sequence, asked.sequence);
  std::vector<Recompute> const& recompute = deck.config.model_options.recompute;
  auto const is_other = [&](Recompute one) { return one != way.recompute; };
  if (recompute.empty() ? is_other(Recompute::none) : std::ranges::any_of(recompute, is_other))
    set("memory.recompute", to_string(way.recompute));
  change("memory.offload_optimizer", to_string(way.optimizer), to_string(asked.offload_optimizer));
  change("memory.offload_param", to_string(way.parameters), to_string(asked.offload_parameters));
  return keys;
}

DeckOnRanks on_way(DeckOnRanks const& asked, Deck const& deck, Way const& way, WayBatch const& batch) {
  DeckOnRanks on = asked.with(keys_of(way, batch, deck));
  on.ranks = way.ranks();
  on.nodes = std::min(asked.nodes, on.ranks);
  return on;
}

std::vector<Way> meshes(RunConfig const& config, WayBatch const& batch, std::int64_t ranks) {
  GptConfig const& model = config.model;
  std::vector<Way> all;
  auto const add_pipelines = [&](Way const& sharers) {
    std::int64_t const groups = ranks / sharers.ranks();
    for (std::int64_t const pipeline : divisors(groups)) {
      std::int64_t const data = groups / pipeline;
      if (pipeline > most_stages(model.layers) || batch.global % (batch.micro * data) != 0) continue;
      all.push_back(sharers);
      all.back().pipeline = pipeline;
      all.back().data = data;
    }
  };
  for (std::int64_t const tensor : divisors(ranks)) {
    if (model.heads % tensor != 0) continue;
    for (std::int64_t const features : divisors(config.parallel.has_grid() ? ranks / tensor : 1))
      if (model.channels % features == 0) add_pipelines({.tensor = tensor, .features = features});
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

namespace {

/// Optimizer state is moved first: it is larger, and no pass needs it. The deck's own places are among them.
std::vector<std::pair<Residence, Residence>> places_of_state(Way const& way, ParallelConfig const& own) {
  std::vector<std::pair<Residence, Residence>> places;
  for (Residence const optimizer : {Residence::kernels, Residence::host, Residence::file})
    places.emplace_back(optimizer, Residence::kernels);
  if (!way.shares_parameters() && way.data > 1) return places;
  places.emplace_back(Residence::host, Residence::host);
  places.emplace_back(Residence::file, Residence::host);
  places.emplace_back(Residence::file, Residence::file);
  std::pair const of_deck(own.offload_optimizer, own.offload_parameters);
  if (std::ranges::find(places, of_deck) == places.end()) places.push_back(of_deck);
  return places;
}

} // namespace

std::vector<Way> with_savings(Way const& way, RunConfig const& config) {
  bool const materialized = config.model_options.attention == AttentionKind::materialized;
  std::vector<Way> all;
  for (auto const& [optimizer, parameters] : places_of_state(way, config.parallel))
    for (Recompute const recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      if (recompute == Recompute::selective && !materialized) continue;
      for (bool const sequence : {false, true}) {
        if (sequence && way.tensor == 1) continue;
        Way saving = way;
        saving.recompute = recompute;
        saving.sequence = sequence;
        saving.optimizer = optimizer;
        saving.parameters = parameters;
        if (parameters != Residence::kernels && !way.shares_parameters())
          saving.strategy = Strategy::zero, saving.zero_stage = 3;
        all.push_back(saving);
      }
    }
  return all;
}

Way without_savings(Way const& way) {
  Way base = way;
  base.sequence = false;
  base.recompute = Recompute::none;
  base.optimizer = base.parameters = Residence::kernels;
  if (way.data == 1) base.strategy = Strategy::ddp, base.zero_stage = 0;
  return base;
}

bool moves_no_more(Way const& one, Way const& other) {
  auto const no_more = [](Residence here, Residence there) { return here == Residence::kernels || here == there; };
  return no_more(one.optimizer, other.optimizer) && no_more(one.parameters, other.parameters);
}

} // namespace trainstone
