#include "result/result_file.hpp"

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "deck/benchmark_class.hpp"
#include "result/files_info.hpp"
#include "result/json_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace trainstone {

namespace {

constexpr double rate_rounding = 1e-6; // relative, of a rate beside the steps that it is of

Outcome read_outcome(JsonFile const& file) {
  std::string const status = file.text("/status");
  for (Outcome const outcome :
       {Outcome::valid, Outcome::unreferenced, Outcome::emulated, Outcome::invalid, Outcome::stopped})
    if (status == to_string(outcome)) return outcome;
  file.fail(fmt::format("/status is \"{}\", must be VALID, UNREFERENCED, EMULATED, INVALID or STOPPED", status));
}

std::string text_or_empty(JsonFile const& file, std::string const& place) {
  return file.has(place) ? file.text(place) : "";
}

/// The one rate that the status may have.
std::optional<Rate> read_rate(JsonFile const& file, Outcome outcome) {
  std::optional<Rate> found;
  for (std::string const place : {"/fom", "/emulated_rate", "/unverified_rate"}) {
    if (!file.has(place)) continue;
    bool const is_its_own = place == (outcome == Outcome::emulated  ? "/emulated_rate"
                                      : outcome == Outcome::invalid ? "/unverified_rate"
                                                                    : "/fom");
    file.require(is_its_own && outcome != Outcome::stopped,
                 fmt::format("{} must be null in a run that is {}", place, to_string(outcome)));
    file.require(file.length(place + "/ci95") == 2, place + "/ci95 must be two numbers");
    found = Rate{file.non_negative(place + "/value"), 0, 0};
    if (found->value > 0) // else all measured steps were skipped
      found = Rate{found->value, file.positive(place + "/ci95/0"), file.positive(place + "/ci95/1")};
    file.require(found->low <= found->high, fmt::format("{}/ci95 is from {} to {}", place, found->low, found->high));
  }
  return found;
}

/// The steps of this run, one after another, and their tokens.
std::vector<StepReport> read_steps(JsonFile const& file) {
  std::vector<std::int64_t> const steps = file.counts("/samples/step"), tokens = file.counts("/samples/tokens");
  file.require(tokens.size() == steps.size(),
               fmt::format("/samples/tokens has {} elements, /samples/step {}", tokens.size(), steps.size()));
  std::vector<StepReport> samples(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i > 0 && steps[i] - 1 != steps[i - 1])
      file.fail(fmt::format("/samples/step/{} is {}, must be one more than {}", i, steps[i], steps[i - 1]));
    samples[i].step = steps[i];
    samples[i].tokens = tokens[i];
  }
  return samples;
}

std::vector<StepReport> read_samples(JsonFile const& file) {
  using Least = JsonFile::Least;
  std::vector<StepReport> samples = read_steps(file);
  auto const each = [&](std::string const& name, bool null, Least least, auto const& take) {
    std::string const place = "/samples/" + name;
    std::vector<double> const values = file.numbers(place, null, least);
    file.require(values.size() == samples.size(),
                 fmt::format("{} has {} elements, /samples/step {}", place, values.size(), samples.size()));
    for (std::size_t i = 0; i < values.size(); ++i) take(samples[i], values[i]);
  };
  each("loss", false, Least::any, [](StepReport& step, double value) { step.loss = value; });
  each("norm", true, Least::zero, [](StepReport& step, double value) { step.norm = value; });
  each("lr", false, Least::zero, [](StepReport& step, double value) { step.learning_rate = value; });
  each("seconds", false, Least::above_zero, [](StepReport& step, double value) { step.seconds = value; });
  each("held_out", true, Least::any, [](StepReport& step, double value) {
    if (!std::isnan(value)) step.validation_loss = value;
  });
  for (Phase const phase : phases)
    each("phases/" + std::string(to_string(phase)), true, Least::zero, [&](StepReport& step, double value) {
      step.phases_are_timed = step.phases_are_timed && !std::isnan(value);
      step.phase_seconds[phase] = value;
    });
  each("phases/exposed communication", false, Least::zero,
       [](StepReport& step, double value) { step.exposed_communication_seconds = value; });
  file.require(file.length("/samples/skipped") == samples.size(),
               fmt::format("/samples/skipped has {} elements, /samples/step {}", file.length("/samples/skipped"),
                           samples.size()));
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].skipped = file.boolean(fmt::format("/samples/skipped/{}", i));
  return samples;
}

