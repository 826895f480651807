#include "core/types.hpp"

#include "core/error.hpp"
#include "core/stored.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace trainstone;

namespace {

/// What a 16-bit format says a pattern is worth, by its definition.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  int const exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  int const mantissa = bits & ((1 << mantissa_bits) - 1);
  int const bias = (1 << (exponent_bits - 1)) - 1;
  double const sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

double value_of(bf16 value) { return value_of(value.bits, 8, 7); }
double value_of(fp16 value) { return value_of(value.bits, 5, 10); }

/// All finite non-negative patterns are in ascending order of their values, up to infinity.
template <class T>
constexpr std::uint16_t infinity_bits = 0;
template <>
constexpr std::uint16_t infinity_bits<bf16> = 0x7f80;
template <>
constexpr std::uint16_t infinity_bits<fp16> = 0x7c00;

template <class T>
void check_every_pattern() {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    T const value{static_cast<std::uint16_t>(pattern)};
    double const expected = value_of(value);
    float const wide = to_float(value);
    INFO("pattern " << pattern << " is " << expected << ", to_float gives " << wide);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(wide));
      REQUIRE(std::isnan(value_of(from_float<T>(wide))));
    } else {
      REQUIRE(static_cast<double>(wide) == expected);
      REQUIRE(std::signbit(wide) == std::signbit(expected));
      REQUIRE(from_float<T>(wide).bits == pattern);
    }
  }
}

/// Between neighbours, everything below the middle goes down, everything above goes up, the middle to the even one.
template <class T>
void check_every_gap() {
  for (std::uint32_t low = 0; low < infinity_bits<T>; ++low) {
    double const next =
        low + 1 == infinity_bits<T> // infinity rounds as the number that would follow does
            ? 2 * value_of(T{static_cast<std::uint16_t>(low)}) - value_of(T{static_cast<std::uint16_t>(low - 1)})
            : value_of(T{static_cast<std::uint16_t>(low + 1)});
    float const middle = static_cast<float>((value_of(T{static_cast<std::uint16_t>(low)}) + next) / 2); // exact
    float const below = std::nextafter(middle, 0.0F);
    float const above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    for (std::uint32_t const sign : {0x0000u, 0x8000u}) {
      auto const rounded = [&](float x) { return from_float<T>(sign ? -x : x).bits; };
      INFO("between patterns " << low << " and " << low + 1 << ", middle " << middle);
      REQUIRE(rounded(below) == (sign | low));
      REQUIRE(rounded(middle) == (sign | (low % 2 == 0 ? low : low + 1)));
      REQUIRE(rounded(above) == (sign | (low + 1)));
    }
  }
}

template <class T>
void check_not_a_number() {
  for (std::uint32_t mantissa = 1; mantissa < 0x800000; mantissa = mantissa * 3 + 1) {
    for (std::uint32_t const sign : {0u, 0x80000000u}) {
      T const value = from_float<T>(std::bit_cast<float>(sign | 0x7f800000u | mantissa));
      INFO("mantissa " << mantissa);
      REQUIRE(std::isnan(value_of(value)));
      REQUIRE((value.bits >> 15) == (sign >> 31));
    }
  }
}

} // namespace

TEST_CASE("all 65,536 patterns of bf16 convert exactly, both ways") { check_every_pattern<bf16>(); }
TEST_CASE("all 65,536 patterns of fp16 convert exactly, both ways") { check_every_pattern<fp16>(); }

TEST_CASE("floats between two bf16 round to the nearest, ties to even") { check_every_gap<bf16>(); }
TEST_CASE("floats between two fp16 round to the nearest, ties to even") { check_every_gap<fp16>(); }

TEST_CASE("NaN stays NaN with its sign, infinity stays infinity, too large becomes infinity") {
  check_not_a_number<bf16>();
  check_not_a_number<fp16>();
  float const infinity = std::numeric_limits<float>::infinity();
  CHECK(from_float<bf16>(infinity).bits == 0x7f80);
  CHECK(from_float<bf16>(-infinity).bits == 0xff80);
  CHECK(from_float<bf16>(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(from_float<fp16>(infinity).bits == 0x7c00);
  CHECK(from_float<fp16>(-infinity).bits == 0xfc00);
  CHECK(from_float<fp16>(65519.996F).bits == 0x7bff);
  CHECK(from_float<fp16>(65520.0F).bits == 0x7c00);
  CHECK(from_float<fp16>(std::numeric_limits<float>::max()).bits == 0x7c00);
}

TEST_CASE("values that vanish become zeros with their sign") {
  CHECK(from_float<fp16>(0x1p-25F).bits == 0x0000); // half of the smallest, to even
  CHECK(from_float<fp16>(std::nextafter(0x1p-25F, 1.0F)).bits == 0x0001);
  CHECK(from_float<fp16>(-0x1p-26F).bits == 0x8000);
  CHECK(from_float<bf16>(-std::numeric_limits<float>::denorm_min()).bits == 0x8000);
}

#if defined(__FLT16_MANT_DIG__)
TEST_CASE("fp16 equals the compiler's own type on floats of all exponents") {
  for (std::uint64_t bits = 0; bits < 0x100000000u; bits += 6007) {
    float const x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    std::uint16_t const own = from_float<fp16>(x).bits;
    std::uint16_t const compilers = std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
    if (std::isnan(x)) continue;
    INFO("float " << x);
    REQUIRE(own == compilers);
  }
}
#endif

TEST_CASE("views whose type is known at run time give back what they were made of, and refuse other types") {
  float wide[6] = {};
  bf16 narrow[6] = {};
  ConstStoredVector const vector = Vector<float const>(wide, 6);
  CHECK(vector.storage == Storage::fp32);
  CHECK(vector.as<float>().data() == wide);
  CHECK(vector.as<float>().extent(0) == 6);
  CHECK_THROWS_AS(vector.as<bf16>(), Error);
  StoredVector const writable = Vector<bf16>(narrow, 3);
  ConstStoredVector const readable = writable;
  CHECK((readable.data == narrow && readable.size == 3 && readable.storage == Storage::bf16));
  StoredMatrix const matrix = Matrix<bf16>(narrow, 2, 3);
  CHECK(matrix.storage == Storage::bf16);
  CHECK((matrix.rows == 2 && matrix.columns == 3));
  CHECK(matrix.as<bf16>().data() == narrow);
  CHECK((matrix.as<bf16>().extent(0) == 2 && matrix.as<bf16>().extent(1) == 3));
  CHECK_THROWS_AS(matrix.as<fp16>(), Error);
}

TEST_CASE("every storage type is found by its run-time name") {
  for (Storage const storage : {Storage::fp32, Storage::bf16, Storage::fp16}) {
    CHECK(with_storage(storage, []<class T>() { return storage_of<T>(); }) == storage);
    CHECK(with_storage(storage, []<class T>() { return sizeof(T); }) == bytes_per_value(storage));
  }
  CHECK(to_string(Storage::bf16) == "bf16");
}
