#include "result/machine_file.hpp"

#include "core/error.hpp"
#include "support/deck_fixture.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <functional>
#include <limits>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;
using Catch::Matchers::StartsWith;

namespace {

/// Figures that no short decimal number is.
FittedCurve fitted(double start, double per_byte) {
  std::vector<TimeSample> samples;
  for (double bytes = 8; bytes < 5e7; bytes *= 3)
    samples.push_back({bytes, start / 3 + per_byte * bytes / 7 + (bytes > 1e5 ? start : 0)});
  return fit_curve(samples);
}

MeasuredMachine sample_machine() {
  MeasuredMachine machine;
  machine.fit.message[0] = fitted(1e-6, 1e-10);
  machine.fit.message[1] = fitted(3e-6, 2e-10);
  machine.fit.one_way = {fitted(7e-7, 2e-10), fitted(2e-6, 3e-10)};
  machine.fit.overlap = {0.0, 2.0 / 3};
  machine.fit.reduce = fitted(1e-7, 3e-10);
  machine.fit.copy = fitted(2e-7, 4e-10);
  machine.fit.combine_to_own = fitted(3e-7, 5e-10);
  machine.fit.combine_to_all = fitted(5e-7, 7e-10);
  machine.fit.fetch = fitted(4e-7, 6e-10);
  machine.fit.push = fitted(6e-7, 8e-10);
  machine.fit.node_barrier = 1e-6 / 3;
  machine.fit.ports = 2;
  machine.fit.node_ports = 3;
  machine.provenance = {"2000-01-01T00:00:00Z", "host \"a\"", "A CPU", "MPICH 5.0.2", "0.1.0 git 1a2b3c4d", 3, 2,
                        MessageBuffers::staged};
  machine.gemm_flops_per_second = 1e11 / 3;
  machine.offload = {1e10 / 3, 2e9 / 3, 1e9 / 3, 1e9 / 7, 1e-9 / 3};
  machine.files = {3, 2, 1, "/tmp", ""};
  MeasuredParts& parts = machine.parts.emplace();
  parts.conditions = {{"channels", "160"}, {"gemm", "auto"}};
  parts.threads = 2;
  parts.layers = 4;
  parts.times.parts = {{PartKind::embed, {1e-5 / 3, 2e-5 / 3, 4e-5 / 3}},
                       {PartKind::mlp, {1e-3 / 7, 2e-3 / 7, 3e-3 / 7}}};
  parts.times.piece_shares = {{{PartKind::mlp, Pass::backward}, {0.2, 0.7, 0.1}},
                              {{PartKind::attention, Pass::recompute, Recompute::full}, {1.0 / 3, 2.0 / 3}}};
  parts.times.load = 1e-6 / 3;
  parts.times.loss = 2e-6 / 3;
  parts.times.agree = 4e-6 / 3;
  parts.times.norm_of_element = 1e-10 / 3;
  parts.times.update_of_element = 2e-10 / 3;
  parts.times.copy_of_element = 4e-10 / 3;
  parts.times.add_of_element = 5e-10 / 3;
  return machine;
}

void write(std::string const& path, std::string const& text) { std::ofstream(path) << text; }

/// What reading says of the sample's file after a change.
std::string error_after(std::function<void(nlohmann::ordered_json&)> const& change) {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/peaks.json";
  auto json = nlohmann::ordered_json::parse(machine_json(sample_machine()));
  change(json);
  write(path, json.dump());
  std::string const error = input_error_of([&] { read_machine_file(path); });
  CHECK_THAT(error, StartsWith(path + ": "));
  return error;
}

} // namespace

TEST_CASE("a machine is read as it was written, to the last bit", "[machine-file]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/peaks.json";
  MeasuredMachine written = sample_machine();
  write_machine_file(path, written);
  CHECK(folder.files() == std::vector<std::string>{"peaks.json"});
  MeasuredMachine read = read_machine_file(path);
  CHECK(read.provenance == written.provenance);
  CHECK(read.fit.model() == written.fit.model());
  CHECK(read.gemm_flops_per_second == written.gemm_flops_per_second);
  CHECK(read.parts == written.parts);
  CHECK(read.offload == written.offload);
  CHECK(read.files == written.files);
  CHECK(!read.bandwidth_bytes_per_second);
  std::vector<NamedCurve> const expected = named_curves(written.fit);
  std::vector<NamedCurve> const found = named_curves(read.fit);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].name);
    REQUIRE(found[i].curve->has_value());
    CHECK((*found[i].curve)->from_bytes == (*expected[i].curve)->from_bytes);
    CHECK((*found[i].curve)->to_bytes == (*expected[i].curve)->to_bytes);
    CHECK((*found[i].curve)->errors.relative == (*expected[i].curve)->errors.relative);
    CHECK((*found[i].curve)->errors.worst == (*expected[i].curve)->errors.worst);
  }
  CHECK(machine_json(read) == machine_json(written));
}

