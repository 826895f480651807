#include "result/machine_file.hpp"

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "result/files_info.hpp"
#include "result/json_file.hpp"
#include "result/result.hpp"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <unistd.h>
#include <utility>

namespace trainstone {

namespace {

using Json = JsonFile::Json;

constexpr int schema_version = 1;
constexpr char const* kind = "machine";

// --- writing

double finite(double value, std::string_view what) {
  TRAINSTONE_REQUIRE(std::isfinite(value), "{} of a machine is {}", what, value);
  return value;
}

Json optional_number(std::optional<double> const& value, std::string_view what) {
  return value ? Json(finite(*value, what)) : Json(nullptr);
}

Json curve_json(FittedCurve const& fitted, std::string_view name) {
  Json pieces = Json::array();
  for (PiecewiseLinear::Piece const& piece : fitted.curve.pieces())
    pieces.push_back({{"from_bytes", finite(piece.from_bytes, name)},
                      {"start_seconds", finite(piece.start, name)},
                      {"seconds_per_byte", finite(piece.per_byte, name)}});
  Json samples = Json::array();
  for (std::size_t i = 0; i < fitted.errors.samples.size(); ++i)
    samples.push_back({{"bytes", finite(fitted.errors.samples[i].bytes, name)},
                       {"seconds", finite(fitted.errors.samples[i].seconds, name)},
                       {"relative_error", finite(fitted.errors.relative[i], name)}});
  return {{"from_bytes", finite(fitted.from_bytes, name)},
          {"to_bytes", finite(fitted.to_bytes, name)},
          {"pieces", pieces},
          {"median_error", finite(fitted.errors.median, name)},
          {"worst_error", finite(fitted.errors.worst, name)},
          {"samples", samples}};
}

/// The times of a step that do not belong to a part.
constexpr std::array times_of_step{
    std::pair{"load", &PartTimes::load},
    std::pair{"loss", &PartTimes::loss},
    std::pair{"agree", &PartTimes::agree},
    std::pair{"norm_of_element", &PartTimes::norm_of_element},
    std::pair{"update_of_element", &PartTimes::update_of_element},
    std::pair{"copy_of_element", &PartTimes::copy_of_element},
    std::pair{"add_of_element", &PartTimes::add_of_element},
};

constexpr std::array times_of_part{
    std::pair{"forward", &PartTimes::OfPart::forward},
    std::pair{"backward", &PartTimes::OfPart::backward},
    std::pair{"backward_adding", &PartTimes::OfPart::backward_adding},
};

/// Files without them are of decks that compute nothing again.
constexpr std::array recompute_times_of_part{
    std::pair{"recompute_selective", &PartTimes::OfPart::recompute_selective},
    std::pair{"recompute_full", &PartTimes::OfPart::recompute_full},
};

constexpr std::array offload_rates{std::pair{"copy_bytes_per_second", &OffloadRates::copy},
                                   std::pair{"read_bytes_per_second", &OffloadRates::read},
                                   std::pair{"write_bytes_per_second", &OffloadRates::write}};

/// Files without them are older.
constexpr std::array rates_beside_file{
    std::pair{"update_copy_bytes_per_second", &OffloadRates::copy_beside_file},
    std::pair{"update_seconds_per_element", &OffloadRates::update_of_element},
};

Json parts_json(MeasuredParts const& parts) {
  Json json{{"conditions", parts.conditions}, {"threads", parts.threads}, {"layers", parts.layers}};
  for (auto const& [name, member] : times_of_step) json["step_seconds"][name] = finite(parts.times.*member, name);
  for (auto const& [pass, shares] : parts.times.piece_shares)
    for (double const share : shares) json["piece_shares"][to_string(pass)].push_back(finite(share, to_string(pass)));
  for (auto const& [kind_of_part, times] : parts.times.parts) {
    std::string const part(to_string(kind_of_part));
    for (auto const& [name, member] : times_of_part) json["part_seconds"][part][name] = finite(times.*member, part);
    for (auto const& [name, member] : recompute_times_of_part)
      json["part_seconds"][part][name] = finite(times.*member, part);
  }
  return json;
}

Json network_json(Interconnect const& network) {
  switch (network.kind) {
  case Interconnect::Kind::full: break;
  case Interconnect::Kind::fat_tree: {
    Json levels = Json::array();
    for (PodLevel const& level : network.levels)
      levels.push_back({{"nodes", level.nodes}, {"taper", finite(level.taper, "a taper")}});
    return {{"shape", "fat_tree"},
            {"node_bytes_per_second", finite(network.node_bandwidth, "the network")},
            {"levels", levels}};
  }
  case Interconnect::Kind::dragonfly:
    return {{"shape", "dragonfly"},
            {"groups", network.groups},
            {"group_nodes", network.group_nodes},
            {"global_links", network.global_links},
            {"link_bytes_per_second", finite(network.link_bandwidth, "the network")}};
  case Interconnect::Kind::torus:
    return {{"shape", "torus"},
            {"dimensions", network.dimensions},
            {"link_bytes_per_second", finite(network.link_bandwidth, "the network")}};
  }
  return {{"shape", "full"}};
}

// --- reading

/// Pods lie in pods of the next level.
std::vector<PodLevel> read_levels(JsonFile const& document) {
  std::string const place = "/network/levels";
  std::vector<PodLevel> levels;
  for (std::size_t i = 0; i < document.length(place); ++i) {
    std::string const level = fmt::format("{}/{}", place, i);
    levels.push_back({document.count(level + "/nodes"), document.positive(level + "/taper")});
    std::int64_t const inner = i == 0 ? 1 : levels[i - 1].nodes;
    document.require(levels[i].taper >= 1, level + "/taper must be at least 1");
    document.require(levels[i].nodes % inner == 0 && (i == 0 || levels[i].nodes > inner),
                     fmt::format("{}/nodes is {}, must be a larger multiple of {}", level, levels[i].nodes, inner));
  }
  document.require(!levels.empty(), place + " must have at least one level");
  return levels;
}

Interconnect read_network(JsonFile const& document) {
  if (!document.has("/network")) return {};
  Interconnect network;
  std::string const shape = document.text("/network/shape");
  if (shape == "fat_tree") {
    network.kind = Interconnect::Kind::fat_tree;
    network.node_bandwidth = document.positive("/network/node_bytes_per_second");
    network.levels = read_levels(document);
  } else if (shape == "dragonfly") {
    network.kind = Interconnect::Kind::dragonfly;
    network.groups = document.count("/network/groups");
    network.group_nodes = document.count("/network/group_nodes");
    network.global_links = document.count("/network/global_links");
    network.link_bandwidth = document.positive("/network/link_bytes_per_second");
  } else if (shape == "torus") {
    network.kind = Interconnect::Kind::torus;
    network.dimensions = document.counts("/network/dimensions");
    network.link_bandwidth = document.positive("/network/link_bytes_per_second");
    document.require(!network.dimensions.empty(), "/network/dimensions must have at least one");
  } else
    document.require(shape == "full",
                     fmt::format("/network/shape is \"{}\", must be full, fat_tree, dragonfly or torus", shape));
  return network;
}

/// Files without them are of decks without tensor ranks.
void read_piece_shares(JsonFile const& document, PartTimes& times) {
  for (PartKind const part : part_kinds)
    for (Pass const pass : {Pass::forward, Pass::loss, Pass::recompute, Pass::backward}) {
      PassOfPart const one{part, pass, pass == Pass::recompute ? Recompute::full : Recompute::none};
      std::string const place = "/parts/piece_shares/" + to_string(one);
      if (!document.has(place)) continue;
      for (std::size_t i = 0; i < document.length(place); ++i)
        times.piece_shares[one].push_back(document.non_negative(fmt::format("{}/{}", place, i)));
    }
}

MeasuredParts read_parts(JsonFile const& document) {
  MeasuredParts parts;
  for (auto const& entry : document.at("/parts/conditions").items())
    parts.conditions[entry.key()] = document.text("/parts/conditions/" + entry.key());
  parts.threads = document.count("/parts/threads");
  parts.layers = document.count("/parts/layers");
  for (auto const& [name, member] : times_of_step)
    parts.times.*member = document.non_negative(fmt::format("/parts/step_seconds/{}", name));
  for (auto const& entry : document.at("/parts/part_seconds").items()) {
    auto const found = std::ranges::find_if(part_kinds, [&](PartKind one) { return to_string(one) == entry.key(); });
    document.require(found != part_kinds.end(), fmt::format("/parts/part_seconds: no part \"{}\"", entry.key()));
    for (auto const& [name, member] : times_of_part)
      parts.times.parts[*found].*member =
          document.non_negative(fmt::format("/parts/part_seconds/{}/{}", entry.key(), name));
    for (auto const& [name, member] : recompute_times_of_part)
      parts.times.parts[*found].*member =
          document.optional_non_negative(fmt::format("/parts/part_seconds/{}/{}", entry.key(), name)).value_or(0);
  }
  read_piece_shares(document, parts.times);
  return parts;
}

/// Files that are older than offloading have none.
std::optional<OffloadRates> read_offload(JsonFile const& document) {
  if (!document.has("/offload")) return std::nullopt;
  OffloadRates rates;
  for (auto const& [name, member] : offload_rates) {
    std::string const place = fmt::format("/offload/{}", name);
    rates.*member = document.number(place);
    document.require(rates.*member > 0, place + " must be above 0");
  }
  for (auto const& [name, member] : rates_beside_file)
    rates.*member = document.optional_non_negative(fmt::format("/offload/{}", name)).value_or(0);
  return rates;
}

JsonFile parse(std::string const& path) {
  JsonFile const document =
      JsonFile::read(path, fmt::format("; `trainstone calibrate --out {}` writes a new one", path));
  bool const ours = document.has("/kind") && document.at("/kind") == kind;
  document.require(ours, fmt::format("no machine file: /kind must be \"{}\"", kind));
  document.require_version(schema_version);
  return document;
}

PiecewiseLinear read_pieces(JsonFile const& document, std::string const& place) {
  std::size_t const length = document.length(place);
  document.require(length > 0, place + " must be an array of at least one line");
  std::vector<PiecewiseLinear::Piece> pieces;
  for (std::size_t i = 0; i < length; ++i) {
    std::string const line = fmt::format("{}/{}", place, i);
    PiecewiseLinear::Piece const piece{document.non_negative(line + "/from_bytes"),
                                       document.number(line + "/start_seconds"),
                                       document.non_negative(line + "/seconds_per_byte")};
    bool const in_order = i == 0 ? piece.from_bytes == 0 : piece.from_bytes > pieces.back().from_bytes;
    document.require(in_order, fmt::format("{}/from_bytes is {}, lines must ascend from 0", line, piece.from_bytes));
    double const begin = piece.start + piece.per_byte * piece.from_bytes;
    double const rounding = 1e-12 * (std::abs(piece.start) + piece.per_byte * piece.from_bytes);
    document.require(begin >= -rounding, fmt::format("{} begins at {} s, must not be negative", line, begin));
    pieces.push_back(piece);
  }
  return PiecewiseLinear(std::move(pieces));
}

FittedCurve read_curve(JsonFile const& document, std::string const& place) {
  FittedCurve fitted;
  fitted.curve = read_pieces(document, place + "/pieces");
  fitted.from_bytes = document.non_negative(place + "/from_bytes");
  fitted.to_bytes = document.non_negative(place + "/to_bytes");
  document.require(fitted.from_bytes <= fitted.to_bytes, place + "/to_bytes must not be below from_bytes");
  std::vector<TimeSample> samples;
  for (std::size_t i = 0; i < document.length(place + "/samples"); ++i) {
    std::string const sample = fmt::format("{}/samples/{}", place, i);
    samples.push_back({document.non_negative(sample + "/bytes"), document.number(sample + "/seconds")});
    document.require(samples.back().seconds > 0, sample + "/seconds must be above 0");
  }
  if (!samples.empty()) fitted.errors = errors_of(fitted.curve, samples);
  return fitted;
}

/// Files of before there was a choice do not say.
MessageBuffers read_buffers(JsonFile const& document) {
  std::string const place = "/provenance/buffers";
  if (!document.has(place)) return MessageBuffers::host;
  std::string const name = document.text(place);
  auto const found = std::ranges::find(message_buffers, name, [](MessageBuffers each) { return to_string(each); });
  document.require(found != message_buffers.end(),
                   fmt::format("{} is \"{}\", must be host, staged or device", place, name));
  return *found;
}

MachineProvenance read_provenance(JsonFile const& document) {
  return {.time = document.text("/provenance/time"),
          .host = document.text("/provenance/host"),
          .cpu = document.text("/provenance/cpu"),
          .mpi = document.text("/provenance/mpi"),
          .code = document.text("/provenance/code"),
          .ranks = document.count("/provenance/ranks"),
          .nodes = document.count("/provenance/nodes"),
          .buffers = read_buffers(document)};
}

/// A name that no curve has is a curve that would be missed.
void require_known_curves(JsonFile const& document, std::vector<NamedCurve> const& known) {
  std::vector<std::string_view> names;
  for (NamedCurve const& one : known) names.push_back(one.name);
  document.require(document.at("/curves").is_object(), "/curves must be an object");
  for (auto const& entry : document.at("/curves").items())
    document.require(std::ranges::find(names, entry.key()) != names.end(),
                     fmt::format("no curve \"{}\"; there is: {}", entry.key(), fmt::join(names, ", ")));
}

} // namespace

MachineProvenance describe_here() {
  MachineProvenance here;
  here.time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  char name[256] = {};
  here.host = gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
  here.cpu = describe_machine().cpu;
  return here;
}

std::string machine_json(MeasuredMachine const& machine) {
  MachineProvenance const& from = machine.provenance;
  Json json;
  json["schema_version"] = schema_version;
  json["kind"] = kind;
  json["provenance"] = {
      {"time", from.time}, {"host", from.host},   {"cpu", from.cpu},     {"mpi", from.mpi},
      {"code", from.code}, {"ranks", from.ranks}, {"nodes", from.nodes}, {"buffers", to_string(from.buffers)}};
  json["ports"] = machine.fit.ports;
  json["node_ports"] = machine.fit.node_ports;
  for (Link const link : {Link::intra, Link::inter})
    json["overlap"][std::string(to_string(link))] =
        optional_number(machine.fit.overlap[static_cast<std::size_t>(link)], "the overlap");
  json["node_barrier_seconds"] = optional_number(machine.fit.node_barrier, "the node barrier");
  Json curves = Json::object();
  FittedMachine fit = machine.fit; // named_curves also serves readers, who fill it
  for (NamedCurve const& one : named_curves(fit))
    if (*one.curve) curves[std::string(one.name)] = curve_json(**one.curve, one.name);
  json["curves"] = curves;
  json["peaks"] = {
      {"gemm_flops_per_second", optional_number(machine.gemm_flops_per_second, "the GEMM rate")},
      {"bandwidth_bytes_per_second", optional_number(machine.bandwidth_bytes_per_second, "the bandwidth")}};
  if (machine.parts) json["parts"] = parts_json(*machine.parts);
  for (auto const& [name, member] : offload_rates)
    if (machine.offload) json["offload"][name] = finite(*machine.offload.*member, name);
  for (auto const& [name, member] : rates_beside_file)
    if (machine.offload) json["offload"][name] = finite(*machine.offload.*member, name);
  if (machine.offload && machine.files) json["offload"]["files"] = files_json(*machine.files);
  if (machine.network.kind != Interconnect::Kind::full) json["network"] = network_json(machine.network);
  return json_text(json);
}

void write_machine_file(std::string const& path, MeasuredMachine const& machine) {
  write_file_atomically(path, machine_json(machine));
}

MeasuredMachine read_machine_file(std::string const& path) {
  JsonFile const document = parse(path);
  MeasuredMachine machine;
  machine.provenance = read_provenance(document);
  machine.fit.ports = static_cast<int>(document.count("/ports"));
  if (document.has("/node_ports")) // not in files that are older than ports of nodes
    machine.fit.node_ports = static_cast<int>(document.amount("/node_ports"));
  for (Link const link : {Link::intra, Link::inter}) {
    std::string const place = fmt::format("/overlap/{}", to_string(link));
    std::optional<double> const share = document.optional_non_negative(place);
    document.require(share.value_or(0) <= 1, fmt::format("{} is {}, must be at most 1", place, share.value_or(0)));
    machine.fit.overlap[static_cast<std::size_t>(link)] = share;
  }
  machine.fit.node_barrier = document.optional_non_negative("/node_barrier_seconds");
  std::vector<NamedCurve> const curves = named_curves(machine.fit);
  require_known_curves(document, curves);
  for (NamedCurve const& one : curves) {
    std::string const place = fmt::format("/curves/{}", one.name);
    if (document.has(place)) *one.curve = read_curve(document, place);
  }
  machine.gemm_flops_per_second = document.optional_non_negative("/peaks/gemm_flops_per_second");
  machine.bandwidth_bytes_per_second = document.optional_non_negative("/peaks/bandwidth_bytes_per_second");
  if (document.has("/parts")) machine.parts = read_parts(document);
  machine.offload = read_offload(document);
  machine.files = read_files(document, "/offload/files");
  machine.network = read_network(document);
  return machine;
}

std::string parts_differ(MeasuredParts const& parts, std::map<std::string, std::string> const& conditions) {
  for (auto const& [name, value] : conditions) {
    auto const found = parts.conditions.find(name);
    if (found == parts.conditions.end()) return fmt::format("was calibrated without {}, the deck has {}", name, value);
    if (found->second != value) return fmt::format("has times of {} {}, the deck has {}", name, found->second, value);
  }
  return "";
}

std::string machine_line(std::string const& path, MeasuredMachine const& machine) {
  MachineProvenance const& from = machine.provenance;
  return fmt::format("{}: {} rank{} on {} node{} of {} ({}), {}, buffers {}, {}", path, from.ranks,
                     from.ranks == 1 ? "" : "s", from.nodes, from.nodes == 1 ? "" : "s", from.host, from.cpu, from.mpi,
                     to_string(from.buffers), from.time.substr(0, 10));
}

} // namespace trainstone
