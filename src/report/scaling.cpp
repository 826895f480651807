#include "report/scaling.hpp"

#include "report/plural.hpp"
#include "report/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace trainstone {

namespace {

/// Values and, of a single one, the interval that it has of its own.
ScalingValue merged(std::int64_t ranks, std::vector<double> const& values, Rate const& only) {
  if (values.size() == 1) return {ranks, only.value, only.low, only.high, 1};
  auto const [least, largest] = std::ranges::minmax(values);
  return {ranks, median(values), least, largest, values.size()};
}

Rate rate_of(Result const& result, bool flops) {
  Rate rate = *result.tokens_per_second;
  if (!flops) return rate;
  double const per_token = result.metrics.at("executed_flops_per_second") / rate.value;
  return {per_token * rate.value, per_token * rate.low, per_token * rate.high};
}

Rate seconds_of(Result const& result) {
  std::vector<double> const seconds = measured_seconds(result);
  return {median(seconds), quantile(seconds, 0.05), quantile(seconds, 0.95)};
}

template <class Value>
ScalingValue merged_of(std::int64_t ranks, std::vector<NamedResult const*> const& repeats, Value const& value) {
  std::vector<double> values;
  for (NamedResult const* repeat : repeats) values.push_back(value(repeat->file.result).value);
  return merged(ranks, values, value(repeats.front()->file.result));
}

bool is_comparable(Result const& result, bool flops) {
  bool const honest = result.outcome != Outcome::invalid && result.outcome != Outcome::stopped;
  return honest && result.tokens_per_second && !measured_steps(result).empty() &&
         (!flops || result.metrics.contains("executed_flops_per_second"));
}

/// What tells results of one deck file from each other.
struct Differences {
  std::vector<std::string> keys;
  bool nodes = false;
};

/// These follow the number of ranks, or say where files go.
bool follows_ranks(std::string const& key) {
  static constexpr std::string_view rooms[] = {
      "batch.", "checkpoint.", "comm.expected_ranks", "comm.emulated_nodes", "model.save", "trace."};
  return std::ranges::any_of(rooms, [&](std::string_view room) { return key.starts_with(room); });
}

Differences differences_of(std::vector<NamedResult const*> const& results) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::int64_t, std::set<std::int64_t>> nodes;
  for (NamedResult const* named : results) {
    for (auto const& [key, value] : named->file.deck_values) values[key].insert(value);
    nodes[named->file.result.topology.ranks].insert(named->file.result.topology.nodes);
  }
  Differences differences;
  for (auto const& [key, found] : values)
    if (found.size() > 1 && !follows_ranks(key)) differences.keys.push_back(key);
  differences.nodes = std::ranges::any_of(nodes, [](auto const& entry) { return entry.second.size() > 1; });
  return differences;
}

/// ", parallel.zero_stage=3, 2 nodes"
std::string values_of(Differences const& differences, ResultFile const& file) {
  std::string text;
  for (std::string const& key : differences.keys)
    if (auto const found = file.deck_values.find(key); found != file.deck_values.end())
      text += fmt::format(", {}={}", key, found->second);
  if (differences.nodes) text += ", " + plural(file.result.topology.nodes, "node");
  return text;
}

std::string names_of_rates(ScalingLine const& line) {
  std::set<std::string> names;
  for (auto const& [ranks, repeats] : line.by_ranks)
    for (NamedResult const* repeat : repeats) names.insert(rate_name(repeat->file.result.outcome));
  std::string text;
  for (std::string const& name : names) text += (text.empty() ? "" : " and ") + name;
  return text;
}

} // namespace

std::vector<ScalingLine> scaling_lines(std::vector<NamedResult const*> const& results, Told told, bool flops) {
  std::vector<NamedResult const*> comparable;
  std::ranges::copy_if(results, std::back_inserter(comparable),
                       [&](NamedResult const* named) { return is_comparable(named->file.result, flops); });
  Differences const differences = told == Told::by_values ? differences_of(comparable) : Differences{};
  std::map<std::pair<std::string, bool>, ScalingLine> lines;
  for (NamedResult const* named : comparable) {
    Result const& result = named->file.result;
    std::string const name = result.deck.substr(0, result.deck.find('#')) + values_of(differences, named->file);
    ScalingLine& line = lines[{name, result.outcome == Outcome::emulated}];
    line.name = name;
    line.by_ranks[result.topology.ranks].push_back(named);
  }
  std::vector<ScalingLine> found;
  for (auto& [key, line] : lines) {
    line.rate_name = names_of_rates(line);
    for (auto const& [ranks, repeats] : line.by_ranks) {
      line.rates.push_back(merged_of(ranks, repeats, [&](Result const& result) { return rate_of(result, flops); }));
      line.seconds.push_back(merged_of(ranks, repeats, seconds_of));
    }
    found.push_back(std::move(line));
  }
  return found;
}

std::vector<ScalingValue> efficiencies(std::vector<ScalingValue> const& rates) {
  std::vector<ScalingValue> shares = rates;
  for (ScalingValue& share : shares) {
    ScalingValue const& first = rates.front();
    double const ideal = first.value * static_cast<double>(share.ranks) / static_cast<double>(first.ranks);
    for (double* value : {&share.value, &share.low, &share.high}) *value /= ideal;
  }
  return shares;
}

std::string invariant_of(ScalingLine const& line) {
  std::set<std::int64_t> per_step;
  std::set<double> per_rank;
  for (auto const& [ranks, repeats] : line.by_ranks)
    for (NamedResult const* repeat : repeats) {
      std::int64_t const tokens = repeat->file.result.samples.front().tokens;
      per_step.insert(tokens);
      per_rank.insert(static_cast<double>(tokens) / static_cast<double>(ranks));
    }
  if (per_step.size() == 1)
    return fmt::format("strong scaling: {} tokens per step on any number of ranks", *per_step.begin());
  if (per_rank.size() == 1) return fmt::format("weak scaling: {:g} tokens per step and rank", *per_rank.begin());
  return "neither tokens per step nor tokens per rank are the same in all runs: this is no scaling study";
}

} // namespace trainstone
