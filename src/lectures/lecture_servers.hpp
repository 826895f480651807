#pragma once

// `estimate --lecture servers`: counts, orders of layers and stragglers as they are taught, beside exact and simulated
// figures. Owns the text only; the figures are lectures/taught_servers.hpp's.

#include "lectures/taught_servers.hpp"

#include <string>

namespace trainstone {

/// The second table: what a worker's link carries when, first in first out and by priority.
std::string transfer_orders_text(TaughtServers const& lecture);
/// All tables, lines with their ends.
std::string lecture_servers_text(TaughtServers const& lecture);

} // namespace trainstone