std::vector<RankInfo> read_ranks(JsonFile const& file) {
  std::vector<RankInfo> ranks;
  for (std::size_t i = 0; i < file.length("/ranks"); ++i) {
    std::string const place = fmt::format("/ranks/{}/", i);
    double const none = std::numeric_limits<double>::quiet_NaN();
    ranks.push_back({static_cast<std::int64_t>(file.amount(place + "rank")), file.text(place + "host"),
                     file.optional_non_negative(place + "median_step_seconds").value_or(none),
                     file.optional_non_negative(place + "median_own_seconds").value_or(none),
                     file.non_negative(place + "communication_seconds"),
                     file.has(place + "serves") && file.boolean(place + "serves")}); // not in older files
  }
  file.require(
      static_cast<std::int64_t>(ranks.size()) == file.count("/topology/ranks"),
      fmt::format("/ranks has {} elements, /topology/ranks is {}", ranks.size(), file.count("/topology/ranks")));
  return ranks;
}

/// None in files that are older than maps of ranks.
std::vector<RankPlace> read_places(JsonFile const& file) {
  std::vector<RankPlace> places;
  for (std::size_t i = 0; i < file.length("/topology/rank_map"); ++i) {
    std::string const place = fmt::format("/topology/rank_map/{}/", i);
    places.push_back({file.text(place + "host"), file.text(place + "cores"), text_or_empty(file, place + "device")});
  }
  file.require(places.empty() || places.size() == file.length("/ranks"),
               fmt::format("/topology/rank_map has {} elements, /ranks {}", places.size(), file.length("/ranks")));
  return places;
}

/// The launcher alone may have nothing to be compared with.
std::vector<Check> read_checks(JsonFile const& file) {
  double const none = std::numeric_limits<double>::quiet_NaN();
  std::vector<Check> checks;
  for (std::size_t i = 0; i < file.length("/verification"); ++i) {
    std::string const place = fmt::format("/verification/{}/", i);
    Check check{.name = file.text(place + "name"),
                .value = file.optional_number(place + "value").value_or(none),
                .detail = file.text(place + "detail")};
    check.made = check.name != "launch" || !file.at(place + "passed").is_null();
    check.passed = check.made && file.boolean(place + "passed");
    check.limit = check.made ? file.number(place + "limit") : none;
    checks.push_back(check);
  }
  return checks;
}

EmulatedLink read_link(JsonFile const& file, std::string const& place) {
  return {file.non_negative(place + "/latency_seconds"), file.non_negative(place + "/seconds_per_byte")};
}

/// Files that are older than links inside nodes and ports of nodes have neither.
EmulatedNetwork read_network(JsonFile const& file) {
  std::string const place = "/topology/emulated_network";
  EmulatedNetwork network = EmulatedNetwork::uniform(read_link(file, place));
  if (file.has(place + "/inside"))
    network.links[static_cast<std::size_t>(Link::intra)] = read_link(file, place + "/inside");
  if (file.has(place + "/node_port")) network.node_port = file.boolean(place + "/node_port");
  return network;
}

