#pragma once

// A copy into memory that another core reads next. A processor first brings the lines that it writes into its own
// cache. The reader then takes them from there line by line. Between two parts of a processor that share no cache this
// is several times slower than memory. push_bytes writes so that the lines need not stay with the writer.

#include <cstddef>

namespace trainstone {

/// From so many bytes on, push_bytes writes to memory past all caches, where the processor has stores for it.
inline constexpr std::size_t least_streamed_bytes = std::size_t{8} << 20;

/// Copies `bytes` bytes. Fewer than least_streamed_bytes are copied by the processor's string copy on x86-64. There are
/// processors on which it is slow for some addresses: collectives that push are chosen by measurement only.
/// \param[in] from, to  must not overlap; no alignment is needed
/// Complete on return for this thread, and for other cores as all stores before the next release store are.
/// Source: "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 1, 7.3.9.3 and 10.4.6.2, volume 3,
/// 8.2.4.
void push_bytes(std::byte const* from, std::byte* to, std::size_t bytes);

} // namespace trainstone
