#pragma once

// Configurations of runs for tests of plans.

#include "train/plan/run_config.hpp"

#include <cstdint>

namespace trainstone::test {

/// With products whose kernels do not depend on the machine.
inline RunConfig make_config(GptConfig const& model, std::int64_t sequence, BatchConfig const& batch) {
  RunConfig config;
  config.model = model;
  config.data.sequence = sequence;
  config.batch = batch;
  config.kernels.gemm = "kokkos";
  return config;
}

} // namespace trainstone::test
