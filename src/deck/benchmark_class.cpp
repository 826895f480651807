#include "deck/benchmark_class.hpp"

#include "parallel/plan/strategies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace trainstone {

namespace {

// Shapes, batches in tokens and learning rates of reference and large: "GPT-3 XL" and "GPT-3 6.7B" of Language Models
// are Few-Shot Learners, arXiv:2005.14165, table 2.1, with the 16 heads of 128 channels that 2048 channels make.
std::map<std::string_view, std::string_view> const class_texts{{"tiny", R"(
[model]
layers = 4
heads = 4
channels = 128
context = 128
vocab = 256
[data]
source = "text"
files = ["data/corpus.txt"]
xxhash = "0e1b8ba63f05856f"
sequence = 128
seed = 1
validation_fraction = 0.05
validate_every = 100
steps = 300
[batch]
global = 16
accumulation = 1
[optimizer]
lr = 2e-3
schedule = "cosine"
warmup = 30
[bench]
warmup_steps = 10
)"},
                                                               {"small", R"(
[model]
preset = "gpt2"
[data]
source = "synthetic"
sequence = 256
seed = 1
steps = 20
[batch]
global = 16
accumulation = 1
[optimizer]
lr = 3e-4
schedule = "constant"
warmup = 5
[bench]
warmup_steps = 2
)"},
                                                               {"reference", R"(
[model]
layers = 24
heads = 16
channels = 2048
context = 2048
vocab = 50257
[data]
source = "synthetic"
sequence = 2048
seed = 1
steps = 20
[batch]
global = 512
micro = 1
[optimizer]
lr = 2e-4
schedule = "constant"
warmup = 5
[bench]
warmup_steps = 2
)"},
                                                               {"large", R"(
[model]
preset = "gpt3-6.7b"
[data]
source = "synthetic"
sequence = 2048
seed = 1
steps = 10
[batch]
global = 1024
micro = 1
[optimizer]
lr = 1.2e-4
schedule = "constant"
warmup = 5
[bench]
warmup_steps = 2
)"},
                                                               {"custom", ""}};

/// A key that a deck gives, and what its class then says no longer: keys that say the same in another way, or belong to
/// what was replaced.
struct Replacement {
  std::string_view given;
  std::vector<std::string_view> left_out;
};

std::vector<Replacement> const replacements{
    {"model.preset", {"model.layers", "model.heads", "model.channels", "model.context", "model.vocab"}},
    {"data.source", {"data.files", "data.xxhash"}},
    {"data.validation_files", {"data.validation_fraction"}},
    {"data.epochs", {"data.steps"}},
    {"batch.micro", {"batch.accumulation"}},
    {"batch.accumulation", {"batch.micro"}}};

bool is_left_out(std::string_view key, std::vector<Impl::Setting> const& given) {
  return std::ranges::any_of(replacements, [&](Replacement const& row) {
    return std::ranges::find(row.left_out, key) != row.left_out.end() &&
           std::ranges::any_of(given, [&](Impl::Setting const& setting) { return setting.key->name == row.given; });
  });
}

/// What a deck says of its class alone.
RunConfig config_of_class(std::string const& name) {
  return parse_deck(fmt::format("class = \"{}\"\n", name), {}).config;
}

/// The rules of inputs/RUN_RULES.md that a run breaks.
std::vector<std::string> broken_rules(RunConfig const& run, RunConfig const& named, RunConditions const& conditions) {
  std::vector<std::string> broken;
  std::int64_t const warmup = named.bench.warmup_steps;
  if (run.bench.warmup_steps < warmup)
    broken.push_back(fmt::format("bench.warmup_steps = {} instead of at least {}", run.bench.warmup_steps, warmup));
  MeasuredWindow const& window = conditions.window;
  std::int64_t const measured = window.empty() ? 0 : window.last - window.first + 1;
  if (std::int64_t const least = (named.length.steps - warmup + 1) / 2; measured < least)
    broken.push_back(fmt::format("{} measured steps instead of at least {}", measured, least));
  if (run.bench.kernels) broken.emplace_back("bench.kernels = true instead of false");
  if (run.bench.pipeline) broken.emplace_back("bench.pipeline = true instead of false");
  if (run.comm.check_order) broken.emplace_back("comm.check_order = true instead of false");
  if (!conditions.sharing_ranks.empty()) broken.push_back(conditions.sharing_ranks);
  return broken;
}

} // namespace

std::vector<Impl::Setting> Impl::class_settings(std::vector<Setting> const& given) {
  std::string name = ClassConfig().name;
  for (Setting const& setting : given)
    if (setting.key->name == "class") name = std::get<std::string>(setting.value);
  std::vector<Setting> settings = read_toml(class_texts.at(name), "class " + name);
  std::erase_if(settings, [&](Setting const& setting) { return is_left_out(setting.key->name, given); });
  for (Setting& setting : settings) setting.origin = {Origin::Kind::benchmark_class, 0, name};
  return settings;
}

ClassJudgement judge_class(Deck const& deck, std::int64_t ranks) {
  ClassJudgement judgement{deck.config.benchmark_class.name, {}};
  if (judgement.name == ClassConfig().name) return judgement;
  RunConfig const named = config_of_class(judgement.name);
  RunConfig run = deck.config;
  run.batch = resolve(deck, ranks).batch;
  for (Key const* key : loss_curve_keys(named)) {
    DeckValue const value = key->get(run), wanted = key->get(named);
    if (value != wanted)
      judgement.departures.push_back(fmt::format("{} = {} instead of {}", key->name, to_toml(value), to_toml(wanted)));
  }
  if (is_asynchronous(run.parallel)) // updates of other batches
    judgement.departures.push_back(
        fmt::format("server.mode = {} instead of \"sync\"", to_toml(find_key("server.mode")->get(run))));
  if (!judgement.departures.empty()) judgement.name = ClassConfig().name;
  return judgement;
}

ClassJudgement judge_run(Deck const& deck, std::int64_t ranks, RunConditions const& conditions) {
  ClassJudgement judgement = judge_class(deck, ranks);
  std::string const& name = deck.config.benchmark_class.name;
  if (name == ClassConfig().name) return judgement;
  std::vector<std::string> const broken = broken_rules(deck.config, config_of_class(name), conditions);
  judgement.departures.insert(judgement.departures.end(), broken.begin(), broken.end());
  if (!broken.empty()) judgement.name = ClassConfig().name;
  return judgement;
}

bool is_referenced(std::string_view class_name, bool has_curve, bool has_first_update) {
  bool const is_too_large_for_a_curve = class_name == "reference" || class_name == "large";
  return has_curve || (has_first_update && is_too_large_for_a_curve);
}

} // namespace trainstone
