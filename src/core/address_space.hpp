#pragma once

// The limit of a process' address space (RLIMIT_AS), as batch systems and `ulimit -v` set it. A process that reaches
// the limit cannot allocate, however much memory the machine has.

#include <cstdint>
#include <optional>

namespace trainstone {

/// Bytes that this process can still map; none: no limit, or the system does not tell what is mapped.
std::optional<std::uint64_t> address_space_left();

} // namespace trainstone