TEST_CASE("what was not measured stays so", "[machine-file]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/peaks.json";
  MeasuredMachine machine = sample_machine();
  machine.fit.message[1].reset();
  machine.fit.overlap[1].reset();
  machine.fit.combine_to_all.reset();
  machine.fit.node_barrier.reset();
  write_machine_file(path, machine);
  MeasuredMachine const read = read_machine_file(path);
  CHECK(!read.fit.message[1]);
  CHECK(!read.fit.overlap[1]);
  CHECK(!read.fit.combine_to_all);
  CHECK(!read.fit.node_barrier);
  CHECK(read.fit.missing_for(Topology::block(4, 2), true) ==
        "messages between nodes, sums in shared memory, barriers of a node");
}

TEST_CASE("a file without samples is a machine too: figures may be invented", "[machine-file]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/invented.json";
  auto json = nlohmann::ordered_json::parse(machine_json(sample_machine()));
  for (auto& curve : json["curves"]) {
    curve.erase("samples");
    curve.erase("median_error");
    curve.erase("worst_error");
  }
  write(path, json.dump());
  CHECK(read_machine_file(path).fit.model() == sample_machine().fit.model());
}

TEST_CASE("a file that does not say what MPI was given is one of host memory", "[machine-file]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/peaks.json";
  auto json = nlohmann::ordered_json::parse(machine_json(sample_machine()));
  CHECK(json["provenance"]["buffers"] == "staged");
  json["provenance"].erase("buffers");
  write(path, json.dump());
  CHECK(read_machine_file(path).provenance.buffers == MessageBuffers::host);
}

TEST_CASE("a figure that is not finite is never written", "[machine-file]") {
  TemporaryFolder const folder;
  MeasuredMachine machine = sample_machine();
  machine.bandwidth_bytes_per_second = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(write_machine_file(folder.path() + "/peaks.json", machine), Error);
  CHECK(folder.files().empty());
}

TEST_CASE("a file that is none is refused by name, with what would be right", "[machine-file]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/peaks.json";
  auto const error = [&] { return input_error_of([&] { read_machine_file(path); }); };
  CHECK_THAT(error(), StartsWith(path + ": cannot be read") && ContainsSubstring("calibrate --out " + path));
  write(path, "");
  CHECK_THAT(error(), StartsWith(path + ": no JSON"));
  write(path, "[]");
  CHECK_THAT(error(), StartsWith(path + ": no machine file: /kind must be \"machine\""));
  write(path, "{\"schema_version\": 1, \"kind\": \"run\"}");
  CHECK_THAT(error(), ContainsSubstring("/kind must be \"machine\""));
  CHECK_THAT(input_error_of([&] { read_machine_file(folder.path()); }), ContainsSubstring("cannot be read"));
}

TEST_CASE("a damaged field is named with what it must be", "[machine-file]") {
  using Json = nlohmann::ordered_json;
  CHECK_THAT(error_after([](Json& j) { j["schema_version"] = 2; }), ContainsSubstring("schema_version 2, must be 1"));
  CHECK_THAT(error_after([](Json& j) { j.erase("provenance"); }), ContainsSubstring("/provenance/time is missing"));
  CHECK_THAT(error_after([](Json& j) { j["provenance"]["ranks"] = 0; }),
             ContainsSubstring("/provenance/ranks is 0, must be an integer above 0"));
  CHECK_THAT(error_after([](Json& j) { j["provenance"]["cpu"] = 3; }), ContainsSubstring("must be a string"));
  CHECK_THAT(error_after([](Json& j) { j["provenance"]["buffers"] = "shared"; }),
             ContainsSubstring("/provenance/buffers is \"shared\", must be host, staged or device"));
  CHECK_THAT(error_after([](Json& j) { j["ports"] = 1.5; }), ContainsSubstring("/ports is 1.5"));
  CHECK_THAT(error_after([](Json& j) { j.erase("curves"); }), ContainsSubstring("/curves is missing"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["latency"] = 1; }),
             ContainsSubstring("no curve \"latency\"; there is: message_intra, message_inter, one_way_intra, "
                               "one_way_inter, reduce, copy, combine_to_own, combine_to_all, fetch, push"));
  CHECK_THAT(error_after([](Json& j) { j["overlap"]["intra"] = 1.5; }),
             ContainsSubstring("/overlap/intra is 1.5, must be at most 1"));
  CHECK_THAT(error_after([](Json& j) { j["node_barrier_seconds"] = -1; }), ContainsSubstring("must not be negative"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["from_bytes"] = "8"; }),
             ContainsSubstring("/curves/copy/from_bytes is \"8\", must be a number"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["to_bytes"] = 1; }),
             ContainsSubstring("/curves/copy/to_bytes must not be below from_bytes"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["pieces"] = Json::array(); }),
             ContainsSubstring("/curves/copy/pieces must be an array of at least one line"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["pieces"] = 7; }), ContainsSubstring("must be an array"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["pieces"][0]["from_bytes"] = 5; }),
             ContainsSubstring("/curves/copy/pieces/0/from_bytes is 5, lines must ascend from 0"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["pieces"][0]["seconds_per_byte"] = nullptr; }),
             ContainsSubstring("/curves/copy/pieces/0/seconds_per_byte is null, must be a number"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["pieces"][0]["start_seconds"] = -1; }),
             ContainsSubstring("/curves/copy/pieces/0 begins at -1 s, must not be negative"));
  CHECK_THAT(error_after([](Json& j) { j["curves"]["copy"]["samples"][2]["seconds"] = 0; }),
             ContainsSubstring("/curves/copy/samples/2/seconds must be above 0"));
}

