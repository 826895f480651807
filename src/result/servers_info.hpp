#pragma once

// What workers and servers did that do not wait for each other, as a part of a result: its form in result.json, written
// and read. Enough to repeat the training.

#include "parallel/servers/push_record.hpp"
#include "parallel/servers/server_clocks.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

class JsonFile;

struct ServedWorker {
  Index pushes = 0;
  double waited_seconds = 0; ///< for answers in this run, without pauses
  bool operator==(ServedWorker const&) const = default;
};

struct ServersInfo {
  std::string order = {};              ///< "planned", "arrival"
  std::optional<Index> threshold = {}; ///< of clocks; none: there is no bound
  std::vector<ServedWorker> workers = {};
  std::vector<Index> pushes_by_staleness = {};
  Index largest_gap = 0;            ///< of a worker's clock to the least one, at an answer
  std::string parameter_hash = {};  ///< of all parameters, after the last push
  std::vector<ServerAct> acts = {}; ///< in their order

  /// Of staleness; none: there is no bound.
  std::optional<Index> bound() const;
};

/// From the whole record.
ServersInfo servers_info(ServerPolicy const& policy, std::vector<ServerRecord> const& record);

nlohmann::ordered_json servers_json(ServersInfo const& info);

/// None if the result has none. \throws InputError if a value is not as servers_json() writes it
std::optional<ServersInfo> read_servers(JsonFile const& file);

} // namespace trainstone
