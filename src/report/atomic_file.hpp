#pragma once

// Files that readers see whole or not at all.

#include <string>

namespace trainstone {

/// Writes `text` under a temporary name in the same folder, then renames it. Nothing stays behind on failure.
/// \throws Error with the system's reason
void write_file_atomically(std::string const& path, std::string const& text);

/// Proves that a file can be written there, with a temporary one that is removed; folders that are missing may be made
/// later. For paths that are written at the end of a run. \throws InputError
void require_writable(std::string const& path);

} // namespace trainstone
