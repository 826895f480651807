#include "result/result.hpp"

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "result/files_info.hpp"
#include "result/golden.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>
#include <filesystem>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json; // writes numbers that are not finite as null

constexpr int schema_version = result_schema_version;
constexpr char const* result_name = "result.json";
constexpr char const* lock_name = ".result.lock"; // checkpoint.dir, whose lock is another, may be the same folder

std::string now() {
  std::time_t const seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[sizeof "2000-01-01T00:00:00Z"];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

template <class Value>
void set_value(Json& entry, Value const& value) {
  entry["value"] = value;
}

void set_value(Json& entry, Quantity const& quantity) {
  entry["value"] = quantity.value;
  entry["unit"] = si_unit(quantity.dimension);
}

Json parameters_json(std::vector<Parameter> const& parameters) {
  Json json = Json::object();
  for (Parameter const& parameter : parameters) {
    Json& entry = json[parameter.key];
    std::visit([&](auto const& value) { set_value(entry, value); }, parameter.value);
    if (!parameter.unit.empty()) entry["unit"] = parameter.unit;
    entry["origin"] = parameter.origin;
  }
  return json;
}

Json kernels_json(std::vector<KernelRow> const& kernels) {
  Json rows = Json::array();
  for (KernelRow const& kernel : kernels)
    rows.push_back({{"label", kernel.label},
                    {"launches", kernel.launches},
                    {"seconds", kernel.seconds},
                    {"flops", kernel.flops},
                    {"bytes", kernel.bytes}});
  return rows;
}

/// One array per quantity, one element per step.
Json samples_json(std::vector<StepReport> const& samples) {
  Json json = {{"step", Json::array()},     {"loss", Json::array()},       {"norm", Json::array()},
               {"lr", Json::array()},       {"seconds", Json::array()},    {"tokens", Json::array()},
               {"held_out", Json::array()}, {"loss_scale", Json::array()}, {"skipped", Json::array()},
               {"phases", Json::object()}};
  Json& by_phase = json["phases"];
  for (Phase const phase : phases) by_phase[std::string(to_string(phase))] = Json::array();
  by_phase["exposed communication"] = Json::array();
  for (StepReport const& step : samples) {
    json["step"].push_back(step.step);
    json["loss"].push_back(step.loss);
    json["norm"].push_back(step.norm);
    json["loss_scale"].push_back(step.loss_scale ? Json(*step.loss_scale) : Json(nullptr));
    json["skipped"].push_back(step.skipped);
    json["lr"].push_back(step.learning_rate);
    json["seconds"].push_back(step.seconds);
    json["tokens"].push_back(step.tokens);
    json["held_out"].push_back(step.validation_loss ? Json(*step.validation_loss) : Json(nullptr));
    for (Phase const phase : phases)
      by_phase[std::string(to_string(phase))].push_back(step.phases_are_timed ? Json(step.phase_seconds[phase])
                                                                              : Json(nullptr));
    by_phase["exposed communication"].push_back(step.exposed_communication_seconds);
  }
  return json;
}

Json ranks_json(std::vector<RankInfo> const& ranks) {
  Json json = Json::array();
  for (RankInfo const& rank : ranks) {
    json.push_back({{"rank", rank.rank},
                    {"host", rank.host},
                    {"median_step_seconds", rank.median_step_seconds},
                    {"median_own_seconds", rank.median_own_seconds},
                    {"communication_seconds", rank.communication_seconds},
                    {"serves", rank.serves}});
  }
  return json;
}

Json straggler_json(std::vector<RankInfo> const& ranks) {
  RankInfo const* const slowest = find_straggler(ranks);
  if (!slowest) return nullptr;
  return {{"rank", slowest->rank}, {"host", slowest->host}};
}

Json statistics_json(std::vector<double> const& seconds) {
  if (seconds.empty()) return nullptr;
  Summary const summary = summarize(seconds);
  return {{"mean", summary.mean}, {"median", summary.median},   {"p05", summary.p05},
          {"p95", summary.p95},   {"minimum", summary.minimum}, {"maximum", summary.maximum}};
}

Json rate_json(Rate const& rate) {
  return {{"value", rate.value}, {"unit", "tokens/s"}, {"ci95", {rate.low, rate.high}}};
}

Json checks_json(std::vector<Check> const& checks) {
  Json json = Json::array();
  for (Check const& check : checks) {
    json.push_back({{"name", check.name},
                    {"passed", check.made ? Json(check.passed) : Json(nullptr)},
                    {"value", check.value},
                    {"limit", check.limit},
                    {"detail", check.detail}});
  }
  return json;
}

Json text_or_null(std::string const& text) { return text.empty() ? Json(nullptr) : Json(text); }

/// bytes/s; null if there were none.
Json transfer_rate(std::uint64_t bytes, double seconds) {
  return bytes > 0 && seconds > 0 ? Json(static_cast<double>(bytes) / seconds) : Json(nullptr);
}

Json data_json(FileReads const& info, double wall_seconds) {
  return {{"bytes", info.bytes},
          {"seconds", info.seconds},
          {"bytes_per_second", transfer_rate(info.bytes, info.seconds)},
          {"share_of_wall_time", info.seconds / wall_seconds}};
}

Json joules_json(std::optional<double> const& joules) { return joules ? Json(*joules) : Json(nullptr); }

Json energy_json(std::optional<EnergyInfo> const& info) {
  if (!info) return nullptr;
  return {{"host_joules", joules_json(info->host_joules)},
          {"device_joules", joules_json(info->device_joules)},
          {"seconds", info->seconds},
          {"tokens", info->tokens}};
}

Json checkpoints_json(CheckpointInfo const& info, double wall_seconds) {
  return {{"resumed_from", text_or_null(info.resumed_from)},
          {"resumed_step", info.resumed_step},
          {"written", info.written},
          {"last", text_or_null(info.last)},
          {"bytes", info.bytes},
          {"seconds", info.seconds},
          {"bytes_per_second", transfer_rate(info.bytes, info.seconds)},
          {"share_of_wall_time", info.seconds / wall_seconds},
          {"bytes_read", info.reads.bytes},
          {"seconds_reading", info.reads.seconds},
          {"bytes_read_per_second", transfer_rate(info.reads.bytes, info.reads.seconds)}};
}

Json network_json(EmulatedNetwork const& network) {
  if (!network.is_slow()) return nullptr;
  auto const of = [&](Link link) -> Json {
    return {{"latency_seconds", network.of(link).latency}, {"seconds_per_byte", network.of(link).seconds_per_byte}};
  };
  Json json = of(Link::inter);
  json["inside"] = of(Link::intra);
  json["node_port"] = network.node_port;
  return json;
}

Json places_json(std::vector<RankPlace> const& places) {
  Json json = Json::array();
  for (RankPlace const& place : places)
    json.push_back({{"host", place.host}, {"cores", place.cores}, {"device", text_or_null(place.device)}});
  return json;
}

Json code_json(CodeInfo const& code) {
  return {{"version", code.version},
          {"git", code.git},
          {"dirty", code.dirty},
          {"compiler", code.compiler},
          {"kokkos", code.kokkos}};
}

/// What the run was made of: code, machine, ranks.
void add_provenance(Json& json, Result const& result) {
  json["code"] = code_json(result.code);
  json["machine"] = {{"cpu", result.machine.cpu},
                     {"cores", result.machine.cores},
                     {"memory_bytes", result.machine.memory_bytes},
                     {"mpi", result.machine.mpi},
                     {"device", text_or_null(result.machine.device)},
                     {"environment", result.machine.environment}};
  json["topology"] = {{"ranks", result.topology.ranks},
                      {"nodes", result.topology.nodes},
                      {"threads_per_rank", result.topology.threads_per_rank},
                      {"library_threads_per_rank", result.topology.threads_of_libraries},
                      {"buffers", result.topology.buffers},
                      {"emulated_nodes", result.topology.emulated_nodes},
                      {"emulated_network", network_json(result.topology.network)}};
  json["topology"]["rank_map"] = places_json(result.topology.places);
  if (result.topology.devices_per_node > 0) json["topology"]["devices_per_node"] = result.topology.devices_per_node;
  json["providers"] = {{"gemm", result.providers.gemm}, {"attention", result.providers.attention}};
}

/// By key.
Json chosen_json(std::vector<ChosenAlgorithm> const& chosen) {
  Json json = Json::object();
  for (ChosenAlgorithm const& one : chosen) {
    Json seconds = Json::object();
    for (auto const& [algorithm, median] : one.seconds) seconds[algorithm] = median;
    json[one.key] = {
        {"algorithm", one.algorithm}, {"ranks", one.ranks}, {"bytes", one.bytes}, {"seconds", std::move(seconds)}};
  }
  return json;
}

Json golden_json(std::optional<GoldenSource> const& golden) {
  if (!golden) return nullptr;
  return {{"digest", golden->digest},
          {"key", golden->key},
          {"recorded_with", golden->recorded_with},
          {"released", golden->released}};
}

Json early_json(EarlySteps const& early) { return {{"norms", early.norms}, {"changes", changes_json(early)}}; }

/// The folders of the path that are not there, the innermost one first.
std::vector<std::filesystem::path> missing_folders(std::filesystem::path folder) {
  std::vector<std::filesystem::path> missing;
  std::error_code ignored;
  for (; !folder.empty() && !std::filesystem::exists(folder, ignored); folder = folder.parent_path())
    missing.push_back(folder);
  return missing;
}

} // namespace

