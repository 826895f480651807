// The step of a run beside its prediction: what belongs to a run, and what a report says and draws.

#include "report/step_comparison.hpp"

#include "parallel/program/step_programs.hpp"
#include "report/step_section.hpp"
#include "support/deck_fixture.hpp"
#include "support/result_fixture.hpp"
#include "support/temporary_folder.hpp"
#include "support/trace_fixture.hpp"
#include "train/plan/run_plan.hpp"
#include "train/plan/step_prediction.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <functional>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr Rank ranks = 2;
std::vector<std::string> const zero3{"parallel.strategy=zero", "parallel.zero_stage=3", "trace.file=traces/step.json"};

/// A build for devices refuses runs on hosts.
bool is_for_hosts() { return buffers_refusal("host").empty(); }
MessageBuffers usual_buffers() { return is_for_hosts() ? MessageBuffers::host : MessageBuffers::staged; }

/// As if a run of the deck had written it. Its steps took 10 ms, of which 2 ms were exposed.
ResultFile file_of(Deck const& deck, std::string const& folder) {
  Result run = run_of(Outcome::valid, ranks, 3200);
  run.parameters = resolved_parameters(deck, ranks);
  run.deck_hash = deck_hash(deck);
  run.topology.buffers = to_string(usual_buffers());
  if (!is_for_hosts()) run.machine.device = "a device";
  for (StepReport& step : run.samples) step.exposed_communication_seconds = 0.002;
  ResultFile file = read_back(json_of(run));
  file.path = folder + "/result.json";
  return file;
}

FittedCurve curve(double start, double per_byte) {
  std::vector<TimeSample> samples;
  for (double bytes = 8; bytes < 5e7; bytes *= 3) samples.push_back({bytes, start + per_byte * bytes});
  return fit_curve(samples);
}

NamedMachine machine_for(Deck const& deck) {
  MeasuredMachine machine;
  machine.fit.message[0] = machine.fit.one_way[0] = curve(1e-6, 1e-10);
  machine.fit.overlap[0] = 0.5;
  machine.fit.reduce = machine.fit.copy = curve(1e-7, 3e-10);
  machine.fit.combine_to_own = machine.fit.combine_to_all = machine.fit.fetch = machine.fit.push = curve(1e-7, 2e-10);
  machine.fit.node_barrier = 1e-6;
  machine.provenance.buffers = usual_buffers();
  MeasuredParts& parts = machine.parts.emplace();
  parts.conditions = part_conditions(resolve(deck, ranks));
  for (PartKind const kind : {PartKind::embed, PartKind::attention, PartKind::mlp, PartKind::head})
    parts.times.parts[kind] = {1e-3, 2e-3, 2e-3};
  return {"peaks.json", std::move(machine)};
}

std::vector<RunPlan> stages_of(Deck const& deck) {
  return plan_stages(resolve_run(resolve(deck, ranks), Topology::one_node(ranks)));
}

/// Two steps of 3 us for each instruction, on both ranks.
void write_trace_of(Deck const& deck, std::string const& path, std::string const& hash) {
  std::vector<RunPlan> const stages = stages_of(deck);
  std::vector<std::vector<TimelineEvent>> events;
  for (Rank rank = 0; rank < ranks; ++rank) {
    ShardPlan const& plan = stages[stages.size() > 1 ? static_cast<std::size_t>(rank) : 0].parallel;
    StepProgram const program = make_step_program(plan);
    std::vector<std::vector<Segment>> const parts{program.step, program.update, program.step, program.update};
    events.push_back(events_of(plan, parts, {3, 3, 3, 3}));
  }
  write_trace(path, events, hash);
}

/// Everything there, but for a change.
struct Inputs {
  TemporaryFolder folder;
  Deck deck;
  std::optional<NamedMachine> machine = machine_for(deck);
  ResultFile file = file_of(deck, folder.path());
  std::string trace = folder.path() + "/step.json";
  explicit Inputs(std::vector<std::string> const& keys = zero3) : deck(read_small(keys)) {
    write_trace_of(deck, trace, deck_hash(deck));
  }

  StepComparison compare() const { return compare_step(file, machine); }
};

/// The sentence about what is missing after a change, for which there must be a prediction or not.
std::string missing_after(bool predicted, std::function<void(Inputs&)> const& change) {
  Inputs inputs;
  change(inputs);
  StepComparison const step = inputs.compare();
  CHECK(step.predicted.has_value() == predicted);
  CHECK(!step.measured);
  return step.missing ? step.missing->text : "nothing is missing";
}

