#include "report/stop_section.hpp"

#include "report/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trainstone {

namespace {

/// What a run took, by name: "seconds", "tokens", "steps", "flops".
std::optional<double> cost(Result const& result, std::string const& what) {
  auto const found = result.metrics.find(what + "_to_stop_loss");
  return found == result.metrics.end() ? std::nullopt : std::optional(found->second);
}

std::string loss_of(NamedResult const& named) {
  auto const found = named.file.deck_values.find("data.stop_loss");
  return found == named.file.deck_values.end() ? "" : found->second;
}

} // namespace

std::optional<std::string> cost_text(Result const& result) {
  std::optional<double> const seconds = cost(result, "seconds");
  if (!seconds) return std::nullopt;
  return fmt::format("{}, {:.0f} steps, {:.0f} tokens, {:.3g} FLOP", seconds_text(*seconds),
                     cost(result, "steps").value_or(0), cost(result, "tokens").value_or(0),
                     cost(result, "flops").value_or(0));
}

Page stop_section(std::vector<NamedResult> const& results) {
  std::vector<NamedResult const*> reached;
  for (NamedResult const& named : results)
    if (cost(named.file.result, "seconds")) reached.push_back(&named);
  if (reached.empty()) return {};
  std::ranges::stable_sort(reached, {}, [](NamedResult const* named) {
    return std::pair(loss_of(*named), *cost(named->file.result, "seconds"));
  });
  Table table{{"run", "held-out loss", "time", "of the fastest", "steps", "tokens", "of the fastest", "FLOP"}, {}};
  std::map<std::string, NamedResult const*> fastest; // by loss
  for (NamedResult const* const named : reached) {
    Result const& result = named->file.result;
    Result const& first = fastest.try_emplace(loss_of(*named), named).first->second->file.result;
    auto const value = [&](char const* what) { return cost(result, what).value_or(0); };
    auto const ratio = [&](char const* what) {
      return fmt::format("{:.2f} x", value(what) / cost(first, what).value_or(0));
    };
    table.rows.push_back({named->name, loss_of(*named), seconds_text(value("seconds")), ratio("seconds"),
                          fmt::format("{:.0f}", value("steps")), fmt::format("{:.0f}", value("tokens")),
                          ratio("tokens"), fmt::format("{:.3g}", value("flops"))});
  }
  return {Heading{2, "Until the held-out loss was low enough"},
          Line{"Time of steps, without validations. Runs that never were at data.stop_loss are not listed."},
          std::move(table)};
}

} // namespace trainstone
