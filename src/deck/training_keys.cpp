#include "core/error.hpp"
#include "deck/benchmark_class.hpp"
#include "deck/key_builders.hpp"
#include "deck/key_sections.hpp"
#include "parallel/pipeline/pipeline_schedules.hpp"
#include "parallel/pipeline/pipeline_stages.hpp"
#include "parallel/plan/strategies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace trainstone::Impl {

namespace {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (GptPreset const& preset : gpt_presets) names.emplace_back(preset.name);
  return names;
}

std::vector<Key> class_keys() {
  return {choice("class", &RunConfig::benchmark_class, &ClassConfig::name, {class_names.begin(), class_names.end()},
                 "benchmark class, which gives defaults to other keys; a run belongs to it if all keys that the "
                 "loss curve depends on have the values of the class, and if it keeps the run rules")};
}

std::vector<Key> model_keys() {
  auto const model = &RunConfig::model;
  auto const setup = &RunConfig::model_setup;
  auto const options = &RunConfig::model_options;
  return {
      choice("model.preset", setup, &ModelSetup::preset, preset_names(),
             "name of a shape; each of the five numbers below, if given, replaces the number of the preset"),
      number("model.layers", model, &GptConfig::layers, "", up_to(largest_gpt.layers),
             "transformer blocks; 0 = the preset's"),
      number("model.heads", model, &GptConfig::heads, "", up_to(largest_gpt.heads),
             "attention heads; 0 = the preset's"),
      number("model.channels", model, &GptConfig::channels, "", up_to(largest_gpt.channels),
             "width, a multiple of model.heads; 0 = the preset's"),
      number("model.context", model, &GptConfig::context, "tokens", up_to(largest_gpt.context),
             "positions that the model knows; 0 = the preset's"),
      number("model.vocab", model, &GptConfig::vocab, "tokens", up_to(largest_gpt.vocab),
             "at least 256 for data.source = \"text\"; 0 = the preset's"),
      choice("model.attention", options, &GptOptions::attention,
             {{"materialized", AttentionKind::materialized}, {"flash", AttentionKind::flash}},
             "flash: tile by tile, so that memory grows linearly with data.sequence, not with its square"),
      number("model.dropout", options, &GptOptions::dropout, "", below(1),
             "dropout rate in training; acts after the embedding, on attention's probabilities and on what a block "
             "adds"),
      choice("model.dropout_masks", options, &GptOptions::dropout_masks,
             {{"recomputed", DropoutMasks::recomputed}, {"stored", DropoutMasks::stored}},
             "how backward gets the masks; stored takes a byte per element; flash attention always recomputes its "
             "masks"),
      key("model.load", setup, &ModelSetup::load,
          "model file of llm.c (fp32 or bf16) to start from, of the shape above; relative to the deck's folder"),
      key("model.save", setup, &ModelSetup::save,
          "model file of llm.c, written after the last step; relative to the working directory"),
  };
}

std::vector<Key> batch_and_precision_keys() {
  using enum RecipeName;
  auto const batch = &RunConfig::batch;
  auto const precision = &RunConfig::precision;
  return {
      number("batch.micro", batch, &BatchConfig::micro, "samples", up_to(million),
             "samples per rank and pass; global = micro x accumulation x ranks: give two of the three; 0 = computed"),
      number("batch.accumulation", batch, &BatchConfig::accumulation, "micro-batches", up_to(million),
             "micro-batches per rank and step; 0 = computed"),
      number("batch.global", batch, &BatchConfig::global, "samples", up_to(trillion),
             "per step, over all ranks; 0 = computed"),
      choice("precision.recipe", precision, &PrecisionConfig::recipe,
             {{"fp32", fp32}, {"mixed16", mixed16}, {"mixed18", mixed18}, {"mixed20", mixed20}},
             "bytes of parameters + gradients + optimizer state with adamw: fp32 4 + 4 + 8, mixed16 2 + 2 + 12 (fp32 "
             "master copy), mixed18 2 + 4 + 12 (fp32 gradients), mixed20 2 + 2 + 16 (fp32 copy of the gradients)"),
      choice("precision.storage", precision, &PrecisionConfig::storage,
             {{"bf16", Storage::bf16}, {"fp16", Storage::fp16}},
             "of mixed recipes: type of stored parameters, activations and gradients; fp16 needs "
             "precision.loss_scale = \"dynamic\""),
      choice("precision.loss_scale", precision, &PrecisionConfig::loss_scale,
             {{"none", LossScaling::none}, {"dynamic", LossScaling::dynamic}},
             "of mixed recipes; dynamic: gradients are multiplied with a power of two that doubles while none "
             "overflows; if one overflows, all ranks skip the step and the scale halves"),
      number("precision.initial_loss_scale", precision, &PrecisionConfig::initial_loss_scale, "", {1, 0x1p40},
             "of loss_scale dynamic: first value of the scale, a power of two"),
      number("precision.growth_interval", precision, &PrecisionConfig::growth_interval, "steps", {1, trillion},
             "of loss_scale dynamic: the scale doubles after this number of steps without overflow"),
      number("precision.most_skipped", precision, &PrecisionConfig::most_skipped, "steps", {0, million},
             "of loss_scale dynamic: a run may skip this number of steps in a row; one more ends the run with exit "
             "70"),
  };
}