std::size_t count(std::string const& text, std::string const& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

} // namespace

TEST_CASE("a run's step is predicted from its result and a machine file, and measured by its trace", "[report][step]") {
  Inputs const inputs;
  StepComparison const step = inputs.compare();
  CHECK(!step.missing);
  REQUIRE(step.predicted);
  StepTimeline const expected = predict_timeline(stages_of(inputs.deck), inputs.machine->machine.parts->times,
                                                 inputs.machine->machine.fit.model(), {});
  CHECK(step.predicted->timeline.step == expected.step);
  ClassTimeline const& first = step.predicted->timeline.classes.front();
  REQUIRE(step.measured);
  REQUIRE(step.measured->classes.size() == step.predicted->timeline.classes.size());
  CHECK(step.measured->classes.front().entries.size() == first.entries.size());
}

TEST_CASE("all stages of a pipeline are predicted and measured", "[report][step]") {
  Inputs const inputs({"parallel.pipeline=2", "trace.file=traces/step.json"});
  StepComparison const step = inputs.compare();
  CHECK(!step.missing);
  REQUIRE(step.predicted);
  StepTimeline const& timeline = step.predicted->timeline;
  REQUIRE(timeline.stages() == 2);
  REQUIRE(step.measured);
  REQUIRE(step.measured->classes.size() == 2);
  std::vector<int> instructions; // by stage
  for (std::size_t stage = 0; stage < 2; ++stage) {
    StepProgram const program = make_step_program(step.predicted->stages[stage]);
    int& count = instructions.emplace_back(0);
    for (std::vector<Segment> const* const part : {&program.step, &program.update})
      for_each_instruction(*part, [&](Instruction const&) { ++count; });
    std::vector<MeasuredTime> const& entries = step.measured->classes[stage].entries;
    REQUIRE(entries.size() == timeline.classes[stage].entries.size());
    CHECK(entries.size() > 2);
  }
  // of two equal steps, the second one; its time begins where it begins first
  int const first = std::min(instructions[0], instructions[1]);
  for (std::size_t stage = 0; stage < 2; ++stage)
    CHECK(step.measured->classes[stage].entries.back().begin == Approx(0.003 * (2 * instructions[stage] - 1 - first)));
  CHECK(instructions[0] != instructions[1]);
  NamedResult const named{"small", inputs.file, {}, step};
  std::string const html = page_html(step_section(named));
  CHECK_THAT(html, ContainsSubstring("stage 1: rank 1") && ContainsSubstring(">rank 1, measured<"));
  CHECK_THAT(html, ContainsSubstring("wait for receive activation"));
}

TEST_CASE("what is missing for a timeline is named with the way to get it", "[report][step]") {
  CHECK_THAT(missing_after(false, [](Inputs& all) { all.machine.reset(); }),
             ContainsSubstring("no predicted timeline: `trainstone report --machine FILE`") &&
                 ContainsSubstring("`trainstone calibrate --deck DECK`") && ContainsSubstring("trace.file"));
  CHECK_THAT(
      missing_after(false, [](Inputs& all) { all.machine->machine.parts.reset(); }),
      ContainsSubstring("no predicted timeline: --machine peaks.json: has no times of parts; `trainstone calibrate "
                        "--deck DECK` measures the parts"));
  CHECK_THAT(missing_after(false, [](Inputs& all) { all.machine->machine.fit.message[0].reset(); }),
             ContainsSubstring("no predicted timeline: --machine peaks.json: no times of messages"));
  if (is_for_hosts())
    CHECK_THAT(missing_after(false,
                             [](Inputs& all) {
                               all.file.deck_values["comm.reduce_scatter"] = "\"shared\"";
                               all.machine->machine.fit.combine_to_own.reset();
                             }),
               ContainsSubstring("no predicted timeline: --machine peaks.json: no times of sums in shared memory"));
  CHECK_THAT(missing_after(true, [](Inputs& all) { all.file.deck_values["trace.file"] = "\"\""; }),
             ContainsSubstring("no measured timeline: the run wrote no trace; `--set trace.file="));
  CHECK_THAT(missing_after(true, [](Inputs& all) { std::filesystem::remove(all.trace); }),
             ContainsSubstring("/step.json nor traces/step.json; put it beside the result"));
}

