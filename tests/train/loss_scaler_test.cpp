#include "train/loss_scaler.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

LossScaler dynamic(double initial, std::int64_t growth_interval) {
  return LossScaler(
      {.loss_scale = LossScaling::dynamic, .initial_loss_scale = initial, .growth_interval = growth_interval});
}

} // namespace

TEST_CASE("without scaling the scale is 1 for ever", "[loss_scaler]") {
  LossScaler scaler(PrecisionConfig{});
  for (bool const overflow : {true, false, true}) {
    scaler.observe(overflow);
    CHECK(scaler.scale() == 1);
    CHECK(scaler.skipped_in_a_row() == 0);
  }
}

TEST_CASE("the scale halves with every overflow and doubles after an interval without", "[loss_scaler]") {
  LossScaler scaler = dynamic(1024, 3);
  scaler.observe(true);
  CHECK(scaler.scale() == 512);
  for (int i = 0; i < 2; ++i) scaler.observe(false);
  scaler.observe(true); // the interval begins anew
  CHECK(scaler.scale() == 256);
  for (int i = 0; i < 2; ++i) scaler.observe(false);
  CHECK(scaler.scale() == 256);
  scaler.observe(false);
  CHECK(scaler.scale() == 512);
  for (int i = 0; i < 3; ++i) scaler.observe(false);
  CHECK(scaler.scale() == 1024);
}

TEST_CASE("skipped steps are counted in a row", "[loss_scaler]") {
  LossScaler scaler = dynamic(1024, 100);
  for (std::int64_t i = 1; i <= 3; ++i) {
    scaler.observe(true);
    CHECK(scaler.skipped_in_a_row() == i);
  }
  scaler.observe(false);
  CHECK(scaler.skipped_in_a_row() == 0);
}

TEST_CASE("the scale stays between 1 and 2^40", "[loss_scaler]") {
  LossScaler small = dynamic(2, 1), large = dynamic(0x1p39, 1);
  for (int i = 0; i < 3; ++i) {
    small.observe(true);
    large.observe(false);
  }
  CHECK(small.scale() == 1);
  CHECK(large.scale() == 0x1p40);
}
