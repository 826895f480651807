#include "result/servers_info.hpp"

#include "result/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainstone {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(std::optional<Index> const& value) { return value ? Json(*value) : Json(nullptr); }

} // namespace

ServersInfo servers_info(ServerPolicy const& policy, std::vector<ServerRecord> const& record) {
  ServersInfo info{.threshold = policy.threshold};
  info.workers.resize(static_cast<std::size_t>(policy.workers));
  for (ServerRecord const& part : record) {
    info.acts.insert(info.acts.end(), part.acts.begin(), part.acts.end());
    for (AppliedPush const& push : part.pushes) {
      ServedWorker& worker = info.workers.at(static_cast<std::size_t>(push.worker));
      ++worker.pushes;
      worker.waited_seconds += push.waited;
      if (std::ssize(info.pushes_by_staleness) <= push.staleness)
        info.pushes_by_staleness.resize(static_cast<std::size_t>(push.staleness) + 1);
      ++info.pushes_by_staleness[static_cast<std::size_t>(push.staleness)];
      info.largest_gap = std::max(info.largest_gap, push.gap);
    }
  }
  return info;
}

std::optional<Index> ServersInfo::bound() const {
  return staleness_bound({.workers = static_cast<Rank>(workers.size()), .threshold = threshold});
}

nlohmann::ordered_json servers_json(ServersInfo const& info) {
  Json workers = Json::array(), acts = Json::array();
  for (ServedWorker const& worker : info.workers)
    workers.push_back({{"pushes", worker.pushes}, {"waited_seconds", worker.waited_seconds}});
  for (ServerAct const& act : info.acts) acts.push_back(to_number(act));
  return {{"order", info.order},
          {"staleness", number_or_null(info.threshold)},
          {"workers", std::move(workers)},
          {"pushes_by_staleness", info.pushes_by_staleness},
          {"staleness_bound", number_or_null(info.bound())},
          {"largest_gap", info.largest_gap},
          {"parameter_hash", info.parameter_hash},
          {"acts", std::move(acts)}};
}

std::optional<ServersInfo> read_servers(JsonFile const& file) {
  if (!file.has("/servers")) return std::nullopt;
  ServersInfo info{.order = file.text("/servers/order"),
                   .largest_gap = static_cast<Index>(file.amount("/servers/largest_gap")),
                   .parameter_hash = file.text("/servers/parameter_hash")};
  if (file.has("/servers/staleness")) info.threshold = static_cast<Index>(file.amount("/servers/staleness"));
  for (std::size_t i = 0; i < file.length("/servers/workers"); ++i) {
    std::string const place = fmt::format("/servers/workers/{}/", i);
    info.workers.push_back(
        {static_cast<Index>(file.amount(place + "pushes")), file.non_negative(place + "waited_seconds")});
  }
  file.require(!info.workers.empty(), "/servers/workers is empty");
  for (std::size_t i = 0; i < file.length("/servers/pushes_by_staleness"); ++i)
    info.pushes_by_staleness.push_back(
        static_cast<Index>(file.amount(fmt::format("/servers/pushes_by_staleness/{}", i))));
  for (std::size_t i = 0; i < file.length("/servers/acts"); ++i) {
    ServerAct const act = act_of(static_cast<std::int64_t>(file.amount(fmt::format("/servers/acts/{}", i))));
    file.require(act.worker >= 0 && act.worker < std::ssize(info.workers),
                 fmt::format("/servers/acts/{} is of worker {}, there are {}", i, act.worker, info.workers.size()));
    info.acts.push_back(act);
  }
  return info;
}

} // namespace trainstone
