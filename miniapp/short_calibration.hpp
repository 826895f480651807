#pragma once

// The machine for predictions of what is measured at once: from a file, or by a short calibration.

#include "comm/measurement/buffers_choice.hpp"
#include "comm/prediction/fitted_machine.hpp"
#include "commands.hpp"

#include <cstdint>
#include <string>

namespace trainstone {

/// Collective over the communicator. \return words for where the machine comes from
/// \param[in] file       of --machine; empty: messages of up to `max_bytes` are measured
/// \param[out] machine
std::string read_or_calibrate(std::string const& file, BuffersChoice const& buffers, std::uint64_t max_bytes,
                              Communicator& communicator, RankContext& context, FittedMachine& machine);

} // namespace trainstone
