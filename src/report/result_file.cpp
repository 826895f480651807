#include "report/result_file.hpp"

#include "core/error.hpp"
#include "report/json_file.hpp"

#include <algorithm>
#include <cmath>

namespace trainstone {

namespace {

Outcome read_outcome(JsonFile const& file) {
  std::string const status = file.text("/status");
  for (Outcome const outcome :
       {Outcome::valid, Outcome::unreferenced, Outcome::emulated, Outcome::invalid, Outcome::stopped})
    if (status == to_string(outcome)) return outcome;
  file.fail(fmt::format("/status is \"{}\", must be VALID, UNREFERENCED, EMULATED, INVALID or STOPPED", status));
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
    found = Rate{file.positive(place + "/value"), file.positive(place + "/ci95/0"), file.positive(place + "/ci95/1")};
  }
  return found;
}

WorkAmounts read_amounts(JsonFile const& file, std::string const& place) {
  WorkAmounts amounts;
  std::string const memory = place + "/memory_bytes";
  file.require(file.at(memory).is_object(), memory + " must be an object");
  for (auto const& entry : file.at(memory).items())
    if (entry.key() != "total") amounts.memory_bytes.emplace_back(entry.key(), file.amount(memory + '/' + entry.key()));
  file.require(total(amounts.memory_bytes) == file.amount(memory + "/total"),
               fmt::format("{}/total is {}, the others add up to {}", memory, file.amount(memory + "/total"),
                           total(amounts.memory_bytes)));
  amounts.sent_bytes = file.amount(place + "/sent_bytes");
  amounts.messages = file.amount(place + "/messages");
  amounts.flops = file.amount(place + "/flops");
  amounts.kernel_launches = file.amount(place + "/kernel_launches");
  return amounts;
}

/// One array of /samples, of the same length as the others.
std::vector<double> sample_array(JsonFile const& file, std::string const& name, bool null, std::size_t length) {
  std::string const place = "/samples/" + name;
  std::vector<double> values = file.numbers(place, null);
  file.require(values.size() == length,
               fmt::format("{} has {} elements, /samples/step {}", place, values.size(), length));
  return values;
}

std::vector<StepReport> read_samples(JsonFile const& file) {
  std::size_t const length = file.length("/samples/step");
  std::vector<StepReport> samples(length);
  auto const each = [&](std::string const& name, bool null, auto const& take) {
    std::vector<double> const values = sample_array(file, name, null, length);
    for (std::size_t i = 0; i < length; ++i) take(samples[i], values[i]);
  };
  each("step", false, [](StepReport& step, double value) { step.step = static_cast<std::int64_t>(value); });
  each("loss", false, [](StepReport& step, double value) { step.loss = value; });
  each("norm", true, [](StepReport& step, double value) { step.norm = value; });
  each("lr", false, [](StepReport& step, double value) { step.learning_rate = value; });
  each("seconds", false, [](StepReport& step, double value) { step.seconds = value; });
  each("tokens", false, [](StepReport& step, double value) { step.tokens = static_cast<std::int64_t>(value); });
  each("held_out", true, [](StepReport& step, double value) {
    if (!std::isnan(value)) step.validation_loss = value;
  });
  for (Phase const phase : phases)
    each("phases/" + std::string(to_string(phase)), true, [&](StepReport& step, double value) {
      step.phases_are_timed = step.phases_are_timed && !std::isnan(value);
      step.phase_seconds[phase] = value;
    });
  each("phases/exposed communication", false,
       [](StepReport& step, double value) { step.exposed_communication_seconds = value; });
  for (std::size_t i = 0; i < length; ++i) {
    samples[i].skipped = file.boolean(fmt::format("/samples/skipped/{}", i));
    file.require(samples[i].seconds > 0,
                 fmt::format("/samples/seconds/{} is {}, must be above 0", i, samples[i].seconds));
  }
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
                     file.non_negative(place + "communication_seconds")});
  }
  return ranks;
}

std::vector<Check> read_checks(JsonFile const& file) {
  std::vector<Check> checks;
  for (std::size_t i = 0; i < file.length("/verification"); ++i) {
    std::string const place = fmt::format("/verification/{}/", i);
    checks.push_back({file.text(place + "name"), file.boolean(place + "passed"),
                      file.optional_number(place + "value").value_or(std::numeric_limits<double>::quiet_NaN()),
                      file.number(place + "limit"), file.text(place + "detail")});
  }
  return checks;
}

void read_provenance(JsonFile const& file, Result& result) {
  result.deck = file.text("/deck/name");
  result.deck_hash = file.text("/deck/hash");
  result.golden_key = file.text("/deck/golden_key");
  result.code = {file.text("/code/version"), file.text("/code/git"), file.boolean("/code/dirty"),
                 file.text("/code/compiler"), file.text("/code/kokkos")};
  result.machine.cpu = file.text("/machine/cpu");
  result.machine.cores = file.count("/machine/cores");
  result.machine.memory_bytes = file.amount("/machine/memory_bytes");
  result.machine.mpi = file.text("/machine/mpi");
  result.topology.ranks = file.count("/topology/ranks");
  result.topology.nodes = file.count("/topology/nodes");
  result.topology.threads_per_rank = file.count("/topology/threads_per_rank");
  result.topology.buffers = file.text("/topology/buffers");
  result.topology.emulated_nodes = file.boolean("/topology/emulated_nodes");
  if (file.has("/topology/emulated_network"))
    result.topology.network = {file.non_negative("/topology/emulated_network/latency_seconds"),
                               file.non_negative("/topology/emulated_network/seconds_per_byte")};
}

} // namespace

ResultFile read_result(JsonFile const& file) {
  file.require_version(result_schema_version);
  ResultFile read{file.path(), file.text("/time"), {}, {}};
  file.require(file.at("/params").is_object(), "/params must be an object");
  for (auto const& entry : file.at("/params").items())
    read.deck_values[entry.key()] = file.at("/params/" + entry.key() + "/value").dump();
  Result& result = read.result;
  result.outcome = read_outcome(file);
  read_provenance(file, result);
  result.predicted = read_amounts(file, "/predicted");
  result.counted = read_amounts(file, "/counted");
  result.resident_bytes = file.amount("/resident_bytes");
  result.wall_seconds = file.positive("/wall_seconds");
  result.losses_before = file.numbers("/losses_before_restart", false);
  result.samples = read_samples(file);
  result.ranks = read_ranks(file);
  result.tokens_per_second = read_rate(file, result.outcome);
  if (file.has("/window")) result.window = {file.count("/window/first_step"), file.count("/window/last_step")};
  file.require(file.at("/metrics").is_object(), "/metrics must be an object");
  for (auto const& entry : file.at("/metrics").items())
    if (auto const value = file.optional_number("/metrics/" + entry.key())) result.metrics[entry.key()] = *value;
  result.checks = read_checks(file);
  bool const failed = std::ranges::any_of(result.checks, [](Check const& check) { return !check.passed; });
  file.require(failed == (result.outcome == Outcome::invalid),
               fmt::format("/status is {}, and {} check failed", to_string(result.outcome), failed ? "a" : "no"));
  return read;
}

} // namespace trainstone
