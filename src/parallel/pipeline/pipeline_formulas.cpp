#include "parallel/pipeline/pipeline_formulas.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// The symbols of the table.
struct Symbols {
  Index p, m, v;
  Ticks f, b, w;
};

Ticks time_of(std::string_view schedule, Symbols const& s) {
  Ticks const all = s.f + s.b + s.w;
  if (schedule == "naive") return s.m * s.p * all;
  if (schedule == "interleaved") return s.m * all + (s.p - 1) * (all / s.v);
  if (schedule == "zb-h1")
    return std::max(s.m * all + (s.p - 1) * (s.f + s.b - s.w), (s.m + s.p - 1) * (s.f + s.b) + s.w);
  return (s.m + s.p - 1) * all;
}

Index in_flight_of(std::string_view schedule, Symbols const& s, Index stage) {
  Index const behind = s.p - 1 - stage;
  if (schedule == "naive") return 1;
  if (schedule == "gpipe") return s.m;
  if (schedule == "1f1b") return std::min(s.m, behind + 1);
  if (schedule == "1f1b-eager") return std::min(s.m, 2 * behind + 1);
  if (schedule == "zb-h1") return std::min(s.m, s.p);
  return std::min(s.m * s.v, 2 * behind + (s.v - 1) * s.p + 1);
}

std::optional<Index> exposed_of(std::string_view schedule, Symbols const& s) {
  Index const through = 2 * (s.p - 1);
  Index const turns = (s.m - 1) * (s.p - 1) / s.p;
  if (schedule == "naive") return through * s.m;
  if (schedule == "1f1b") return through + 2 * turns;
  if (schedule == "interleaved") return 2 * (s.p * s.v - 1);
  if (schedule == "zb-h1") {
    if (s.f != s.b || s.b != s.w) return std::nullopt;
    return through + 2 * std::min(s.p - 1, turns);
  }
  return through;
}

} // namespace

std::optional<PipelineFormulas> pipeline_formulas(std::string_view schedule, PipelineShape const& shape,
                                                  ChunkPrice const& stage) {
  constexpr std::string_view known[]{"naive", "gpipe", "1f1b", "1f1b-eager", "interleaved", "zb-h1"};
  if (std::ranges::find(known, schedule) == std::end(known)) return std::nullopt;
  if (schedule == "zb-h1" && stage.weights > std::min(stage.forward, stage.backward)) return std::nullopt;
  Symbols const s{shape.stages, shape.micro_batches, shape.chunks, stage.forward, stage.backward, stage.weights};
  PipelineFormulas formulas{.time = time_of(schedule, s)};
  auto const ideal = static_cast<double>(s.m * stage.sum());
  formulas.bubble_ratio = ideal > 0 ? (static_cast<double>(formulas.time) - ideal) / ideal : 0;
  for (Index i = 0; i < s.p; ++i) formulas.in_flight.push_back(in_flight_of(schedule, s, i));
  formulas.messages = 2 * s.m * (s.p * s.v - 1);
  formulas.exposed_messages = exposed_of(schedule, s);
  return formulas;
}

} // namespace trainstone
