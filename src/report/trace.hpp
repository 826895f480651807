#pragma once

// Timelines of all ranks as one file in Chrome's trace format, which Perfetto shows: a process per rank, what it
// computes and what it waits for as lanes of nested events, collectives as events that may overlap. Pure.

#include "core/timeline.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

/// The events of one rank, as JSON objects separated by commas. Times in us since the recording began.
std::string trace_events(std::int64_t rank, std::span<TimelineEvent const> events);

/// The file: a JSON array. \param[in] ranks trace_events of every rank
std::string trace_json(std::span<std::string const> ranks);

} // namespace trainstone
