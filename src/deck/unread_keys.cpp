#include "deck/unread_keys.hpp"

#include "deck/schema.hpp"
#include "parallel/plan/strategies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace trainstone {

namespace {

/// A key, and its values with which another key is read. No values: any value but 0 or "", and of integers any but the
/// default.
struct Reader {
  char const* key;
  std::vector<std::string> values;
};

/// A key and its readers, any of which is enough. A key with several rows is read where all of them say so.
struct ReadKey {
  char const* key;
  std::vector<Reader> readers;
  bool has_a_check = false; ///< as of UnreadKey
};

/// The strategies whose row is as `has` says.
template <class Has>
Reader strategies_with(Has const& has) {
  Reader reader{"parallel.strategy", {}};
  for (StrategyRow const& row : strategy_table)
    if (has(row)) reader.values.emplace_back(row.name);
  return reader;
}

std::vector<ReadKey> keys_of_networks() {
  Reader const latency{"comm.emulated_network.latency", {}}, bandwidth{"comm.emulated_network.bandwidth", {}};
  return {{"comm.emulated_network.node_port", {latency, bandwidth}}};
}

std::vector<ReadKey> keys_of_faults() {
  Reader const sigma{"faults.straggler.sigma", {}};
  return {{"faults.straggler.seed", {sigma}}};
}

std::vector<ReadKey> keys_of_servers() {
  Reader const served = strategies_with([](StrategyRow const& row) { return row.sharers == StateSharers::servers; });
  Reader const apart{"server.mode", {"async", "bounded"}}, fifo{"server.schedule", {"fifo"}},
      together{"server.mode", {"sync"}}; // workers that train apart push and pull without overlap
  return {{"server.count", {served}},       {"server.colocated", {served}},
          {"server.mode", {served}},        {"server.staleness", {{"server.mode", {"bounded"}}}},
          {"server.order", {apart}},        {"server.lr_scale", {apart}},
          {"server.schedule", {served}},    {"server.slice", {{"server.schedule", {"priority"}}}},
          {"parallel.in_flight", {fifo}},   {"parallel.first_bucket", {fifo}},
          {"parallel.prefetch", {fifo}},    {"parallel.in_flight", {together}},
          {"parallel.overlap", {together}}, {"parallel.prefetch", {together}}};
}

std::vector<ReadKey> keys_of_tensor_ranks() {
  Reader const tensor{"parallel.tensor", {}}, grid{"parallel.tensor_grid", {}}, slices{"parallel.tensor_blocks", {}},
      sequence{"parallel.sequence", {}};
  return {
      {"comm.tensor_allreduce", {tensor, grid}},     {"comm.tensor_reduce_scatter", {sequence}},
      {"comm.tensor_all_gather", {sequence}},        {"parallel.sequence", {tensor}, true},
      {"parallel.tensor_keep_gathered", {sequence}}, {"parallel.tensor_row_chunks", {tensor, slices}},
  };
}

/// That name the algorithms of collectives between ranks that share the training state.
std::vector<ReadKey> keys_of_algorithms() {
  Reader const scatters{"parallel.gradient_reduction", {"reduce_scatter"}};
  Reader const parts{"parallel.partition", {"intra_layer"}}, owners{"parallel.partition", {"inter_layer"}};
  Reader const replicas = strategies_with([](StrategyRow const& row) {
    return (row.sharers == StateSharers::none || row.sharers == StateSharers::group) && !row.collects();
  });
  Reader const shards = strategies_with(
      [](StrategyRow const& row) { return row.sharers == StateSharers::all || row.sharers == StateSharers::group; });
  Reader const collects = strategies_with([](StrategyRow const& row) { return row.collects(); });
  Reader const colocated{"server.colocated", {}};
  return {
      {"comm.all_gather", {shards, colocated}},
      {"comm.reduce_scatter", {shards, colocated}},
      {"comm.reduce_scatter", {scatters}},
      {"comm.all_gather", {parts}},
      {"comm.reduce_scatter", {parts}},
      {"comm.reduce", {owners, collects}},
      {"comm.reduce", {scatters}},
      {"comm.broadcast", {owners, collects}},
      {"comm.allreduce", {replicas, {"parallel.gradient_reduction", {"all_reduce"}}}},
  };
}

std::vector<ReadKey> keys_of_offload() {
  Reader const moves{"memory.offload_optimizer", {"host", "file"}}, state{"memory.offload_optimizer", {"file"}},
      parameters{"memory.offload_param", {"file"}};
  return {{"memory.offload_chunk", {moves, parameters}},
          {"memory.folder", {state, parameters}},
          {"memory.direct_io", {state, parameters}},
          {"memory.io_engine", {state, parameters}}};
}

std::vector<ReadKey> other_keys() {
  Reader const moments{"optimizer.type", {"adamw", "adam"}};
  Reader const mixed{"precision.recipe", {"mixed16", "mixed18", "mixed20"}};
  Reader const scaled{"precision.loss_scale", {"dynamic"}};
  Reader const shares = strategies_with([](StrategyRow const& row) { return row.sharers != StateSharers::none; });
  Reader const staged = strategies_with([](StrategyRow const& row) { return !row.stage; });
  Reader const shards = strategies_with(
      [](StrategyRow const& row) { return row.sharers == StateSharers::all || row.sharers == StateSharers::group; });
  Reader const grouped = strategies_with([](StrategyRow const& row) { return row.sharers == StateSharers::group; });
  Reader const naive = strategies_with([](StrategyRow const& row) { return row.main_device; });
  Reader const others = strategies_with([](StrategyRow const& row) { return !row.collects(); });
  Reader const buckets{"parallel.granularity", {"bucket"}}, several{"parallel.granularity", {"bucket", "tensor"}};
  Reader const stages{"parallel.pipeline", {}};
  Reader const checkpoints{"checkpoint.dir", {}};
  return {
      {"model.dropout_masks", {{"model.dropout", {}}}},
      {"kernels.attention", {{"model.attention", {"flash"}}}},
      {"optimizer.momentum", {{"optimizer.type", {"sgd"}}}},
      {"optimizer.betas", {moments}},
      {"optimizer.eps", {moments}},
      {"precision.storage", {mixed}},
      {"precision.loss_scale", {mixed}},
      {"precision.initial_loss_scale", {scaled}},
      {"precision.growth_interval", {scaled}},
      {"precision.most_skipped", {scaled}},
      {"parallel.zero_stage", {staged}, true},
      {"parallel.shard_group", {grouped}, true},
      {"parallel.naive_update", {naive}},
      {"parallel.prefetch", {shares}}, // of gathered parameters
      {"parallel.unit", {shards}},
      {"parallel.granularity", {others}},
      {"parallel.bucket", {others}},
      {"parallel.first_bucket", {others}},
      {"parallel.in_flight", {others}},
      {"parallel.overlap", {others}},
      {"parallel.bucket", {buckets}},
      {"parallel.first_bucket", {buckets}},
      {"parallel.in_flight", {several}},
      {"parallel.overlap", {several}},
      {"parallel.pipeline_schedule", {stages}},
      {"parallel.pipeline_chunks", {stages}},
      {"parallel.stages", {stages}},
      {"checkpoint.every", {checkpoints}},
      {"checkpoint.every_steps", {checkpoints}},
      {"checkpoint.keep", {checkpoints}},
      {"checkpoint.on_signal", {checkpoints}},
      {"trace.events", {{"trace.file", {}}}},
  };
}

std::vector<ReadKey> const& read_keys() {
  static std::vector<ReadKey> const all = [] {
    std::vector<ReadKey> rows = other_keys();
    for (auto const& more : {keys_of_algorithms(), keys_of_tensor_ranks(), keys_of_networks(), keys_of_faults(),
                             keys_of_servers(), keys_of_offload()})
      std::ranges::copy(more, std::back_inserter(rows));
    return rows;
  }();
  return all;
}

bool reads(RunConfig const& config, Reader const& reader) {
  DeckValue const value = find_key(reader.key)->get(config);
  if (auto const* const number = std::get_if<double>(&value)) return *number != 0;
  if (auto const* const quantity = std::get_if<Quantity>(&value)) return quantity->value != 0;
  if (auto const* const is_on = std::get_if<bool>(&value)) return *is_on;
  if (std::holds_alternative<std::vector<double>>(value)) return value != find_key(reader.key)->default_value();
  if (std::holds_alternative<std::int64_t>(value)) return value != find_key(reader.key)->default_value();
  if (reader.values.empty()) return !std::get<std::string>(value).empty();
  return std::ranges::find(reader.values, std::get<std::string>(value)) != reader.values.end();
}

/// "optimizer.type = \"adamw\" or \"adam\"", "parallel.tensor above 1", "parallel.sequence = true", "trace.file"
std::string condition(Reader const& reader) {
  std::string const key = reader.key;
  DeckValue const standard = find_key(reader.key)->default_value();
  if (std::holds_alternative<bool>(standard)) return key + " = true";
  if (auto const* const number = std::get_if<double>(&standard)) return fmt::format("{} above {}", key, *number);
  if (auto const* const quantity = std::get_if<Quantity>(&standard)) return key + " above " + to_string(*quantity);
  if (auto const* const count = std::get_if<std::int64_t>(&standard)) return fmt::format("{} above {}", key, *count);
  if (reader.values.empty()) return key;
  std::vector<std::string> const& values = reader.values;
  std::string text = key + " = ";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += i + 1 == values.size() ? " or " : ", ";
    text += fmt::format("\"{}\"", values[i]);
  }
  return text;
}

} // namespace

std::optional<UnreadKey> find_unread(RunConfig const& config, std::string_view key) {
  for (ReadKey const& row : read_keys()) {
    if (row.key != key) continue;
    if (std::ranges::any_of(row.readers, [&](Reader const& reader) { return reads(config, reader); })) continue;
    UnreadKey unread{row.readers.front().key, condition(row.readers.front()), row.has_a_check};
    for (std::size_t i = 1; i < row.readers.size(); ++i) unread.readers += ", or " + condition(row.readers[i]);
    return unread;
  }
  return std::nullopt;
}

} // namespace trainstone
