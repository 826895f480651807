#pragma once

#include "core/index.hpp"

namespace trainstone {

/// Elements per block of the squared norm; groups of parameters are padded to a multiple of it.
inline constexpr Index norm_block = 256;

} // namespace trainstone
