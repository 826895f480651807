#pragma once

// What a deck may say about how the work is split over ranks and how parameters are updated. Plain values.

#include <array>
#include <cstdint>
#include <string>

namespace trainstone {

struct ParallelConfig {
  std::string strategy = "ddp";
};

/// Which parameters weight decay shrinks.
enum class DecayScope { matrices, all };

enum class OptimizerType { adamw, adam, sgd };

struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double learning_rate = 3e-4;
  std::array<double, 2> betas{0.9, 0.95};
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  DecayScope decay = DecayScope::matrices;
  double momentum = 0; ///< of sgd; 0 = none
  double clip = 1.0;   ///< largest norm of the gradient; 0 = no clipping

  /// fp32 values that are kept per parameter beside the parameter itself.
  constexpr std::int64_t moments() const { return type != OptimizerType::sgd ? 2 : momentum > 0 ? 1 : 0; }
};

} // namespace trainstone