RankInfo const* find_straggler(std::vector<RankInfo> const& ranks) {
  RankInfo const* slowest = nullptr;
  for (RankInfo const& rank : ranks)
    if (!rank.serves && (!slowest || rank.median_own_seconds > slowest->median_own_seconds)) slowest = &rank;
  return slowest;
}

std::vector<StepReport> measured_steps(Result const& result) {
  std::vector<StepReport> steps;
  std::ranges::copy_if(result.samples, std::back_inserter(steps), [&](StepReport const& step) {
    return step.step >= result.window.first && step.step <= result.window.last;
  });
  return steps;
}

std::vector<double> measured_seconds(Result const& result) {
  std::vector<double> seconds;
  for (StepReport const& step : measured_steps(result)) seconds.push_back(step.seconds);
  return seconds;
}

double trained_tokens(Result const& result) {
  double tokens = 0;
  for (StepReport const& step : measured_steps(result))
    if (!step.skipped) tokens += static_cast<double>(step.tokens);
  return tokens;
}

std::optional<Rate> rate_of_window(Result const& result) {
  std::vector<double> const seconds = measured_seconds(result);
  return seconds.empty() ? std::nullopt : std::optional(rate(trained_tokens(result), seconds));
}

FolderLock prepare_output_folder(std::string const& folder) {
  namespace fs = std::filesystem;
  TRAINSTONE_REQUIRE_INPUT(!folder.empty(), "--out is empty, must be a folder");
  fs::path const path = fs::path(folder).lexically_normal();
  std::vector<fs::path> const made = missing_folders(path);
  auto const refuse = [&](std::string const& reason) {
    std::error_code ignored; // another run may have put something into it since
    for (fs::path const& one : made) fs::remove(one, ignored);
    return InputError(
        fmt::format("--out {}: cannot write into this folder ({}); name one that is writable", folder, reason));
  };
  try {
    fs::create_directories(path);
    require_writable(path / result_name); // before there is a lock: on failure a new folder is empty
  } catch (fs::filesystem_error const& failure) {
    throw refuse(failure.code().message());
  } catch (Error const& failure) {
    throw refuse(failure.what());
  }
  FolderLock lock(path, lock_name, "--out");
  std::error_code problem;
  fs::remove(path / result_name, problem); // an older run's must not be taken for this one's
  if (problem) throw refuse(problem.message());
  return lock;
}

