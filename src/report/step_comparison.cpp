#include "report/step_comparison.hpp"

#include "core/error.hpp"
#include "core/plural.hpp"
#include "report/machine_source.hpp"
#include "report/recorded_run.hpp"

#include <filesystem>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

constexpr char const* no_machine =
    "There is no predicted timeline: `trainstone report --machine FILE` shows it, with a FILE of `trainstone calibrate "
    "--deck DECK`, and draws the run's step below it if the deck has trace.file.";

void require_threads(NamedMachine const& machine, TopologyInfo const& topology) {
  if (!machine.machine.parts) return; // what comes next says so
  std::int64_t const measured = machine.machine.parts->threads, used = topology.busy_threads_per_rank();
  TRAINSTONE_REQUIRE_INPUT(measured == used,
                           "--machine {}: has times of parts with {} per rank, the run had {}; calibrate with as many",
                           machine.path, plural(measured, "thread"), used);
}

PredictedStep predict(ResolvedRun const& run, TopologyInfo const& topology, NamedMachine const& machine) {
  require_threads(machine, topology);
  return predicted_step(run, machine.path, machine.machine, own_buffers(run.buffers));
}

/// Beside the result, or where the run wrote it, if the report is made in the same working directory.
std::string find_trace(ResultFile const& file, std::string const& trace_file) {
  TRAINSTONE_REQUIRE_INPUT(!trace_file.empty(),
                           "the run wrote no trace; `--set trace.file=out/trace.json` makes it write one");
  std::string const beside = fs::path(file.path).replace_filename(fs::path(trace_file).filename());
  std::error_code ignored;
  for (std::string const& path : {beside, trace_file})
    if (fs::exists(path, ignored)) return path;
  throw InputError(
      fmt::format("the trace of the run is neither {} nor {}; put it beside the result", beside, trace_file));
}

MeasuredStep measure(ResultFile const& file, std::string const& trace_file, PredictedStep const& predicted) {
  std::string const path = find_trace(file, trace_file);
  MeasuredStep step = read_measured_step(path, predicted.timeline, predicted.stages);
  TRAINSTONE_REQUIRE_INPUT(
      step.deck_hash == file.result.deck_hash,
      "{}: is the trace of another run, of a deck with hash {}, this run's has {}; start the run again", path,
      step.deck_hash.empty() ? "unknown" : step.deck_hash, file.result.deck_hash);
  return step;
}

/// As a sentence of the page.
Line missing(std::string const& what, InputError const& why) {
  return {fmt::format("There is no {} timeline: {}.", what, why.what()), Tone::notice};
}

} // namespace

StepComparison compare_step(ResultFile const& file, std::optional<NamedMachine> const& machine) {
  StepComparison step;
  if (!machine) {
    step.missing = Line{no_machine};
    return step;
  }
  step.machine = machine_line(machine->path, machine->machine);
  try {
    ResolvedRun const run = recorded_run(file);
    step.predicted = predict(run, file.result.topology, *machine);
    try {
      step.measured = measure(file, run.config.trace.file, *step.predicted);
    } catch (InputError const& why) {
      step.missing = missing("measured", why);
    }
  } catch (InputError const& why) {
    step.missing = missing("predicted", why);
  }
  return step;
}

} // namespace trainstone