std::vector<Key> optimizer_keys() {
  auto const optimizer = &RunConfig::optimizer;
  auto const schedule = &RunConfig::schedule;
  return {
      choice("optimizer.type", optimizer, &OptimizerConfig::type,
             {{"adamw", OptimizerType::adamw}, {"adam", OptimizerType::adam}, {"sgd", OptimizerType::sgd}},
             "adamw and adam correct the bias of their moments; sgd is gradient descent"),
      number("optimizer.lr", optimizer, &OptimizerConfig::learning_rate, "", positive(), "peak learning rate"),
      number("optimizer.betas", optimizer, &OptimizerConfig::betas, "", below(1),
             "of adamw and adam: decay of the two moments"),
      number("optimizer.eps", optimizer, &OptimizerConfig::epsilon, "", positive(),
             "of adamw and adam: added outside the square root"),
      number("optimizer.momentum", optimizer, &OptimizerConfig::momentum, "", below(1), "of sgd; 0 = none"),
      number("optimizer.weight_decay", optimizer, &OptimizerConfig::weight_decay, "", {},
             "adamw decays parameters apart from the gradient; adam and sgd add weight_decay x parameter to the "
             "gradient, as a penalty |w|^2 weight_decay / 2 in the loss does; the printed loss has no penalty; 0 = "
             "off"),
      choice("optimizer.decay", optimizer, &OptimizerConfig::decay,
             {{"matrices", DecayScope::matrices}, {"all", DecayScope::all}},
             "parameters that decay: matrices (no biases, no layer norms) or all"),
      number("optimizer.clip", optimizer, &OptimizerConfig::clip, "", {}, "largest norm of the gradient; 0 = off"),
      choice("optimizer.schedule", schedule, &ScheduleConfig::type,
             {{"constant", ScheduleType::constant}, {"cosine", ScheduleType::cosine}},
             "learning rate after the warm-up"),
      number("optimizer.warmup", schedule, &ScheduleConfig::warmup, "steps", up_to(trillion),
             "steps in which the learning rate grows linearly to optimizer.lr"),
      number("optimizer.final_lr_fraction", schedule, &ScheduleConfig::final_lr_fraction, "", up_to(1),
             "of schedule cosine: last learning rate, as a share of optimizer.lr"),
  };
}

std::vector<std::pair<std::string, Strategy>> strategy_choices() {
  std::vector<std::pair<std::string, Strategy>> choices;
  for (StrategyRow const& row : strategy_table) choices.emplace_back(row.name, row.strategy);
  return choices;
}

/// "naive: ...; ddp: ..."
std::string strategy_meanings() {
  std::string text;
  for (StrategyRow const& row : strategy_table)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", row.name, row.meaning);
  return text;
}