std::string result_json(Result const& result) {
  Json const rate = result.tokens_per_second ? rate_json(*result.tokens_per_second) : Json(nullptr);
  bool const is_merit = result.outcome == Outcome::valid || result.outcome == Outcome::unreferenced;
  std::vector<double> const seconds = measured_seconds(result);
  Json json;
  json["schema_version"] = schema_version;
  json["kind"] = result.kind;
  json["status"] = to_string(result.outcome);
  json["exit_code"] = exit_code(result.outcome);
  json["time"] = now();
  json["deck"] = {{"name", result.deck}, {"hash", result.deck_hash}, {"golden_key", result.golden_key}};
  json["golden"] = golden_json(result.golden);
  json["class"] = result.benchmark_class.name;
  json["class_departures"] = result.benchmark_class.departures;
  json["params"] = parameters_json(result.parameters);
  add_provenance(json, result);
  json["chosen"] = chosen_json(result.chosen);
  json["peaks"] = {{"gemm_flops_per_second", result.peaks.gemm_flops_per_second},
                   {"bandwidth_bytes_per_second", result.peaks.bandwidth_bytes_per_second}};
  json["predicted"] = amounts_json(result.predicted);
  json["counted"] = amounts_json(result.counted);
  json["resident_bytes"] = result.resident_bytes;
  json["large_page_bytes"] = result.large_page_bytes;
  json["energy"] = energy_json(result.energy);
  json["wall_seconds"] = result.wall_seconds;
  json["restart_count"] = result.checkpoints.restarts;
  json["checkpoints"] = checkpoints_json(result.checkpoints, result.wall_seconds);
  json["data"] = data_json(result.data, result.wall_seconds);
  if (result.state_files) json["state_files"] = files_json(*result.state_files);
  json["losses_before_restart"] = result.losses_before;
  json["early_steps"] = early_json(result.early);
  json["samples"] = samples_json(result.samples);
  if (!result.kernels.empty()) json["kernels"] = kernels_json(result.kernels);
  if (result.servers) json["servers"] = servers_json(*result.servers);
  if (result.pipeline) json["pipeline"] = pipeline_json(*result.pipeline);
  json["ranks"] = ranks_json(result.ranks);
  json["straggler"] = straggler_json(result.ranks);
  json["window"] = result.window.empty() ? Json(nullptr)
                                         : Json{{"first_step", result.window.first}, {"last_step", result.window.last}};
  json["stats"] = {{"step_seconds", statistics_json(seconds)}};
  json["fom"] = is_merit ? rate : Json(nullptr);
  json["emulated_rate"] = result.outcome == Outcome::emulated ? rate : Json(nullptr);
  json["unverified_rate"] = result.outcome == Outcome::invalid ? rate : Json(nullptr);
  json["metrics"] = result.metrics;
  json["verification"] = checks_json(result.checks);
  return json_text(json);
}

