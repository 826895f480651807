#include "core/quantity.hpp"

#include "deck/key.hpp"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

using namespace trainstone;

namespace {

std::optional<double> seconds(std::string_view text) {
  std::optional<Quantity> const found = read_quantity(text, Dimension::time);
  return found ? std::optional(found->value) : std::nullopt;
}

std::optional<double> bytes(std::string_view text) {
  std::optional<Quantity> const found = read_quantity(text, Dimension::size);
  return found ? std::optional(found->value) : std::nullopt;
}

std::optional<double> bytes_per_second(std::string_view text) {
  std::optional<Quantity> const found = read_quantity(text, Dimension::rate);
  return found ? std::optional(found->value) : std::nullopt;
}

Key size_key() {
  Key key;
  key.name = "section.key";
  key.type = KeyType::quantity;
  key.dimension = Dimension::size;
  key.range = {.minimum = 1024, .maximum = 3 * 1024. * 1024};
  return key;
}

} // namespace

TEST_CASE("quantities are the nearest double in SI units", "[quantity]") {
  CHECK(seconds("3 ns") == 3e-9);
  CHECK(seconds("50 us") == 5e-5);
  CHECK(seconds("0.7ms") == 7e-4);
  CHECK(seconds("2  s") == 2.0);
  CHECK(seconds("15 min") == 900.0);
  CHECK(seconds("1e3 us") == 1e-3);
  CHECK(seconds("-1 s") == -1.0); // legal as a quantity: keys have ranges
  CHECK(bytes("7 B") == 7.0);
  CHECK(bytes("1.5 KiB") == 1536.0);
  CHECK(bytes("25 MiB") == 26214400.0);
  CHECK(bytes("3 GiB") == 3221225472.0);
  CHECK(bytes("5 kB") == 5000.0);
  CHECK(bytes("5 KB") == 5000.0);
  CHECK(bytes("2 MB") == 2e6);
  CHECK(bytes("0.3 GB") == 3e8);
  CHECK(bytes_per_second("1 GB/s") == 1e9);
  CHECK(bytes_per_second("12.5GiB/s") == 13421772800.0);
}

TEST_CASE("what is no quantity of the asked dimension is refused", "[quantity]") {
  for (char const* text : {"", " ", "50", "us", "50 uss", "50 US", "50 m", "50 H", "50 us ", " 50 us", "5 0 us",
                           "0x5 us", "inf s", "nan s", "1e999 s", "+5 s", "50 us/s", "1 MiB"}) {
    INFO('"' << text << '"');
    CHECK(!seconds(text));
  }
  for (char const* text : {"25", "25 Mib", "25 mb", "25 M", "25 MB/s", "5 s", "1e308 GiB"}) {
    INFO('"' << text << '"');
    CHECK(!bytes(text));
  }
  for (char const* text : {"1 GB", "1 GB/ s", "1 /s", "1 GB/min", "1 Gb/s"}) {
    INFO('"' << text << '"');
    CHECK(!bytes_per_second(text));
  }
}

TEST_CASE("a quantity is printed in the unit with the fewest digits", "[quantity]") {
  CHECK(to_string(Quantity{Dimension::time, 5e-5}) == "50 us");
  CHECK(to_string(Quantity{Dimension::time, 0.1}) == "100 ms");
  CHECK(to_string(Quantity{Dimension::time, 900}) == "15 min");
  CHECK(to_string(Quantity{Dimension::time, 90}) == "90 s");
  CHECK(to_string(Quantity{Dimension::time, 3e-7}) == "300 ns");
  CHECK(to_string(Quantity{Dimension::time, 0}) == "0 s");
  CHECK(to_string(Quantity{Dimension::time, -2}) == "-2 s");
  CHECK(to_string(Quantity{Dimension::size, 26214400}) == "25 MiB");
  CHECK(to_string(Quantity{Dimension::size, 5000}) == "5 kB");
  CHECK(to_string(Quantity{Dimension::size, 0}) == "0 B");
  CHECK(to_string(Quantity{Dimension::rate, 1e9}) == "1 GB/s");
  CHECK(to_string(Quantity{Dimension::rate, 0}) == "0 B/s");
}

TEST_CASE("a printed quantity reads back as the same bits", "[quantity]") {
  // a walk through all exponents from 1e-12 to 1e12 with mantissas of 52 bits, and short decimals
  std::uint64_t state = 1;
  for (Dimension const dimension : {Dimension::time, Dimension::size, Dimension::rate}) {
    for (int i = 0; i < 3000; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      double const mantissa = std::bit_cast<double>((state >> 12) | 0x3ff0000000000000u);
      double const scale = std::pow(10., i % 25 - 12);
      for (double const value : {mantissa * scale, static_cast<double>(i) / 1e9, static_cast<double>(i) * 1e3}) {
        Quantity const quantity{dimension, value};
        std::string const text = to_string(quantity);
        INFO(text << " of " << value);
        std::optional<Quantity> const again = read_quantity(text, dimension);
        REQUIRE(again.has_value());
        REQUIRE(std::bit_cast<std::uint64_t>(again->value) == std::bit_cast<std::uint64_t>(value));
      }
    }
  }
}

TEST_CASE("the dimension tells its units", "[quantity]") {
  CHECK(description(Dimension::time) == "a time with its unit (ns, us, ms, s, min, h)");
  CHECK(description(Dimension::size) == "a size with its unit (B, kB, KiB, MB, MiB, GB, GiB)");
  CHECK(description(Dimension::rate) == "a rate with its unit (B/s, kB/s, KiB/s, MB/s, MiB/s, GB/s, GiB/s)");
  CHECK(si_unit(Dimension::rate) == "bytes/s");
}

TEST_CASE("a quantity out of its key's range is refused with units", "[quantity]") {
  auto const problem = [](double value) {
    return find_problem(size_key(), Quantity{Dimension::size, value}).value_or("none");
  };
  CHECK(problem(1024) == "none");
  CHECK(problem(1000) == "section.key = \"1 kB\" is out of range, must be 1 KiB to 3 MiB");
  CHECK(problem(4 * 1024. * 1024) == "section.key = \"4 MiB\" is out of range, must be 1 KiB to 3 MiB");
  CHECK(problem(2000.5) == "section.key = \"2000.5 B\" is no whole number of bytes");
  CHECK(to_toml(Quantity{Dimension::size, 2048}) == "\"2 KiB\"");
}