TEST_CASE("the machine that is described is this one", "[machine-file]") {
  MachineProvenance const here = describe_here();
  CHECK(!here.host.empty());
  CHECK(!here.cpu.empty());
  CHECK_THAT(here.time, Matches(R"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ)"));
  CHECK(machine_line("peaks.json", sample_machine()) ==
        "peaks.json: 3 ranks on 2 nodes of host \"a\" (A CPU), MPICH 5.0.2, buffers staged, 2000-01-01");
}

TEST_CASE("a machine file without times of parts is read", "[machine-file]") {
  TemporaryFolder const folder;
  std::string const path = folder.path() + "/peaks.json";
  MeasuredMachine machine = sample_machine();
  machine.parts.reset();
  write_machine_file(path, machine);
  CHECK_FALSE(read_machine_file(path).parts);
}

TEST_CASE("times of parts that are not there or negative are refused", "[machine-file]") {
  CHECK_THAT(error_after([](auto& json) { json["parts"]["part_seconds"]["mlp"].erase("backward"); }),
             ContainsSubstring("/parts/part_seconds/mlp/backward"));
  CHECK_THAT(error_after([](auto& json) { json["parts"]["part_seconds"]["tail"] = {}; }),
             ContainsSubstring("/parts/part_seconds: no part \"tail\""));
  CHECK_THAT(error_after([](auto& json) { json["parts"]["step_seconds"]["loss"] = -1; }),
             ContainsSubstring("/parts/step_seconds/loss"));
  CHECK_THAT(error_after([](auto& json) { json["parts"]["piece_shares"]["mlp backward"][1] = -1; }),
             ContainsSubstring("/parts/piece_shares/mlp backward/1"));
  CHECK_THAT(error_after([](auto& json) { json["parts"].erase("conditions"); }),
             ContainsSubstring("/parts/conditions"));
}

TEST_CASE("times of parts hold for decks with the same conditions alone", "[machine-file]") {
  MeasuredParts const parts = *sample_machine().parts;
  CHECK(parts_differ(parts, {{"channels", "160"}, {"gemm", "auto"}}).empty());
  CHECK_THAT(parts_differ(parts, {{"channels", "768"}, {"gemm", "auto"}}),
             ContainsSubstring("channels 160") && ContainsSubstring("the deck has 768"));
  CHECK_THAT(parts_differ(parts, {{"dropout", "none"}}), ContainsSubstring("dropout"));
}

TEST_CASE("the network of a machine is what its file says, in every shape", "[machine]") {
  using Kind = Interconnect::Kind;
  for (Interconnect const& network :
       {Interconnect{},
        Interconnect{.kind = Kind::fat_tree, .node_bandwidth = 2e11 / 3, .levels = {{4, 1}, {32, 7.0 / 3}}},
        Interconnect{
            .kind = Kind::dragonfly, .groups = 5, .group_nodes = 16, .global_links = 7, .link_bandwidth = 1e10 / 3},
        Interconnect{.kind = Kind::torus, .link_bandwidth = 1e10 / 7, .dimensions = {4, 3, 5}}}) {
    MeasuredMachine machine = sample_machine();
    machine.network = network;
    TemporaryFolder const folder;
    std::string const path = folder.path() + "/peaks.json";
    write_machine_file(path, machine);
    CHECK(read_machine_file(path).network == network);
  }
}
