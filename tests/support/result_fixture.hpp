#pragma once

// Results and files of them that tests change.

#include "report/report_input.hpp"
#include "result/json_file.hpp"
#include "result/result.hpp"
#include "result/result_file.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace trainstone::test {

/// Four steps, of which the last three are measured, of 32 tokens each.
inline Result run_of(Outcome outcome, std::int64_t ranks, double tokens_per_second) {
  Result run;
  run.outcome = outcome;
  run.parameters = {{"parallel.zero_stage", "", std::int64_t{1}, "default"}, {"batch.global", "", ranks, "deck:3"}};
  run.deck = "small.toml#9f3e +1 override";
  run.deck_hash = "0123456789abcdef";
  run.golden_key = "fedcba9876543210";
  run.code = {"0.1.0", "1a2b3c4d", true, "GCC 16", "4.5.1 Serial"};
  run.machine = {"a processor", 2, 1 << 30, "MPICH", {}};
  run.topology.ranks = ranks;
  run.predicted = {{{"parameters", 100}, {"data", 11}}, 64, 3, 1000, 7};
  run.counted = run.predicted;
  run.resident_bytes = 12345;
  run.large_page_bytes = 12288;
  run.wall_seconds = 1.5;
  run.losses_before = {6.5};
  run.checkpoints.resumed_from = "kept/step-1";
  for (std::int64_t step = 2; step <= 5; ++step) {
    StepReport report;
    report.step = step;
    report.loss = 6.5 - static_cast<double>(step);
    report.norm = step == 2 ? std::numeric_limits<double>::quiet_NaN() : 0.25;
    report.skipped = step == 2;
    report.learning_rate = 1e-3;
    report.seconds = 32 / tokens_per_second;
    report.tokens = 32;
    for (Phase const phase : phases) report.phase_seconds[phase] = 0.01 * static_cast<double>(step);
    run.samples.push_back(report);
  }
  run.samples.back().validation_loss = 2.25;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    run.ranks.push_back({rank, "node", 0.5, 0.25, 0.125});
    run.topology.places.push_back({"node", std::to_string(rank), ""});
  }
  run.window = {3, 5};
  run.metrics = {{"skipped_steps", 1},
                 {"executed_flops_per_second", 10 * tokens_per_second},
                 {"floor_seconds", 0.01},
                 {"model_parameters", 1000}};
  if (outcome == Outcome::stopped) return run;
  run.tokens_per_second = {tokens_per_second, 0.9 * tokens_per_second, 1.1 * tokens_per_second};
  run.checks = {{"finite", outcome != Outcome::invalid, 0.5, 1, "losses"}};
  if (outcome != Outcome::unreferenced) run.checks.push_back({"loss-curve", true, 0, 1e-3, "as recorded"});
  return run;
}

/// The same on devices of one machine. \param[in] ranks_per_device  as far as there are ranks
inline Result on_devices(Result run, std::size_t ranks_per_device) {
  run.machine.device = "NVIDIA H100";
  for (std::size_t rank = 0; rank < run.topology.places.size(); ++rank)
    run.topology.places[rank].device = "bus " + std::to_string(rank / ranks_per_device);
  run.topology.devices_per_node = (run.topology.ranks - 1) / static_cast<std::int64_t>(ranks_per_device) + 1;
  return run;
}

inline JsonFile::Json json_of(Result const& run) { return JsonFile::Json::parse(result_json(run)); }

inline ResultFile read_back(JsonFile::Json const& json) { return read_result(JsonFile("a.json", "", json)); }

inline NamedResult named(std::string const& name, Result const& run) { return {name, read_back(json_of(run)), {}}; }

} // namespace trainstone::test
