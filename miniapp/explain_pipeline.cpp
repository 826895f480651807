// trainstone explain pipeline: what the stages do, and when, under a schedule or under the fastest order that a search
// finds.

#include "commbench.hpp"
#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "explain.hpp"
#include "report/pipeline_text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

namespace trainstone {

namespace {

// more than this nobody reads
constexpr std::int64_t most_stages = 64;
constexpr std::int64_t most_micro_batches = 1024;
constexpr std::int64_t most_chunks = 16;
constexpr std::int64_t most_shapes = 10000;

constexpr Ticks parts_of_unit = 1000; // times have three decimals
constexpr double longest_time = 1e6;

std::string or_else(std::string const& text, char const* otherwise) { return text.empty() ? otherwise : text; }

/// A time in parts of a unit.
Ticks parse_time(std::string const& flag, std::string const& text) {
  char* end = nullptr;
  double const parts = std::strtod(text.c_str(), &end) * parts_of_unit;
  bool const is_number = !text.empty() && end == text.c_str() + text.size();
  TRAINSTONE_REQUIRE_INPUT(is_number && parts >= 0 && parts <= longest_time * parts_of_unit &&
                               std::abs(parts - std::round(parts)) < 1e-6 * std::max(1.0, parts),
                           "{} {} is no time; it must be a number from 0 to {} with at most three decimals, like 2.5",
                           flag, text, longest_time);
  return std::llround(parts);
}

/// One time per stage, or the same one for all.
std::vector<Ticks> parse_times(std::string const& flag, std::string const& text, Index stages) {
  std::vector<Ticks> times;
  for (std::size_t begin = 0; begin <= text.size();) {
    std::size_t const end = std::min(text.find(',', begin), text.size());
    times.push_back(parse_time(flag, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (times.size() == 1) times.resize(static_cast<std::size_t>(stages), times.front());
  TRAINSTONE_REQUIRE_INPUT(std::ssize(times) == stages, "{} {} has {} times; it must have 1, or {}: one per stage",
                           flag, text, times.size(), stages);
  return times;
}

/// "4", or "2:8": both ends and everything between.
std::vector<Index> parse_range(std::string const& flag, std::string const& text, Index most) {
  std::size_t const colon = text.find(':');
  if (colon == std::string::npos) return {parse_count(flag, text, 1, most)};
  Index const first = parse_count(flag, text.substr(0, colon), 1, most);
  Index const last = parse_count(flag, text.substr(colon + 1), first, most);
  std::vector<Index> all(static_cast<std::size_t>(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// The shapes that the flags name. If they name several, those that the schedule does not have are left out.
std::vector<PipelineShape> shapes_of(PipelineArguments const& arguments, PipelineSchedule const& schedule) {
  std::vector<PipelineShape> shapes;
  std::string problem;
  for (Index const stages : parse_range("--stages", or_else(arguments.stages, "4"), most_stages))
    for (Index const micro_batches :
         parse_range("--micro-batches", or_else(arguments.micro_batches, "8"), most_micro_batches))
      for (Index const chunks :
           parse_range("--chunks", or_else(arguments.chunks, schedule.has_chunks ? "2" : "1"), most_chunks)) {
        PipelineShape const shape{stages, micro_batches, chunks};
        std::string const found = shape_problem(schedule, shape);
        if (found.empty()) shapes.push_back(shape);
        if (problem.empty()) problem = found;
        TRAINSTONE_REQUIRE_INPUT(std::ssize(shapes) <= most_shapes,
                                 "more than {0} pipelines are asked for; name at most {0}", most_shapes);
      }
  TRAINSTONE_REQUIRE_INPUT(!shapes.empty(), "{}", problem);
  return shapes;
}

/// Ticks of a unit: parts of it can be divided by chunks, and a backward into two halves.
constexpr Ticks unit_of(PipelineShape const& shape) { return 2 * shape.chunks * parts_of_unit; }

PipelinePrices prices_of(PipelineArguments const& arguments, PipelineShape const& shape, bool splits_backward) {
  Ticks const scale = unit_of(shape) / parts_of_unit;
  std::vector<Ticks> const forward = parse_times("--forward", or_else(arguments.forward, "1"), shape.stages);
  std::vector<Ticks> const backward = parse_times("--backward", or_else(arguments.backward, "2"), shape.stages);
  PipelinePrices prices{.chunks = {},
                        .head = scale * parse_time("--head", or_else(arguments.head, "0")),
                        .message = scale * parse_time("--message", or_else(arguments.message, "0"))};
  auto const is_zero = [](Ticks time) { return time == 0; };
  TRAINSTONE_REQUIRE_INPUT(!std::ranges::all_of(forward, is_zero) || !std::ranges::all_of(backward, is_zero),
                           "--forward and --backward are 0 for every stage; one of them must be above 0");
  for (std::size_t stage = 0; stage < forward.size(); ++stage) {
    ChunkPrice chunk{scale * forward[stage] / shape.chunks, scale * backward[stage] / shape.chunks};
    if (splits_backward) {
      chunk.weights = chunk.backward / 2;
      chunk.backward -= chunk.weights;
    }
    prices.chunks.emplace_back(static_cast<std::size_t>(shape.chunks), chunk);
  }
  return prices;
}

PipelineExplanation explained(PipelineArguments const& arguments, PipelineSchedule const& schedule,
                              PipelineShape const& shape) {
  return explain_program(std::string(schedule.name), std::string(schedule.meaning),
                         make_pipeline_program(shape, make_pipeline_order(schedule, shape)),
                         prices_of(arguments, shape, schedule.splits_backward), unit_of(shape));
}

/// A table, or a line of JSON for each.
int explain_shapes(ExplainArguments const& arguments, PipelineSchedule const& schedule,
                   std::vector<PipelineShape> const& shapes) {
  TRAINSTONE_REQUIRE_INPUT(arguments.svg_file.empty() && !arguments.pipeline.search,
                           "--svg and --search are for one pipeline, these are {}", shapes.size());
  std::vector<std::vector<std::string>> rows;
  for (PipelineShape const& shape : shapes) {
    PipelineExplanation const explanation = explained(arguments.pipeline, schedule, shape);
    if (arguments.pipeline.json)
      fmt::print("{}", pipeline_json(explanation));
    else
      rows.push_back(pipeline_row(explanation));
    bool const is_last = &shape == &shapes.back();
    if (!arguments.pipeline.json && is_last) fmt::print("{}", pipeline_table(explanation, std::move(rows)));
  }
  return 0;
}

PipelineExplanation searched(PipelineArguments const& arguments, PipelineExplanation const& schedule) {
  PipelineShape const& shape = schedule.program.shape;
  Index const slots = arguments.slots.empty() ? 0 : parse_count("--slots", arguments.slots, 1, shape.micro_batches);
  TRAINSTONE_REQUIRE_INPUT(shape.chunks == 1,
                           "--search: orders are searched for 1 chunk per stage, not {}; name another "
                           "schedule than {}, or add --chunks 1",
                           shape.chunks, schedule.name);
  return explain_search(schedule, search_pipeline_order(shape, schedule.prices, {.slots = slots}), slots);
}

} // namespace

void describe_explain_pipeline(CLI::App& command, PipelineArguments& arguments) {
  command.add_option("--stages", arguments.stages, "with pipeline: number of stages; 2:8 tabulates all from 2 to 8")
      ->default_str("4");
  command
      .add_option("--micro-batches", arguments.micro_batches,
                  "with pipeline: number of micro-batches of a step, or a range")
      ->default_str("8");
  command.add_option("--chunks", arguments.chunks,
                     "with pipeline: number of chunks per stage, or a range; default 2 with interleaved, else 1");
  command
      .add_option("--forward", arguments.forward,
                  "with pipeline: time of a stage's forward, in any unit; or one for each stage: 1,1,2")
      ->default_str("1");
  command
      .add_option("--backward", arguments.backward,
                  "with pipeline: time of a stage's backward, or one for each stage; zb-h1 splits it into halves")
      ->default_str("2");
  command.add_option("--head", arguments.head, "with pipeline: time of the head, at the end of the last forward")
      ->default_str("0");
  command.add_option("--message", arguments.message, "with pipeline: time of a message")->default_str("0");
  command.add_flag("--search", arguments.search, "with pipeline: show the fastest order that a search finds");
  command.add_option("--slots", arguments.slots,
                     "with --search: number of micro-batches whose activations a stage can keep; default any");
  command.add_flag("--json", arguments.json,
                   "with pipeline: print JSON with the instructions of all stages; with matmul: with all blocks");
}

std::pair<char const*, std::string> pipeline_flag_given(PipelineArguments const& arguments) {
  std::pair<char const*, std::string> const flags[]{{"--stages", arguments.stages},
                                                    {"--micro-batches", arguments.micro_batches},
                                                    {"--chunks", arguments.chunks},
                                                    {"--forward", arguments.forward},
                                                    {"--backward", arguments.backward},
                                                    {"--head", arguments.head},
                                                    {"--message", arguments.message},
                                                    {"--slots", arguments.slots},
                                                    {"--search", arguments.search ? "given" : ""},
                                                    {"--json", arguments.json ? "given" : ""}};
  for (auto const& flag : flags)
    if (!flag.second.empty()) return flag;
  return {"", ""};
}

int explain_pipeline(ExplainArguments const& arguments) {
  PipelineArguments const& flags = arguments.pipeline;
  TRAINSTONE_REQUIRE_INPUT(!arguments.algorithm.empty(), "explain pipeline needs a schedule, one of {}",
                           pipeline_schedule_names());
  PipelineSchedule const& schedule = parse_pipeline_schedule(arguments.algorithm);
  std::vector<PipelineShape> const shapes = shapes_of(flags, schedule);
  TRAINSTONE_REQUIRE_INPUT(flags.search || flags.slots.empty(), "--slots limits a search, add --search");
  if (shapes.size() > 1) return explain_shapes(arguments, schedule, shapes);
  PipelineExplanation explanation = explained(flags, schedule, shapes.front());
  if (flags.search) explanation = searched(flags, explanation);
  if (!arguments.svg_file.empty()) {
    require_writable(arguments.svg_file);
    write_file_atomically(arguments.svg_file, pipeline_svg(explanation));
  }
  fmt::print("{}", flags.json ? pipeline_json(explanation) : pipeline_text(explanation));
  return 0;
}

} // namespace trainstone
