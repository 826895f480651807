// The deck as text: help, the resolved deck, its hashes and its name in the header. Part of deck.hpp.

#include "deck/deck.hpp"
#include "deck/schema.hpp"
#include "deck/unread_keys.hpp"
#include "parallel/plan/mesh.hpp"
#include "parallel/plan/strategies.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace trainstone {

namespace {

std::string hash_text(std::string const& text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

std::string file_name(Deck const& deck) {
  return deck.path.empty() ? "defaults" : std::filesystem::path(deck.path).filename().string();
}

/// Whether the key is among those that the loss curve depends on. The batch and the files are treated apart.
bool shapes_loss_curve(Key const& key, RunConfig const& config) {
  constexpr std::array<std::string_view, 4> sections{"model", "data", "precision", "optimizer"};
  constexpr std::array<std::string_view, 11> exceptions{"model.preset",
                                                        "model.attention",
                                                        "model.dropout_masks",
                                                        "model.save",
                                                        "data.files",
                                                        "data.xxhash",
                                                        "data.validation_files",
                                                        "data.validate_every",
                                                        "data.validation_batches",
                                                        "data.validation_micro",
                                                        "precision.most_skipped"};
  return !find_unread(config, key.name) &&
         std::find(sections.begin(), sections.end(), key.section()) != sections.end() &&
         std::find(exceptions.begin(), exceptions.end(), key.name) == exceptions.end();
}

using KeysAndValues = std::vector<std::pair<std::string, std::string>>;

/// Where workers train apart, losses follow from the order of pushes. A planned order follows from these.
void add_keys_of_pushes(KeysAndValues& keys, RunConfig const& config, std::int64_t ranks) {
  ParallelConfig const& parallel = config.parallel;
  if (!is_asynchronous(parallel)) return;
  std::int64_t const workers = mesh_of(parallel, ranks).data();
  keys.emplace_back("workers", std::to_string(workers));
  keys.emplace_back("factor of a push", fmt::format("{}", parallel.lr_scale_of(workers)));
  bool const is_planned = parallel.server_order == ServerOrder::planned;
  if (is_planned) keys.emplace_back("steps between pauses", std::to_string(steps_between_pauses(config)));
  constexpr std::array<std::string_view, 3> of_servers{"server.mode", "server.staleness", "server.order"};
  for (Key const& key : deck_keys()) {
    bool const counts = std::ranges::find(of_servers, key.name) != of_servers.end() ||
                        (is_planned && key.name.starts_with("faults.straggler."));
    if (counts && !find_unread(config, key.name)) keys.emplace_back(key.name, to_toml(key.get(config)));
  }
}

std::string assignment(Key const& key, RunConfig const& config) {
  return fmt::format("{} = {}\n", key.name, to_toml(key.get(config)));
}

} // namespace

std::string help_deck() {
  std::string text =
      "Keys of a deck (TOML). Precedence: defaults < class < preset < deck < TRAINSTONE_SET < --set.\n"
      "TRAINSTONE_SET=\"section.key=value; ...\" and --set section.key=value take values in TOML syntax; "
      "strings may go without quotes.\n\n";
  std::string section;
  for (Key const& key : deck_keys()) {
    if (key.section() != section) text += fmt::format("\n[{}]\n", section = key.section());
    std::string const legal = legal_values(key);
    text += fmt::format("  {:<28} {}{}; default {}{}\n      {}\n", key.name, type_name(key),
                        key.unit.empty() ? "" : " (" + key.unit + ")", to_toml(key.default_value()),
                        legal.empty() ? "" : "; " + legal, key.meaning);
  }
  return text;
}

std::string print_deck(Deck const& deck) {
  std::string text =
      fmt::format("# {}: every key with its origin; files are relative to this deck's folder\n", deck_label(deck));
  std::string section;
  for (Key const& key : deck_keys()) {
    if (key.section() != section) text += fmt::format("\n[{}]\n", section = key.section());
    std::optional<UnreadKey> const unread = find_unread(deck.config, key.name);
    text += fmt::format(
        "{:<40} # {}\n",
        fmt::format("{}{} = {}", unread ? "# " : "", key.name.substr(section.empty() ? 0 : section.size() + 1),
                    to_toml(key.get(deck.config))),
        unread ? fmt::format("not read by this {}", unread->choice) : to_string(deck.origins.at(key.name)));
  }
  return text;
}

std::string deck_hash(Deck const& deck) {
  std::string text;
  for (Key const& key : deck_keys()) text += assignment(key, deck.config);
  return hash_text(text);
}

std::vector<Key const*> loss_curve_keys(RunConfig const& config) {
  std::vector<Key const*> keys{find_key("batch.global"),
                               find_key(config.data.xxhash.empty() ? "data.files" : "data.xxhash")};
  for (Key const& key : deck_keys())
    if (shapes_loss_curve(key, config)) keys.push_back(&key);
  return keys;
}

std::vector<std::pair<std::string, std::string>> keys_of_loss_curve(Deck const& deck, std::int64_t ranks) {
  RunConfig config = deck.config;
  config.batch = resolve(deck, ranks).batch;
  KeysAndValues keys;
  for (Key const* key : loss_curve_keys(config)) keys.emplace_back(key->name, to_toml(key->get(config)));
  add_keys_of_pushes(keys, config, ranks);
  return keys;
}

std::string golden_key(Deck const& deck, std::int64_t ranks) {
  std::string text;
  for (auto const& [key, value] : keys_of_loss_curve(deck, ranks)) text += fmt::format("{} = {}\n", key, value);
  return hash_text(text);
}

std::optional<std::string> golden_key_in_fp32(Deck deck, std::int64_t ranks) {
  PrecisionConfig& precision = deck.config.precision;
  if (precision.recipe == RecipeName::fp32 || precision.storage != Storage::bf16) return std::nullopt;
  precision = {};
  return golden_key(deck, ranks);
}

std::string deck_label(Deck const& deck) {
  auto const overrides = std::count_if(deck.origins.begin(), deck.origins.end(), [](auto const& entry) {
    return entry.second.kind == Origin::Kind::environment || entry.second.kind == Origin::Kind::command_line;
  });
  std::string label = fmt::format("{}#{}", file_name(deck), deck_hash(deck).substr(0, 4));
  if (overrides > 0) label += fmt::format(" +{} override{}", overrides, overrides == 1 ? "" : "s");
  return label;
}

std::vector<Parameter> resolved_parameters(Deck const& deck, std::int64_t ranks) {
  RunConfig const config = resolve(deck, ranks);
  std::vector<Parameter> parameters;
  for (Key const& key : deck_keys()) {
    bool const derived = key.section() == "batch" && key.get(config) != key.get(deck.config);
    parameters.push_back(
        {key.name, key.unit, key.get(config), derived ? "derived" : to_string(deck.origins.at(key.name))});
  }
  return parameters;
}

} // namespace trainstone