std::vector<Key> parallel_keys() {
  auto const parallel = &RunConfig::parallel;
  constexpr LegalRange some{.minimum = 1, .maximum = 64};
  return {
      choice("parallel.strategy", parallel, &ParallelConfig::strategy, strategy_choices(), strategy_meanings()),
      number("parallel.zero_stage", parallel, &ParallelConfig::zero_stage, "", up_to(3),
             "of strategy zero: 1 shards the optimizer state, 2 also gradients, 3 also parameters (FSDP)"),
      choice("parallel.naive_update", parallel, &ParallelConfig::naive_update,
             {{"each", NaiveUpdate::each}, {"main", NaiveUpdate::main}},
             "of strategy naive; each: every rank updates with the mean gradient, and rank 0 sends parameters and "
             "optimizer state to all ranks at the start; main: rank 0 alone updates, and sends out parameters instead "
             "of gradients"),
      number("parallel.shard_group", parallel, &ParallelConfig::shard_group, "ranks", up_to(million),
             "of strategy hsdp: number of ranks that hold one copy together"),
      choice("parallel.partition", parallel, &ParallelConfig::partition,
             {{"intra_layer", StatePartition::intra_layer}, {"inter_layer", StatePartition::inter_layer}},
             "of strategy zero; intra_layer: a rank owns a part of every parameter group; inter_layer: a rank owns "
             "whole units (root or blocks), gets their reduced gradients and broadcasts their parameters"),
      choice("parallel.reduction", parallel, &ParallelConfig::reduction,
             {{"fast", ReductionMode::fast}, {"ordered", ReductionMode::ordered}},
             "ordered gives the same bits for every strategy and every number of data ranks that is a power of two, up "
             "to the number of micro-batches in a step, and of stages; with one parallel.tensor_blocks also of tensor "
             "ranks"),
      choice("parallel.reduce", parallel, &ParallelConfig::reduce,
             {{"by_strategy", ReduceWhen::by_strategy}, {"last", ReduceWhen::last}, {"each", ReduceWhen::each}},
             "gradients are reduced after the last micro-batch or after each; by_strategy: after each if gradients are "
             "sharded, else after the last; with hsdp this holds between groups, where by_strategy means last: a group "
             "reduces after each"),
      choice("parallel.granularity", parallel, &ParallelConfig::granularity,
             {{"bucket", Granularity::bucket}, {"tensor", Granularity::tensor}, {"step", Granularity::step}},
             "gradients that one reduction takes; step: all gradients at once after backward; tensor and step need "
             "strategy ddp"),
      choice(
          "parallel.gradient_reduction", parallel, &ParallelConfig::gradient_reduction,
          {{"reduce_scatter", GradientReductionWay::reduce_scatter}, {"all_reduce", GradientReductionWay::all_reduce}},
          "all_reduce: ZeRO stages 1 and 2 as they are often drawn, with 1.5 times the volume; in stage 2 a rank "
          "drops what it does not own"),
      quantity("parallel.bucket", parallel, &ParallelConfig::bucket_bytes, Dimension::size, positive(),
               "size of the gradients that one reduction takes"),
      quantity("parallel.first_bucket", parallel, &ParallelConfig::first_bucket_bytes, Dimension::size, positive(),
               "size of the first bucket: the gradients that backward completes first"),
      key("parallel.overlap", parallel, &ParallelConfig::overlap, "communicate while computing"),
      number("parallel.in_flight", parallel, &ParallelConfig::in_flight, "", some, "reductions at a time, at most"),
      number("parallel.prefetch", parallel, &ParallelConfig::prefetch, "units", {.minimum = 0, .maximum = 63},
             "number of units of parameters that are gathered ahead of their use: root, or parallel.unit blocks"),
      number("parallel.unit", parallel, &ParallelConfig::unit, "blocks", {.minimum = 1, .maximum = largest_gpt.layers},
             "blocks of a unit, which are gathered together, and end in the same buckets; more memory, fewer messages; "
             "the last unit of a model, a stage or a chunk may have fewer"),
      number("parallel.check_replicas", parallel, &ParallelConfig::check_replicas, "steps", up_to(trillion),
             "steps between comparisons of a hash of the parameters that several ranks hold; a difference ends the "
             "run; 0 = after the last step only"),
  };
}