TEST_CASE("the machine file of another deck or another run is refused, and the report says so", "[report][step]") {
  CHECK_THAT(missing_after(false, [](Inputs& all) { all.machine = machine_for(read_small({"batch.micro=1"})); }),
             ContainsSubstring("has times of micro 1, the deck has 2"));
  CHECK_THAT(missing_after(false, [](Inputs& all) { all.machine->machine.parts->threads = 3; }),
             ContainsSubstring("has times of parts with 3 threads per rank, the run had 1"));
  MessageBuffers const other = is_for_hosts() ? MessageBuffers::staged : MessageBuffers::device;
  CHECK_THAT(missing_after(false, [&](Inputs& all) { all.machine->machine.provenance.buffers = other; }),
             ContainsSubstring("its messages were measured with buffers"));
  CHECK_THAT(
      missing_after(false, [](Inputs& all) { all.file.result.machine.device = is_for_hosts() ? "a device" : ""; }),
      ContainsSubstring("the run computed on "));
}

TEST_CASE("a trace that is not the run's is refused, and the report says so", "[report][step]") {
  std::string const ddp = missing_after(true, [](Inputs& all) {
    Deck const other = read_small({"parallel.strategy=ddp"});
    write_trace_of(other, all.trace, deck_hash(other));
  });
  CHECK_THAT(ddp, ContainsSubstring("no measured timeline: ") && ContainsSubstring("step.json: "));
  Deck const wider = read_small({"model.channels=128", zero3[0], zero3[1], zero3[2]}); // a program with the same texts
  CHECK_THAT(missing_after(true, [&](Inputs& all) { write_trace_of(wider, all.trace, deck_hash(wider)); }),
             ContainsSubstring("is the trace of another run, of a deck with hash " + deck_hash(wider)));
  CHECK_THAT(missing_after(true, [](Inputs& all) { write_trace(all.trace, {{}}); }), ContainsSubstring("of 1 rank"));
}

TEST_CASE("nodes of a run are those of its hosts", "[report][step]") {
  auto const error = missing_after(false, [](Inputs& all) { all.file.result.topology.places[1].host = "other"; });
  CHECK_THAT(error, ContainsSubstring("no times of messages between nodes"));
}

TEST_CASE("a result's section has times and both timelines, with every name as text", "[report][step]") {
  Inputs const inputs;
  NamedResult named{"small", inputs.file, {}, inputs.compare()};
  named.file.result.deck = "<b>&\"d\"#9f3e";
  named.step.measured->classes.front().collectives.push_back({"<ring> & ```", {0.001, 0.002}});
  Page const page = step_section(named);
  std::string const html = page_html(page), markdown = page_markdown(page);
  StepTimeline const& timeline = named.step.predicted->timeline;
  double const predicted = 1e-9 * static_cast<double>(timeline.step);
  CHECK_THAT(html, ContainsSubstring(fmt::format("<td>step</td><td>{:.4g} ms</td><td>10 ms</td><td>{:.3f}</td>",
                                                 1e3 * predicted, predicted / 0.01)));
  CHECK_THAT(html, ContainsSubstring("<td>computation</td>") && ContainsSubstring("</td><td>8 ms</td>"));
  CHECK_THAT(html, ContainsSubstring("<td>communication that nothing hides, and waits for other ranks</td>") &&
                       ContainsSubstring("</td><td>2 ms</td>"));
  CHECK_THAT(html, ContainsSubstring("small: a step of &lt;b&gt;&amp;&quot;d&quot;#9f3e on 2 ranks, 1 node"));
  CHECK(count(html, "<b>") == 0);
  CHECK(count(html, "<ring>") == 0);
  CHECK(count(html, ">rank 0, measured<") == 1);
  CHECK(count(html, "forward attention 0, micro-batch 0: ") == 2); // bars of both timelines
  CHECK_THAT(html, ContainsSubstring("<details>") && ContainsSubstring("measured step "));
  CHECK_THAT(markdown, ContainsSubstring("(small-timeline.svg)") && ContainsSubstring("````text\n"));
}

TEST_CASE("a section without a measured step has the prediction, and without a machine a sentence", "[report][step]") {
  Inputs inputs;
  NamedResult named{"small", inputs.file, {}, inputs.compare()};
  named.file.result.window = {};
  CHECK_THAT(page_html(step_section(named)), ContainsSubstring("No step was measured.") && ContainsSubstring("<svg"));
  named.step = compare_step(inputs.file, {});
  std::string const html = page_html(step_section(named));
  CHECK_THAT(html, ContainsSubstring("There is no predicted timeline"));
  CHECK(count(html, "<svg") == 0);
}
