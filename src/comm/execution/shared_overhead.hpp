#pragma once

#include <cstdint>

namespace trainstone {

/// Bytes that a rank's part of a shared segment (comm/execution/shared_segment.hpp) takes beyond its given bytes:
/// flags, mailboxes, and the rest of its last page, or of its last 2 MiB on a device. For plans, which need no Kokkos.
std::uint64_t shared_overhead(std::uint64_t part_bytes);

} // namespace trainstone
