#pragma once

// The folder of a training's checkpoints. Owns the names, and the way in which checkpoints are made and removed: a
// checkpoint gets its name only when all of it is on the medium, and loses the name before any part is removed. For one
// process at a time.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainstone {

/// Name of the file, within a checkpoint's folder, that is written last.
inline constexpr char const* manifest_name = "manifest";

/// "rank-00003"
std::string checkpoint_file_name(int rank);

/// Names of complete checkpoints. Later steps come first; of one step, checkpoints that were written later come first.
/// Empty if there is no such folder; any other problem throws Error. Names are "step-00000100", and "step-00000100.2"
/// if the first one existed already.
std::vector<std::string> checkpoints_in(std::filesystem::path const& folder);

/// The step that a checkpoint's name tells.
std::int64_t checkpoint_step(std::string const& name);

/// A checkpoint that is being written.
class UnfinishedCheckpoint {
public:
  /// Makes the folder, removes what killed programs left in it, and makes an empty one for the files of `step`.
  /// \throws Error
  UnfinishedCheckpoint(std::filesystem::path folder, std::int64_t step);
  /// Where its files go.
  std::filesystem::path path() const { return m_folder / m_temporary; }
  UnfinishedCheckpoint(UnfinishedCheckpoint const&) = delete;
  UnfinishedCheckpoint& operator=(UnfinishedCheckpoint const&) = delete;
  ~UnfinishedCheckpoint(); ///< removes it, unless it is finished: a full medium gets its room back
  /// Gives it its name, when all files are on the medium. Returns the name.
  std::string finish();

private:
  bool m_finished = false;
  std::filesystem::path m_folder;
  std::string m_temporary, m_name;
};

/// Removes all but the first `keep` of these checkpoints, given by name, newest first. \return the reason for each
/// checkpoint that could not be removed: this does not end a training
std::vector<std::string> remove_older_checkpoints(std::filesystem::path const& folder,
                                                  std::vector<std::string> const& newest_first, std::int64_t keep);

} // namespace trainstone
