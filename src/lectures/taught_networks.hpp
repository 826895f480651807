#pragma once

// Ten frameworks and the largest networks that they trained, as taught, beside the least memory that the state of such
// a network takes on each of their devices. Owns the taught rows; bytes are parallel/plan/recipe.hpp's. Pure; renders
// no text (lectures/lecture_networks.hpp).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// How a kind of parallelism divides model state at best.
enum class StateDivision {
  none,    ///< every device has all of it
  evenly,  ///< every device has the same share
  unknown, ///< the kind's name does not say
};

struct NetworkRow {
  std::string framework;
  std::string kind;           ///< as taught
  std::string taught_devices; ///< "64 GPUs"
  std::string taught_size;    ///< parameters, "4.9B"
  std::int64_t devices = 1;   ///< the same as a number
  double parameters = 0;      ///< the same as a number
  StateDivision division = StateDivision::unknown;
  double state = 0;            ///< bytes of all state, mixed16
  std::optional<double> least; ///< bytes on one device; nothing where the division is unknown
};

/// In the taught order.
std::vector<NetworkRow> compare_taught_networks();

} // namespace trainstone
