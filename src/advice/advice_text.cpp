#include "advice/advice_text.hpp"

#include "advice/published_runs.hpp"
#include "core/json_text.hpp"
#include "core/plural.hpp"
#include "report/output.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json or_null(std::optional<Value> const& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Of state that does not lie with the kernels.
std::string elsewhere(RankedWay const& one) {
  if (!one.way.moves()) return "";
  std::string const file = one.in_file > 0 ? fmt::format(", {} in a file", mebibytes(one.in_file)) : "";
  return fmt::format(" ({} on the host{})", mebibytes(one.on_host), file);
}

std::string table_of(std::vector<RankedWay> const& ranked, std::size_t top) {
  std::string text = fmt::format("{:>4} {:>11} {:>12} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8}  way\n{:>4} {:>11} {:>12} "
                                 "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
                                 "", "step", "memory", "bubble", "exposed", "exposed", "exposed", "exposed", "exposed",
                                 "", "predicted", "fullest", "", "tensor", "data", "pipeline", "control", "offload");
  std::size_t number = 0;
  auto const add = [&](std::string const& step, RankedWay const& one, std::vector<std::string> const& shares) {
    text += fmt::format("{:>4} {:>11} {:>12} {:>7}", ++number, step, mebibytes(one.needed), shares.front());
    for (std::size_t i = 1; i < shares.size(); ++i) text += fmt::format(" {:>8}", shares[i]);
    text += fmt::format("  {}{}\n", to_string(one.way), elsewhere(one));
  };
  for (RankedWay const& one : ranked) {
    if (number == top) break;
    auto const share = [&](double seconds) { return fmt::format("{:.1f} %", 100 * seconds / one.time.step); };
    if (one.played)
      add(fmt::format("{:.4g} s", one.time.step), one,
          {share(one.time.bubble), share(one.time.tensor), share(one.time.data), share(one.time.pipeline),
           share(one.time.control), share(one.time.offload)});
    else if (!one.has_time)
      add("-", one, std::vector<std::string>(6, "-"));
  }
  return text;
}

std::string excluded_text(Advice const& advice) {
  if (advice.excluded.empty()) return "";
  std::string text = fmt::format("{} of which no way fits:", plural(std::ssize(advice.excluded), "mesh"));
  if (advice.excluded.size() > 1) text.replace(text.find("meshs"), 5, "meshes");
  for (ExcludedMesh const& one : advice.excluded)
    text += fmt::format(" {}x{}x{} ({})", one.mesh.tensor * one.mesh.features, one.mesh.data, one.mesh.pipeline,
                        one.least ? mebibytes(*one.least) : "state alone");
  return text + "\n  (tensor x data x pipeline; in parentheses what the first stage needs at least, or that the state "
                "alone does not fit)\n";
}

std::string change_text(AdviceReport const& report) {
  RankedWay const* const least = least_change(report.own, report.advice.ranked);
  if (!least) return "";
  int const count = changes(report.own, least->way);
  if (count == 0) return "the deck as it is fits\n";
  return fmt::format("the least change of the deck after which it fits, of {}: {}{}\n  {}\n", plural(count, "choice"),
                     to_string(least->way), elsewhere(*least), set_options(least->keys));
}

/// Tensor ranks and stages with which others have trained the model, and the name of the publication.
struct PublishedMesh {
  std::int64_t tensor, pipeline;
  std::string_view publication;
  bool operator==(PublishedMesh const&) const = default;
};

std::vector<PublishedMesh> published_meshes(GptConfig const& model) {
  std::vector<PublishedMesh> meshes;
  for (Publication const& publication : publications())
    for (PublishedRun const& run : publication.runs) {
      if (run.layers != model.layers || run.heads != model.heads || run.channels != model.channels) continue;
      PublishedMesh const mesh{run.tensor, run.pipeline, publication.name};
      if (std::ranges::find(meshes, mesh) == meshes.end()) meshes.push_back(mesh);
    }
  return meshes;
}

/// The fastest way on the mesh, wherever it stands.
std::string published_places(AdviceReport const& report) {
  std::string text;
  std::vector<RankedWay> const& ranked = report.advice.ranked;
  for (PublishedMesh const& mesh : published_meshes(report.model)) {
    auto const is_on = [&](RankedWay const& one) {
      return one.way.tensor == mesh.tensor && one.way.pipeline == mesh.pipeline && one.way.features == 1;
    };
    auto const best = std::ranges::find_if(ranked, is_on);
    text += fmt::format("published of this model ({}): tensor {} x pipeline {}; ", mesh.publication, mesh.tensor,
                        mesh.pipeline);
    if (best == ranked.end())
      text += "here no way with it fits, or its data ranks do not share out the samples\n";
    else if (!best->has_time)
      text += "here it fits with state that is moved\n";
    else
      text += fmt::format("here it is place {} of {}, with {:.4g} s {}: {}\n", best - ranked.begin() + 1, ranked.size(),
                          best->played ? best->time.step : best->rough_seconds, best->played ? "predicted" : "roughly",
                          to_string(best->way));
  }
  return text;
}

