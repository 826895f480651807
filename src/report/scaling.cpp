#include "report/scaling.hpp"

#include "core/plural.hpp"
#include "report/output.hpp"
#include "report/report_text.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

namespace trainstone {

namespace {

/// Values and, of a single one, the interval that it has of its own.
ScalingValue merged(std::int64_t cell, std::vector<double> const& values, Rate const& only) {
  if (values.size() == 1) return {cell, only.value, only.low, only.high, 1};
  auto const [least, largest] = std::ranges::minmax(values);
  return {cell, median(values), least, largest, values.size()};
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
ScalingValue merged_of(std::int64_t cell, std::vector<NamedResult const*> const& repeats, Value const& value) {
  std::vector<double> values;
  for (NamedResult const* repeat : repeats) values.push_back(value(repeat->file.result).value);
  return merged(cell, values, value(repeats.front()->file.result));
}

bool is_comparable(Result const& result, bool flops) {
  bool const honest = result.outcome != Outcome::invalid && result.outcome != Outcome::stopped;
  return honest && result.tokens_per_second && result.tokens_per_second->value > 0 && !measured_steps(result).empty() &&
         (!flops || result.metrics.contains("executed_flops_per_second"));
}

// --- what lies on one line

using Results = std::vector<NamedResult const*>;
using Groups = std::map<LineKey, Results>;
using TextOf = std::function<std::string(ResultFile const&)>;

/// Where files go, and what is only asked for.
bool changes_no_time(std::string const& key) {
  static constexpr std::string_view rooms[] = {"checkpoint.", "comm.expected_ranks", "model.save", "trace."};
  return std::ranges::any_of(rooms, [&](std::string_view room) { return key.starts_with(room); });
}

bool may_follow_ranks(std::string const& key, Told told) {
  return told == Told::by_study || key.starts_with("batch.") || key == "comm.emulated_nodes";
}

/// Which results' rates may lie on one line. A golden curve is of one global batch: of a weak study some runs find
/// theirs and others do not.
std::string rates_of(Outcome outcome, Told told) {
  bool const is_merit = outcome == Outcome::valid || outcome == Outcome::unreferenced;
  return is_merit && told == Told::by_study ? "FOM and FOM_UNREFERENCED" : rate_name(outcome);
}

std::string names_of_rates(Results const& results) {
  std::set<std::string> names;
  for (NamedResult const* named : results) names.insert(rate_name(named->file.result.outcome));
  return fmt::format("{}", fmt::join(names, " and "));
}

/// "2 ranks per NVIDIA H100". A line that adds ranks to devices would show how devices are shared, and no scaling.
std::string device_text(Result const& run) {
  std::int64_t const ranks = ranks_per_device(run.topology.places);
  if (ranks == 0) return "kernels on the host";
  return fmt::format("{} per {}", plural(ranks, "rank"),
                     run.machine.device.empty() ? "unknown device" : run.machine.device);
}

std::string network_text(EmulatedNetwork const& network) {
  if (!network.is_slow()) return "the machine's network";
  auto const text = [&](Link link) {
    return fmt::format("{:g} s and {:g} s/byte", network.of(link).latency, network.of(link).seconds_per_byte);
  };
  bool const alike = network.of(Link::intra) == network.of(Link::inter);
  return fmt::format("network of {}{}{}", text(Link::inter), alike ? "" : ", inside nodes " + text(Link::intra),
                     network.node_port ? ", a port per node" : "");
}

/// What no line mixes.
LineKey key_of(ResultFile const& file, Told told) {
  Result const& run = file.result;
  CodeInfo const& code = run.code;
  TopologyInfo const& topology = run.topology;
  LineKey key{run.deck.substr(0, run.deck.rfind('#')), rates_of(run.outcome, told), {}};
  key.values = {{"processor", run.machine.cpu},
                {"device", device_text(run)},
                {"mpi", run.machine.mpi},
                {"buffers", "buffers " + topology.buffers},
                {"code", fmt::format("trainstone {} {}{}", code.version,
                                     code.git.empty() ? "of unknown commit" : code.git, code.dirty ? " dirty" : "")},
                {"compiler", code.compiler},
                {"kokkos", "Kokkos " + code.kokkos},
                {"threads", plural(topology.busy_threads_per_rank(), "thread") + " per rank"},
                {"kind of nodes", topology.emulated_nodes ? "emulated nodes" : "real nodes"},
                {"network", network_text(topology.network)}};
  for (auto const& [name, value] : file.deck_values)
    if (!changes_no_time(name) && !may_follow_ranks(name, told)) key.values[name] = fmt::format("{}={}", name, value);
  return key;
}

bool differ_in_one(CellNumber const& cell_number, Results const& results, TextOf const& text_of) {
  std::map<std::int64_t, std::string> seen;
  return std::ranges::any_of(results, [&](NamedResult const* named) {
    std::string const text = text_of(named->file);
    return seen.emplace(cell_number(*named), text).first->second != text;
  });
}

/// Divides groups whose results differ in something in the same cell.
void divide(Groups& groups, CellNumber const& cell_number, std::string const& name,
            std::function<TextOf(Results const&)> const& text_for) {
  Groups divided;
  for (auto const& [key, results] : groups) {
    TextOf const text_of = text_for(results);
    bool const apart = differ_in_one(cell_number, results, text_of);
    for (NamedResult const* named : results) {
      LineKey finer = key;
      if (apart) finer.values[name] = text_of(named->file);
      divided[finer].push_back(named);
    }
  }
  groups = std::move(divided);
}

double tokens_of_step(Result const& result) { return static_cast<double>(measured_steps(result).front().tokens); }

std::string tokens_per_step(ResultFile const& file) {
  return fmt::format("{} tokens per step", tokens_of_step(file.result));
}

std::string tokens_per_rank(ResultFile const& file) {
  return fmt::format("{} tokens per step and rank",
                     tokens_of_step(file.result) / static_cast<double>(file.result.topology.ranks));
}

/// That of both which makes fewer lines: of strong scaling the former, of weak scaling the latter.
TextOf tokens_text(Results const& results) {
  std::set<std::string> per_step, per_rank;
  for (NamedResult const* named : results) {
    per_step.insert(tokens_per_step(named->file));
    per_rank.insert(tokens_per_rank(named->file));
  }
  return per_step.size() <= per_rank.size() ? tokens_per_step : tokens_per_rank;
}

TextOf text_of_key(std::string const& key) {
  return [key](ResultFile const& file) {
    auto const found = file.deck_values.find(key);
    return fmt::format("{}={}", key, found == file.deck_values.end() ? "unknown" : found->second);
  };
}

Groups groups_of(Results const& results, Told told, CellNumber const& cell_number) {
  Groups groups;
  std::set<std::string> following;
  for (NamedResult const* named : results) {
    groups[key_of(named->file, told)].push_back(named);
    for (auto const& [key, value] : named->file.deck_values)
      if (!changes_no_time(key) && may_follow_ranks(key, told)) following.insert(key);
  }
  for (char const* implied : {"batch.global", "batch.accumulation", "comm.emulated_nodes"}) // by tokens, micro, nodes
    following.erase(implied);
  divide(groups, cell_number, "tokens", tokens_text);
  auto const divide_by = [&](CellNumber const& same, std::string const& name, TextOf const& text_of) {
    divide(groups, same, name, [&](Results const&) { return text_of; });
  };
  divide_by(cell_by_ranks, "nodes", [](ResultFile const& file) { return plural(file.result.topology.nodes, "node"); });
  for (std::string const& key : following) divide_by(cell_number, key, text_of_key(key));
  divide_by(cell_by_ranks, "cores",
            [](ResultFile const& file) { return plural(file.result.machine.cores, "core") + " for a process"; });
  divide_by(cell_by_ranks, "sharing", [](ResultFile const& file) {
    std::string const shared = shared_cores(file.result.topology.places, file.result.topology.busy_threads_per_rank());
    return shared.empty() ? "a core for a thread" : shared;
  });
  divide_by(cell_number, "class", [](ResultFile const& file) { return "class " + file.result.benchmark_class.name; });
  return groups;
}

/// With the values that other lines of the same deck do not have.
std::string name_of(LineKey const& key, Groups const& groups) {
  std::string name = key.deck + ", " + names_of_rates(groups.at(key));
  for (auto const& [what, text] : key.values) {
    bool const same = std::ranges::all_of(groups, [&](auto const& group) {
      auto const found = group.first.values.find(what);
      return group.first.deck != key.deck || (found != group.first.values.end() && found->second == text);
    });
    if (!same) name += ", " + text;
  }
  return name;
}

/// Each within the limit of one value between them.
bool are_within(double limit, double least, double most) { return most <= least * (1 + limit) / (1 - limit); }

/// The values that results of a line have, each once.
struct Held {
  std::set<std::int64_t> tokens_per_step, ranks;
  std::set<double> tokens_per_rank, parameters, parameters_per_rank; ///< parameters: 0 where they are not known
};

Held held_in(ScalingLine const& line) {
  Held held;
  for (auto const& [cell, repeats] : line.by_cell)
    for (NamedResult const* repeat : repeats) {
      Result const& result = repeat->file.result;
      auto const each = static_cast<double>(result.topology.ranks);
      for (StepReport const& step : result.samples) {
        held.tokens_per_step.insert(step.tokens);
        held.tokens_per_rank.insert(static_cast<double>(step.tokens) / each);
      }
      auto const found = result.metrics.find("model_parameters");
      double const count = found == result.metrics.end() ? 0 : found->second;
      held.ranks.insert(result.topology.ranks);
      held.parameters.insert(count);
      held.parameters_per_rank.insert(count / each);
    }
  return held;
}

} // namespace

std::int64_t cell_by_ranks(NamedResult const& named) { return named.file.result.topology.ranks; }

std::vector<ScalingLine> scaling_lines(std::vector<NamedResult const*> const& results, Told told, bool flops,
                                       CellNumber const& cell_number) {
  Results comparable;
  std::ranges::copy_if(results, std::back_inserter(comparable),
                       [&](NamedResult const* named) { return is_comparable(named->file.result, flops); });
  Groups const groups = groups_of(comparable, told, cell_number);
  std::vector<ScalingLine> lines;
  for (auto const& [key, members] : groups) {
    ScalingLine line{key, name_of(key, groups), {}, {}, {}};
    for (NamedResult const* named : members) line.by_cell[cell_number(*named)].push_back(named);
    for (auto const& [cell, repeats] : line.by_cell) {
      line.rates.push_back(merged_of(cell, repeats, [&](Result const& result) { return rate_of(result, flops); }));
      line.seconds.push_back(merged_of(cell, repeats, seconds_of));
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<ScalingValue> efficiencies(std::vector<ScalingValue> const& rates) {
  std::vector<ScalingValue> shares = rates;
  for (ScalingValue& share : shares) {
    ScalingValue const& first = rates.front();
    double const ideal = first.value * static_cast<double>(share.cell) / static_cast<double>(first.cell);
    for (double* value : {&share.value, &share.low, &share.high}) *value /= ideal;
  }
  return shares;
}

Invariant invariant_of(ScalingLine const& line, double limit) {
  auto const [per_step, ranks, per_rank, parameters, parameters_per_rank] = held_in(line);
  bool const one_model = parameters.size() == 1;
  if (per_step.size() == 1 && one_model)
    return {StudyKind::strong,
            fmt::format("strong scaling: {} tokens per step on any number of ranks", *per_step.begin())};
  double const least = *parameters_per_rank.begin(), most = *parameters_per_rank.rbegin();
  if (per_step.size() == 1 && are_within(limit, least, most)) // 0, of what is not known, is near no other
    return {StudyKind::weak_model,
            fmt::format("weak scaling of the model: {} tokens per step, {:.4g} to {:.4g} parameters per rank",
                        *per_step.begin(), least, most)};
  if (per_rank.size() == 1 && one_model)
    return {StudyKind::weak_batch, fmt::format("weak scaling: {} tokens per step and rank", *per_rank.begin())};
  if (per_step.size() > 1 && per_rank.size() > 1)
    return {{}, "neither tokens per step nor tokens per rank are the same in all runs: this is no scaling study"};
  if (least == 0) return {{}, "a result does not say how many parameters its model has: this is no scaling study"};
  if (per_step.size() > 1)
    return {{},
            fmt::format("models of {:.4g} to {:.4g} parameters, {} tokens per step and rank: this is no scaling study",
                        *parameters.begin(), *parameters.rbegin(), *per_rank.begin())};
  return {{},
          fmt::format("{:.4g} to {:.4g} parameters per rank, not within {:g} % of one value: this is no scaling study",
                      least, most, 100 * limit)};
}

Invariant invariant_of_choices(ScalingLine const& line, StudyKind kind) {
  Held const held = held_in(line);
  std::int64_t const tokens = *held.tokens_per_step.begin();
  double const least = *held.parameters.begin(), most = *held.parameters.rbegin();
  std::string const none = "this is no " + to_string(kind);
  if (held.ranks.size() > 1) return {{}, "the choices ran on different numbers of ranks: " + none};
  if (held.tokens_per_step.size() > 1)
    return {{}, fmt::format("{} to {} tokens per step: {}", tokens, *held.tokens_per_step.rbegin(), none)};
  std::string const text = fmt::format("{} tokens per step on {}", tokens, plural(*held.ranks.begin(), "rank"));
  if (kind == StudyKind::to_loss) return {kind, text};
  if (least == 0) return {{}, "a result does not say how many parameters its model has: this is no sweep"};
  if (least < most) return {{}, fmt::format("models of {:.4g} to {:.4g} parameters: this is no sweep", least, most)};
  return {StudyKind::sweep, text};
}

} // namespace trainstone
