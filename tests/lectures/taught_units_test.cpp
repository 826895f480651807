// Units of several blocks against closed forms that are written down here once more.

#include "lectures/taught_units.hpp"

#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>

using namespace trainstone;
using Catch::Matchers::WithinRel;

namespace {

constexpr AlphaBetaGamma constants{1e-6, 1e-10, 0};

// GPT-3 6.7 B: h = 4096, 50304 tokens and 2048 positions; on up to 16 ranks nothing but the final norm is padded
constexpr std::uint64_t h = 4096, layers = 32, block = 12 * h * h + 13 * h, root = (50304 + 2048 + 2) * h;
static_assert(block % (256 * 16) == 0 && 2 * h % (256 * 16) == 0);

/// A message has less than 2^31 elements.
std::uint64_t messages_of(std::uint64_t elements) { return (elements + (1ULL << 31) - 2) / ((1ULL << 31) - 1); }

std::uint64_t units_of(std::uint64_t blocks) { return (layers + blocks - 1) / blocks; }

} // namespace

TEST_CASE("units of k blocks are gathered 2 (ceil(L/k) + 1) times, and send the same bytes", "[lecture][unit]") {
  auto const ranks = static_cast<std::uint64_t>(GENERATE(2, 4, 8, 16));
  TaughtUnits const lecture = compare_units(static_cast<Rank>(ranks), uniform_machine(constants));
  CHECK(lecture.model == "gpt3-6.7b");
  std::vector<std::int64_t> numbers;
  for (UnitRow const& row : lecture.rows) {
    INFO(row.blocks << " blocks on " << ranks);
    numbers.push_back(row.blocks);
    auto const k = static_cast<std::uint64_t>(row.blocks);
    CHECK(row.gathers == 2 * (units_of(k) + 1));
    CHECK(row.exact_gathers == row.gathers);
    std::uint64_t const of_blocks = messages_of(k * block / ranks);
    CHECK(row.messages == 2 * (units_of(k) * of_blocks + 1) * (ranks - 1));
    CHECK(row.bytes == 2 * 2 * (layers * block + root) / ranks * (ranks - 1)); // twice, 2 bytes
    CHECK(row.largest_message == 2 * std::max(root, k * block / of_blocks) / ranks);
    CHECK(row.slot_bytes == 2 * 2 * std::max(root, k * block));
    CHECK(row.fresh_bytes == 2 * (root + std::min<std::uint64_t>(2, units_of(k)) * k * block));
    auto const starts = static_cast<double>(row.gathers * (ranks - 1)); // one for a whole message
    CHECK_THAT(row.start, WithinRel(starts * constants.alpha, 1e-12));
    CHECK_THAT(row.seconds,
               WithinRel(starts * constants.alpha + static_cast<double>(row.bytes) * constants.beta, 1e-12));
  }
  CHECK(numbers == std::vector<std::int64_t>{1, 2, 4, 8, 32});
}

TEST_CASE("units are compared of as many ranks as gathers", "[lecture][unit]") {
  CHECK_THROWS_AS(compare_units(1, MachineModel()), Error);
  CHECK_THROWS_AS(compare_units(65, MachineModel()), Error);
}