/// What is known of ways that were not played.
std::string others_text(Advice const& advice, std::ptrdiff_t played) {
  auto const without_time = std::ranges::count(advice.ranked, false, &RankedWay::has_time);
  std::int64_t const others = std::ssize(advice.ranked) - played - without_time, rest = may_still_win(advice);
  std::string text;
  if (others > 0)
    text += fmt::format("  {} others were not played: {} because their computation alone takes longer than the fastest "
                        "way, {} because a rough\n  time is longer, or three ways of their mesh were played\n",
                        others, others - rest, rest);
  if (without_time > 0)
    text += fmt::format("  {} fit with optimizer state or parameters on the host or in a file, on meshes where nothing "
                        "else fits; they have no\n  time: no rates of copies and files are known, which `trainstone "
                        "calibrate` measures\n",
                        without_time);
  return text;
}

Json json_of(RankedWay const& one) {
  Json json{{"way", to_string(one.way)},
            {"tensor", one.way.tensor},
            {"data", one.way.data},
            {"features", one.way.features},
            {"pipeline", one.way.pipeline},
            {"set", one.keys},
            {"needed_bytes", one.needed},
            {"host_bytes", one.on_host},
            {"file_bytes", one.in_file},
            {"played", one.played},
            {"rough_seconds", one.rough_seconds},
            {"has_time", one.has_time},
            {"least_seconds", one.least_seconds}};
  if (!one.played) return json;
  json["step_seconds"] = one.time.step;
  json["compute_seconds"] = one.time.compute;
  json["bubble_seconds"] = one.time.bubble;
  json["exposed_seconds"] = {{"tensor", one.time.tensor},
                             {"data", one.time.data},
                             {"pipeline", one.time.pipeline},
                             {"control", one.time.control},
                             {"offload", one.time.offload}};
  return json;
}

Json json_of(RuleAdvice const& rule) {
  char const* const answer = rule.answer == RuleAnswer::tensor     ? "tensor"
                             : rule.answer == RuleAnswer::pipeline ? "pipeline"
                                                                   : "data";
  Json json{{"operation", rule.operation.name},
            {"operation_bytes", rule.operation.bytes()},
            {"model_bytes", rule.model_bytes},
            {"answer", answer},
            {"alone", rule.alone}};
  if (rule.way)
    json["way"] = {{"tensor", rule.way->tensor},
                   {"pipeline", rule.way->pipeline},
                   {"ranks", rule.way->ranks()},
                   {"set", rule.keys},
                   {"needed_bytes", rule.needed}};
  return json;
}

Json json_of(RankedOrder const& check) {
  Json json{{"tau", check.tau}, {"least_tau", least_tau}, {"scale", check.scale}};
  for (CheckedWay const& one : check.ways)
    json["ways"].push_back({{"way", to_string(one.way.way)},
                            {"set", one.way.keys},
                            {"predicted_seconds", one.way.time.step},
                            {"measured_seconds", one.measured}});
  json["worst"] = to_string(check.ways[check.worst].way.way);
  return json;
}

} // namespace

std::string advice_text(AdviceReport const& report, std::size_t top) {
  Advice const& advice = report.advice;
  auto const played = std::ranges::count_if(advice.ranked, &RankedWay::played);
  std::string text =
      fmt::format("{} ways on {} with {} samples per step: {} fit, the timelines of {} were played\n", advice.ways,
                  plural(report.ranks, "rank"), advice.batch.global, advice.ranked.size(), played);
  text += others_text(advice, played);
  if (!advice.ranked.empty()) {
    text += table_of(advice.ranked, top);
    if (played > 0) text += fmt::format("the fastest: {}\n", set_options(advice.ranked.front().keys));
    text += change_text(report);
  }
  text += published_places(report);
  text += excluded_text(advice);
  if (advice.ranked.empty())
    text += report.ranks_needed ? fmt::format("NOTHING FITS on {}; something fits from {} on\n",
                                              plural(report.ranks, "rank"), plural(*report.ranks_needed, "rank"))
                                : fmt::format("NOTHING FITS on {}, nor on more\n", plural(report.ranks, "rank"));
  return text;
}

std::string advice_json(AdviceReport const& report) {
  Json json{{"kind", "advice"},
            {"deck", report.deck},
            {"ranks", report.ranks},
            {"nodes", report.nodes},
            {"given_bytes", or_null(report.memory)},
            {"micro", report.advice.batch.micro},
            {"samples_per_step", report.advice.batch.global},
            {"ways", report.advice.ways},
            {"may_still_win", may_still_win(report.advice)},
            {"ranks_needed", or_null(report.ranks_needed)}};
  json["rule"] = report.rule ? json_of(*report.rule) : Json(nullptr);
  json["ranked"] = Json::array();
  for (RankedWay const& one : report.advice.ranked) json["ranked"].push_back(json_of(one));
  json["excluded"] = Json::array();
  for (ExcludedMesh const& one : report.advice.excluded)
    json["excluded"].push_back({{"tensor", one.mesh.tensor},
                                {"features", one.mesh.features},
                                {"data", one.mesh.data},
                                {"pipeline", one.mesh.pipeline},
                                {"least_bytes", or_null(one.least)}});
  json["check"] = report.check ? json_of(*report.check) : Json(nullptr);
  return json_text(json);
}

} // namespace trainstone
