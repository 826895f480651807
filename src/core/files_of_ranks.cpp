#include "core/files_of_ranks.hpp"

#include <fmt/format.h>

namespace trainstone {

namespace {

/// One of two words, or both with their shares.
std::string split(std::int64_t some, std::int64_t all, char const* what, char const* otherwise) {
  if (some == all) return what;
  if (some == 0) return otherwise;
  return fmt::format("{} on {} of {} ranks, {} on the others", what, some, all, otherwise);
}

} // namespace

std::string to_string(FilesOfRanks const& files) {
  std::string text =
      fmt::format("in {} {}, {}", files.folder, split(files.rings, files.ranks, "by io_uring", "by pread and pwrite"),
                  split(files.direct, files.ranks, "past the system's cache", "by the system's cache"));
  if (!files.why_no_ring.empty()) text += fmt::format(" (no io_uring: {})", files.why_no_ring);
  return text;
}

} // namespace trainstone