std::int64_t parse_whole_number(std::string const& text) {
  std::int64_t number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TRAINSTONE_REQUIRE_INPUT(error == std::errc() && end == text.data() + text.size(), "\"{}\" is no whole number", text);
  return number;
}

/// A way to cut, or a list of numbers of blocks.
Key stages_key() {
  Key key;
  key.name = "parallel.stages";
  key.type = KeyType::text_list;
  key.one_will_do = key.takes_integers = true;
  key.meaning =
      "blocks of each stage of a pipeline, for example [4, 4, 3, 1]; even: as equal as possible; balanced: the "
      "cut with the least bound over the FLOPs of embedding, blocks and head";
  key.get = [](RunConfig const& config) {
    ParallelConfig const& parallel = config.parallel;
    std::vector<std::string> texts;
    for (std::int64_t const blocks : parallel.stages) texts.push_back(fmt::format("{}", blocks));
    if (parallel.stage_cut != StageCut::listed) texts = {parallel.stage_cut == StageCut::even ? "even" : "balanced"};
    return texts;
  };
  key.set = [](RunConfig& config, DeckValue const& value) {
    auto const& texts = std::get<std::vector<std::string>>(value);
    bool const is_number = !texts.empty() && texts.front().find_first_of("0123456789") == 0;
    bool const is_list = texts.size() != 1 || is_number;
    config.parallel.stages.clear();
    config.parallel.stage_cut = is_list ? StageCut::listed : parse_stage_cut(texts.front());
    for (std::string const& text : texts)
      if (is_list) config.parallel.stages.push_back(parse_whole_number(text));
  };
  return key;
}

/// Its first and its last number fill other keys in, where the deck does (deck.cpp).
Key tensor_grid_key() {
  Key key;
  key.name = "parallel.tensor_grid";
  key.type = KeyType::number_list;
  key.length = 3;
  key.range = {.minimum = 1, .maximum = million};
  key.meaning =
      "[x, y, z]: tensor ranks as a grid, as AxoNN has it. x ranks share slices of every layer: parallel.tensor = x. y "
      "ranks share the features of the residual stream: every weight is cut along both dimensions; y must divide "
      "model.channels. z > 1 data ranks share the state: parallel.strategy = \"hsdp\" with parallel.shard_group = z. "
      "With y > 1 sums are not ordered, and positions are not shared";
  key.get = [](RunConfig const& config) {
    auto const& grid = config.parallel.tensor_grid;
    return std::vector<double>(grid.begin(), grid.end());
  };
  key.set = [](RunConfig& config, DeckValue const& value) {
    auto const& numbers = std::get<std::vector<double>>(value);
    TRAINSTONE_REQUIRE_INPUT(std::ranges::all_of(numbers, [](double one) { return one == std::floor(one); }),
                             "[{}, {}, {}] must be whole numbers", numbers.at(0), numbers.at(1), numbers.at(2));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      config.parallel.tensor_grid[i] = static_cast<std::int64_t>(numbers[i]);
  };
  return key;
}

/// Of a pipeline that trains; all others are known to explain.
Key pipeline_schedule_key() {
  Key key = choice("parallel.pipeline_schedule", &RunConfig::parallel, &ParallelConfig::pipeline_schedule,
                   training_schedules(),
                   "order of forward and backward on the stages of a pipeline; trainstone explain pipeline draws each");
  for (PipelineSchedule const& schedule : pipeline_schedules())
    if (schedule.splits_backward) key.reasoned.emplace_back(schedule.name);
  return key;
}

