// Squares of a block as the lanes of a device add them up, played on the host.

#include "kernels/norm_impl.hpp"
#include "support/played_block.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// Values of few digits, whose squares are exact, over many powers of two: only the order of their sum rounds.
template <class T>
std::vector<T> values_of_many_sizes(Index count) {
  std::vector<T> values;
  for (float const value : random_values(count, 4, 64.0, 128.0))
    values.push_back(from_float<T>(std::ldexp(std::floor(value), -static_cast<int>(values.size() * 5 % 13))));
  return values;
}

} // namespace

TEMPLATE_LIST_TEST_CASE("a device's lanes add squares of a block in the order of hosts", "[norm]", StorageTypes) {
  using Blocks = trainstone::Impl::DeviceBlocks<TestType>;
  constexpr int blocks = 32 / Blocks::sharers;
  std::vector<TestType> const values = values_of_many_sizes<TestType>(blocks * norm_block);
  for (bool const aligned : {false, true}) {
    std::vector<float> sums(32);
    PlayedBlock(0, 32, [&](PlayedLane& lane) {
      int const block = lane.thread() / Blocks::sharers;
      sums[static_cast<std::size_t>(lane.thread())] =
          Blocks::sum_of_block(values.data() + block * norm_block, lane.thread() % Blocks::sharers, aligned, lane);
    });
    for (int thread = 0; thread < 32; ++thread) {
      TestType const* const block = values.data() + thread / Blocks::sharers * norm_block;
      INFO("block " << thread / Blocks::sharers << ", lane " << thread);
      CHECK(sums[static_cast<std::size_t>(thread)] == trainstone::Impl::block_sum([&](Index i) {
              float const value = to_float(block[i]);
              return value * value;
            }));
    }
  }
}
