#pragma once

// The integer of every extent, offset and count, for headers that do not need Kokkos.

#include <cstdint>

namespace trainstone {

using Index = std::int64_t;

} // namespace trainstone
