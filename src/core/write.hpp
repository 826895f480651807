#pragma once

// What a function does with its output, for kernels, and for plans that need no Kokkos.

namespace trainstone {

/// Whether a function replaces its output or adds to it; each docstring says for which outputs it is honoured.
enum class Write { overwrite, add };

} // namespace trainstone
