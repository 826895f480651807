#include "report/servers_section.hpp"

#include "report/report_text.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <numeric>

namespace trainstone {

namespace {

Index pushes_of(ServersInfo const& info) {
  return std::accumulate(info.pushes_by_staleness.begin(), info.pushes_by_staleness.end(), Index{0});
}

double mean_staleness(ServersInfo const& info) {
  double sum = 0;
  for (std::size_t staleness = 0; staleness < info.pushes_by_staleness.size(); ++staleness)
    sum += static_cast<double>(staleness) * static_cast<double>(info.pushes_by_staleness[staleness]);
  return sum / static_cast<double>(pushes_of(info));
}

/// "asynchronous, planned order", "bounded, s = 4, order of arrival"
std::string rule_text(ServersInfo const& info) {
  return fmt::format("{}, {}", info.threshold ? fmt::format("bounded, s = {}", *info.threshold) : "asynchronous",
                     info.order == "planned" ? "planned order" : "order of arrival");
}

std::string bound_text(std::optional<Index> const& bound) { return bound ? fmt::format(" (bound {})", *bound) : ""; }

std::string staleness_text(ServersInfo const& info) {
  return fmt::format("mean {:.2f}, at most {}{}", mean_staleness(info), std::ssize(info.pushes_by_staleness) - 1,
                     bound_text(info.bound()));
}

std::string gap_text(ServersInfo const& info) {
  return fmt::format("at most {}{}", info.largest_gap, bound_text(info.threshold));
}

} // namespace

std::string servers_lines(ServersInfo const& info) {
  std::string text = fmt::format("servers: {}; {} pushes; staleness {}; gap of clocks {}\n  pushes by staleness",
                                 rule_text(info), pushes_of(info), staleness_text(info), gap_text(info));
  for (std::size_t staleness = 0; staleness < info.pushes_by_staleness.size(); ++staleness)
    if (info.pushes_by_staleness[staleness] > 0)
      text += fmt::format(" {}: {}", staleness, info.pushes_by_staleness[staleness]);
  text += "\n  pushes by worker";
  for (ServedWorker const& worker : info.workers) text += fmt::format(" {}", worker.pushes);
  text += "\n  waited in this run";
  for (std::size_t worker = 0; worker < info.workers.size(); ++worker)
    text += fmt::format("{} {}", worker > 0 ? "," : "", seconds_text(info.workers[worker].waited_seconds));
  return text + '\n';
}

Page servers_section(ServersInfo const& info) {
  Table rule{{"workers and servers", ""},
             {{"rule", rule_text(info)},
              {"pushes", fmt::format("{}", pushes_of(info))},
              {"staleness", staleness_text(info)},
              {"gap of a worker's clock to the least one, at an answer", gap_text(info)}}};
  Table staleness{{"staleness", "pushes"}, {}}, workers{{"worker", "pushes", "waited for answers in this run"}, {}};
  for (std::size_t i = 0; i < info.pushes_by_staleness.size(); ++i)
    staleness.rows.push_back({fmt::format("{}", i), fmt::format("{}", info.pushes_by_staleness[i])});
  for (std::size_t i = 0; i < info.workers.size(); ++i)
    workers.rows.push_back({fmt::format("{}", i), fmt::format("{}", info.workers[i].pushes),
                            seconds_text(info.workers[i].waited_seconds)});
  return {Heading{3, "Pushes of workers that did not wait for each other"}, std::move(rule), std::move(staleness),
          std::move(workers)};
}

} // namespace trainstone
