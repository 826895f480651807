#pragma once

// A copy into memory that another core reads next. A processor first brings the lines that it writes into its own
// cache. The reader then takes them from there line by line. Between two parts of a processor that share no cache this
// is several times slower than memory. push_bytes writes so that the lines do not stay with the writer.

#include <cstddef>

namespace trainstone {

/// Copies `bytes` bytes. On x86-64 they pass the writer's caches as far as the processor has stores for it.
/// \param[in] from, to  must not overlap; no alignment is needed
/// Complete on return for this thread, and for other cores as all stores before the next release store are.
/// Source: "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 1, 7.3.9.3 and 10.4.6.2.
void push_bytes(std::byte const* from, std::byte* to, std::size_t bytes);

} // namespace trainstone
