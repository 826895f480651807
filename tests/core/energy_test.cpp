#include "core/energy.hpp"

#include "support/temporary_folder.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <fstream>

using namespace trainstone;
using namespace trainstone::test;

namespace {

namespace fs = std::filesystem;

/// A powercap folder as Linux shows it.
struct Powercap {
  void zone(std::string const& folder, std::string const& name, std::string const& microjoules,
            std::string const& largest = "262143328850") {
    fs::path const path = fs::path(temporary.path()) / folder;
    fs::create_directories(path);
    std::ofstream(path / "name") << name << "\n";
    std::ofstream(path / "max_energy_range_uj") << largest << "\n";
    if (!microjoules.empty()) std::ofstream(path / "energy_uj") << microjoules << "\n";
  }

  TemporaryFolder temporary;
};

} // namespace

TEST_CASE("packages and memory are meters, their parts and other zones are not", "[energy]") {
  Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", "5000000");
  powercap.zone("intel-rapl:1", "package-1", "7000000");
  powercap.zone("intel-rapl:0:0", "core", "1000000");
  powercap.zone("intel-rapl:0:1", "dram", "2000000");
  powercap.zone("intel-rapl:2", "psys", "9000000");
  powercap.zone("intel-rapl-mmio:0", "package-0", "5000000"); // the same package, read in another way
  powercap.zone("intel-rapl:3", "package-3", "");             // that may not be read
  std::vector<std::string> names;
  for (EnergyMeter const& meter : host_energy_meters(powercap.temporary.path())) names.push_back(meter.name);
  CHECK(names == std::vector<std::string>{"dram", "package-0", "package-1"});
  CHECK(host_energy_meters(powercap.temporary.path() + "/none").empty());
}

TEST_CASE("joules add up over meters, also when one begins at 0 again", "[energy]") {
  Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", "900", "1000");
  powercap.zone("intel-rapl:1", "package-1", "50");
  EnergySum sum(host_energy_meters(powercap.temporary.path()));
  REQUIRE(sum.joules().has_value());
  CHECK(*sum.joules() == 0);
  powercap.zone("intel-rapl:0", "package-0", "960", "1000");
  sum.update();
  CHECK(*sum.joules() == Catch::Approx(60e-6));
  powercap.zone("intel-rapl:0", "package-0", "30", "1000");
  powercap.zone("intel-rapl:1", "package-1", "57");
  sum.update();
  CHECK(*sum.joules() == Catch::Approx((60 + 40 + 30 + 7) * 1e-6));
}

TEST_CASE("a meter that goes back without having reached its end has no joules, then and later", "[energy]") {
  std::uint64_t now = 500;
  auto const joules_after = [&](std::uint64_t end, std::uint64_t back_to) {
    now = 500;
    EnergySum sum({{"meter", [&] { return std::optional(now); }, end}});
    now = back_to;
    sum.update();
    std::optional<double> const joules = sum.joules();
    now += 10;
    sum.update();
    CHECK(sum.joules().has_value() == joules.has_value());
    return joules;
  };
  CHECK(!joules_after(0, 499));   // it never begins again
  CHECK(!joules_after(400, 300)); // it was beyond its end
  CHECK(joules_after(1000, 300) == Catch::Approx(800e-6));
  CHECK(joules_after(500, 0) == Catch::Approx(0));
}

TEST_CASE("a span of energy ends with the last piece of work, whenever meters were read before", "[energy]") {
  std::uint64_t counter = 1000;
  int readings = 0;
  auto const span = [&](double interval) {
    std::vector<EnergySum> sums;
    sums.emplace_back(std::vector<EnergyMeter>{{"meter",
                                                [&] {
                                                  ++readings;
                                                  return std::optional(counter);
                                                },
                                                0}});
    sums.emplace_back(std::vector<EnergyMeter>());
    readings = 0;
    return EnergySpan(std::move(sums), interval);
  };
  for (double const interval : {0.0, 1e9}) { // after every piece, or never
    INFO(interval);
    EnergySpan energy = span(interval);
    energy.finish(); // no work, no reading
    CHECK(readings == 0);
    CHECK(energy.amount() == 0);
    for (int piece = 0; piece < 3; ++piece) {
      counter += 7;
      energy.add(5);
    }
    energy.finish();
    CHECK(readings == (interval > 0 ? 1 : 3));
    CHECK(energy.amount() == 15);
    CHECK(energy.joules(0) == Catch::Approx(21e-6));
    CHECK(!energy.joules(1));
    CHECK(energy.seconds() >= 0);
    energy.finish();
    CHECK(energy.joules(0) == Catch::Approx(21e-6));
  }
}

TEST_CASE("there are no joules without meters, nor once one cannot be read", "[energy]") {
  CHECK(!EnergySum({}).joules());
  Powercap powercap;
  powercap.zone("intel-rapl:0", "package-0", "900");
  EnergySum sum(host_energy_meters(powercap.temporary.path()));
  fs::remove(fs::path(powercap.temporary.path()) / "intel-rapl:0/energy_uj");
  sum.update();
  CHECK(!sum.joules());
  CHECK(!device_energy_meter(""));
  CHECK(!device_energy_meter("no such bus"));
}
