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
