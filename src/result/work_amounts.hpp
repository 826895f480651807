#pragma once

// The amounts of one rank, predicted from the plans or counted, and their form in result files.

#include "parallel/plan/offload_plan.hpp"
#include "result/outcome.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace trainstone {

class JsonFile;

/// The traffic of a rank before the first step, so that all ranks begin alike.
struct StartAmounts {
  std::uint64_t sent_bytes = 0;
  std::uint64_t messages = 0;
};

/// What an update moves of optimizer state that does not lie with the kernels.
struct OffloadAmounts {
  StateMoves moves;
  std::uint64_t file_bytes = 0; ///< of the state in a file
};

/// The amounts of one rank, predicted from the plans or counted. Messages, bytes, FLOPs and launches are per step.
struct WorkAmounts {
  NamedAmounts memory_bytes;
  std::uint64_t sent_bytes = 0;
  std::uint64_t messages = 0;
  std::uint64_t flops = 0;
  std::uint64_t kernel_launches = 0;
  std::optional<StartAmounts> start = {}; ///< of strategies that send the state out; in all
  std::optional<OffloadAmounts> offload = {};
};

nlohmann::ordered_json amounts_json(WorkAmounts const& amounts);
/// \param[in] place  of the amounts in the file: "/predicted" \throws InputError if amounts are missing or do not add
/// up
WorkAmounts read_amounts(JsonFile const& file, std::string const& place);

} // namespace trainstone