void read_provenance(JsonFile const& file, Result& result) {
  result.deck = file.text("/deck/name");
  result.deck_hash = file.text("/deck/hash");
  result.golden_key = file.text("/deck/golden_key");
  if (file.has("/golden")) // not in files that are older than digests
    result.golden = {file.text("/golden/digest"),
                     file.has("/golden/key") ? file.text("/golden/key") : result.golden_key,
                     file.text("/golden/recorded_with"), file.boolean("/golden/released")};
  result.code = {file.text("/code/version"), file.text("/code/git"), file.boolean("/code/dirty"),
                 file.text("/code/compiler"), file.text("/code/kokkos")};
  result.machine.cpu = file.text("/machine/cpu");
  result.machine.cores = file.count("/machine/cores");
  result.machine.memory_bytes = file.amount("/machine/memory_bytes");
  result.machine.mpi = file.text("/machine/mpi");
  result.machine.device = text_or_empty(file, "/machine/device");
  result.topology.ranks = file.count("/topology/ranks");
  result.topology.nodes = file.count("/topology/nodes");
  result.topology.threads_per_rank = file.count("/topology/threads_per_rank");
  if (file.has("/topology/library_threads_per_rank"))
    result.topology.threads_of_libraries = static_cast<std::int64_t>(file.amount("/topology/library_threads_per_rank"));
  result.topology.buffers = file.text("/topology/buffers");
  result.topology.emulated_nodes = file.boolean("/topology/emulated_nodes");
  if (file.has("/topology/emulated_network")) result.topology.network = read_network(file);
  if (file.has("/topology/devices_per_node"))
    result.topology.devices_per_node = file.count("/topology/devices_per_node");
  result.topology.places = read_places(file);
}

/// What a run counts as: custom in files that are older than classes.
ClassJudgement read_class(JsonFile const& file) {
  ClassJudgement judgement;
  if (file.has("/class")) {
    judgement.name = file.text("/class");
    file.require(std::ranges::find(class_names, judgement.name) != class_names.end(),
                 fmt::format("/class is \"{}\", must be {}", judgement.name, fmt::join(class_names, ", ")));
  }
  for (std::size_t i = 0; i < file.length("/class_departures"); ++i)
    judgement.departures.push_back(file.text(fmt::format("/class_departures/{}", i)));
  file.require(judgement.departures.empty() || judgement.name == ClassJudgement().name,
               fmt::format("/class is \"{}\", must be \"{}\": there are /class_departures", judgement.name,
                           ClassJudgement().name));
  return judgement;
}

/// None in files that are older than measured choices.
std::vector<ChosenAlgorithm> read_chosen(JsonFile const& file) {
  std::vector<ChosenAlgorithm> chosen;
  if (!file.has("/chosen")) return chosen;
  for (auto const& [key, place] : file.members("/chosen")) {
    ChosenAlgorithm one{
        key, file.text(place + "/algorithm"), file.count(place + "/ranks"), file.amount(place + "/bytes"), {}};
    for (auto const& [algorithm, pointer] : file.members(place + "/seconds"))
      one.seconds.emplace_back(algorithm, file.positive(pointer));
    chosen.push_back(std::move(one));
  }
  return chosen;
}

/// As the file writes it.
std::string read_deck_value(JsonFile const& file, std::string const& place) {
  JsonFile::Json const& value = file.at(place);
  bool const is_list =
      value.is_array() && std::ranges::none_of(value, [](auto const& element) { return element.is_structured(); });
  file.require(is_list || (value.is_primitive() && !value.is_null()),
               place + " must be a number, a text, true, false, or an array of such");
  return json_line(value);
}

std::map<std::string, double> read_metrics(JsonFile const& file) {
  std::map<std::string, double> metrics;
  for (auto const& [key, pointer] : file.members("/metrics"))
    if (auto const value = file.optional_non_negative(pointer)) metrics[key] = *value;
  for (char const* name : {"executed_flops_per_second", "floor_seconds"}) // the others may be 0
    if (metrics.contains(name)) file.positive(std::string("/metrics/") + name);
  return metrics;
}

/// No number where a rate was not measured.
PeakInfo read_peaks(JsonFile const& file) {
  PeakInfo peaks;
  auto const read = [&](std::string const& name, double& rate) {
    std::string const place = "/peaks/" + name;
    if (file.optional_non_negative(place)) rate = file.positive(place);
  };
  read("gemm_flops_per_second", peaks.gemm_flops_per_second);
  read("bandwidth_bytes_per_second", peaks.bandwidth_bytes_per_second);
  return peaks;
}