std::vector<Key> server_keys() {
  auto const parallel = &RunConfig::parallel;
  return {
      number("server.count", parallel, &ParallelConfig::servers, "ranks", {.minimum = 1, .maximum = million},
             "of strategy parameter_server: number of ranks, the last ones, that do nothing but serve"),
      key("server.colocated", parallel, &ParallelConfig::colocated,
          "of strategy parameter_server: every rank works, and serves a share; no rank does nothing but serve"),
      choice("server.mode", parallel, &ParallelConfig::server_mode,
             {{"sync", ServerMode::sync}, {"async", ServerMode::async}, {"bounded", ServerMode::bounded}},
             "for whom a worker waits after its push: for all others, for nobody, or for those that are more than "
             "server.staleness pushes behind it"),
      number("server.staleness", parallel, &ParallelConfig::staleness, "pushes", {.minimum = 0, .maximum = million},
             "of server.mode bounded: how far a worker may be ahead of the slowest one when it begins; 0: rounds"),
      choice("server.order", parallel, &ParallelConfig::server_order,
             {{"planned", ServerOrder::planned}, {"arrival", ServerOrder::arrival}},
             "of server.mode async and bounded: order of pushes; planned by the times that faults give to workers, the "
             "same in every run; arrival: as they come, noted in the result"),
      choice("server.schedule", parallel, &ParallelConfig::server_schedule,
             {{"fifo", ServerSchedule::fifo}, {"priority", ServerSchedule::priority}},
             "of server.mode sync: fifo: servers update when all gradients are there, and what is complete first goes "
             "first; priority: they update unit by unit, and what the next forward needs first overtakes the rest"),
      quantity("server.slice", parallel, &ParallelConfig::server_slice_bytes, Dimension::size, {.minimum = 0},
               "of server.schedule priority: most gradients of one push, which nothing overtakes; 0 = parallel.bucket"),
      number("server.lr_scale", parallel, &ParallelConfig::server_lr_scale, "", {0, 1000},
             "of server.mode async and bounded: factor on the learning rate of the push of one worker; 0 = 1 / "
             "workers"),
  };
}

std::vector<Key> pipeline_keys() {
  auto const parallel = &RunConfig::parallel;
  return {
      number("parallel.tensor", parallel, &ParallelConfig::tensor, "ranks", {.minimum = 1, .maximum = million},
             "ranks that share every layer, on the same data: each has a part of the heads, of the channels of the "
             "hidden layer and of the vocabulary; must divide the heads, and the ranks of a stage; 1 = no tensor "
             "parallelism"),
      tensor_grid_key(),
      number(
          "parallel.tensor_blocks", parallel, &ParallelConfig::tensor_blocks, "", {.minimum = 0, .maximum = million},
          "equal slices into which every layer is cut; a multiple of parallel.tensor, and a power of two that divides "
          "heads and positions, or parallel.tensor itself; a rank computes its slices one after the other; decides the "
          "order of sums: in ordered mode results have the same bits with every parallel.tensor; 0 = as many as "
          "parallel.tensor"),
      key("parallel.sequence", parallel, &ParallelConfig::sequence,
          "outside of matrix products tensor ranks share the positions of every sample, too: they gather rows before a "
          "product and add up its result by a reduce-scatter; the positions of a sample must be a multiple of "
          "parallel.tensor"),
      key("parallel.tensor_keep_gathered", parallel, &ParallelConfig::tensor_keep_gathered,
          "of parallel.sequence: keep the rows that were gathered for products forward, instead of gathering them "
          "again in backward"),
      number("parallel.tensor_row_chunks", parallel, &ParallelConfig::tensor_row_chunks, "",
             {.minimum = 1, .maximum = most_row_chunks},
             "equal parts of a micro-batch's rows: every sum over slices is made part by part, and in a block the sum "
             "of a part is under way while the next part is computed; must divide the rows, with parallel.sequence the "
             "samples; changes bits; read with several parallel.tensor or parallel.tensor_blocks"),
      number(
          "parallel.pipeline", parallel, &ParallelConfig::pipeline, "stages", {.minimum = 1, .maximum = million},
          "stages that share out the layers of the model; each has ranks / stages ranks, which share the batch; must "
          "divide the ranks; 1 = no pipeline"),
      pipeline_schedule_key(),
      number("parallel.pipeline_chunks", parallel, &ParallelConfig::pipeline_chunks, "",
             {.minimum = 1, .maximum = million},
             "chunks of the model that each stage of schedule interleaved has; stages x chunks must divide "
             "model.layers"),
      stages_key()};
}

} // namespace

std::vector<Key> training_keys() {
  return joined({class_keys(), model_keys(), data_keys(), batch_and_precision_keys(), optimizer_keys(), parallel_keys(),
                 pipeline_keys(), server_keys()});
}

} // namespace trainstone::Impl
