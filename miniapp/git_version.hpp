#pragma once

// The commit that the program was built from. git_version.cmake writes the values at every build, into a file of their
// own: a new commit compiles that file alone.

namespace trainstone {

extern char const* const git_commit; ///< eight digits; empty outside of a repository
extern bool const git_dirty;         ///< whether sources were changed since

} // namespace trainstone