MeasuredWindow read_window(JsonFile const& file, std::vector<StepReport> const& samples) {
  if (!file.has("/window")) return {};
  MeasuredWindow const window{file.count("/window/first_step"), file.count("/window/last_step")};
  bool const is_within = !samples.empty() && window.first >= samples.front().step && window.first <= window.last &&
                         window.last <= samples.back().step;
  file.require(is_within,
               fmt::format("/window is from step {} to {}, must lie in /samples/step", window.first, window.last));
  return window;
}

bool has_check(Result const& result, std::string_view name) {
  return std::ranges::find(result.checks, name, &Check::name) != result.checks.end();
}

/// The status is what the file itself proves: by its checks, its network and its samples. What is harvested elsewhere
/// as a figure of merit has passed here.
void require_proved(JsonFile const& file, Result const& result) {
  Outcome const outcome = result.outcome;
  auto const require = [&](bool condition, std::string const& fault) {
    file.require(condition, fmt::format("/status is {}, and {}", to_string(outcome), fault));
  };
  bool const stopped = outcome == Outcome::stopped, valid = outcome == Outcome::valid;
  require(file.at("/exit_code") == exit_code(outcome), fmt::format("/exit_code must be {}", exit_code(outcome)));
  require(stopped == result.checks.empty(), stopped ? "/verification has checks" : "/verification has no check");
  require(stopped || std::ranges::any_of(result.checks, &Check::made), "no check of /verification was made");
  bool const failed = std::ranges::any_of(result.checks, &Check::failed);
  require(failed == (outcome == Outcome::invalid), fmt::format("{} check failed", failed ? "a" : "no"));
  bool const has_curve = has_check(result, "loss-curve"), has_update = has_check(result, "first-update");
  bool const referenced = is_referenced(result.benchmark_class.name, has_curve, has_update);
  require(!valid || referenced, fmt::format("/verification has no loss-curve{}",
                                            has_update ? ": first-update is not enough for this /class" : ""));
  require(outcome != Outcome::unreferenced || !referenced,
          fmt::format("/verification has {}", has_curve ? "a loss-curve" : "a first-update, enough for this /class"));
  require(!(valid || outcome == Outcome::unreferenced) || !file.has("/topology/emulated_network"),
          "/topology/emulated_network is not null");
  require(stopped || result.window.empty() != result.tokens_per_second.has_value(),
          result.window.empty() ? "there is a rate without a /window" : "its rate is null in spite of /window");
  if (!result.tokens_per_second) return;
  double const tokens = trained_tokens(result);
  double seconds = 0;
  for (double const of_step : measured_seconds(result)) seconds += of_step;
  require(std::abs(result.tokens_per_second->value * seconds - tokens) <= rate_rounding * tokens,
          fmt::format("its rate is {:g}, the steps of /window have {:g} tokens/s", result.tokens_per_second->value,
                      tokens / seconds));
}

} // namespace

ResultFile read_result(JsonFile const& file) {
  file.require_version(result_schema_version);
  ResultFile read{file.path(), file.text("/time"), {}, {}};
  for (auto const& [key, pointer] : file.members("/params"))
    read.deck_values[key] = read_deck_value(file, pointer + "/value");
  Result& result = read.result;
  result.outcome = read_outcome(file);
  result.benchmark_class = read_class(file);
  read_provenance(file, result);
  result.chosen = read_chosen(file);
  result.predicted = read_amounts(file, "/predicted");
  result.counted = read_amounts(file, "/counted");
  result.resident_bytes = file.amount("/resident_bytes");
  if (file.has("/large_page_bytes")) result.large_page_bytes = file.amount("/large_page_bytes");
  result.wall_seconds = file.positive("/wall_seconds");
  result.losses_before = file.numbers("/losses_before_restart", false);
  result.samples = read_samples(file);
  result.ranks = read_ranks(file);
  result.state_files = read_files(file, "/state_files");
  result.servers = read_servers(file);
  result.pipeline = read_pipeline(file);
  result.tokens_per_second = read_rate(file, result.outcome);
  result.window = read_window(file, result.samples);
  result.peaks = read_peaks(file);
  result.metrics = read_metrics(file);
  result.checks = read_checks(file);
  require_proved(file, result);
  return read;
}

} // namespace trainstone