std::string estimate_json(Estimate const& estimate) {
  auto const or_null = [](auto const& value) { return value ? Json(*value) : Json(nullptr); };
  Json json{{"schema_version", schema_version}, {"kind", "estimate"}};
  json["deck"] = {{"name", estimate.deck}, {"hash", estimate.deck_hash}};
  json["params"] = parameters_json(estimate.parameters);
  json["code"] = code_json(estimate.code);
  json["topology"] = {{"ranks", estimate.ranks}, {"nodes", estimate.nodes}};
  json["model_parameters"] = estimate.model_parameters;
  json["tokens_per_step"] = estimate.tokens_per_step;
  json["predicted"] = amounts_json(estimate.predicted);
  json["needed_bytes"] = estimate.needed_bytes;
  json["given_bytes"] = or_null(estimate.given_bytes);
  json["fits"] = estimate.given_bytes ? Json(estimate.needed_bytes <= *estimate.given_bytes) : Json(nullptr);
  json["compute_seconds"] = or_null(estimate.compute_seconds);
  json["communication_seconds"] = or_null(estimate.communication_seconds);
  json["predicted_from"] = or_null(estimate.predicted_from);
  json["exposed_offload_seconds"] = or_null(estimate.exposed_offload_seconds);
  for (LargestValue const& one : estimate.largest) {
    Json& largest = json["largest"][one.key] = {{"value", or_null(one.value)}, {"set", one.settings}};
    largest["needed_bytes"] = or_null(one.needed);
    largest["next"] = or_null(one.next), largest["next_needed_bytes"] = or_null(one.next_needed);
  }
  return json_text(json);
}

std::string write_result(std::string const& folder, Result const& result) {
  std::string const path = std::filesystem::path(folder) / result_name;
  write_file_atomically(path, result_json(result));
  return path;
}

} // namespace trainstone
