#pragma once

// The folder of a training's checkpoints. Owns names, and how a checkpoint comes into being and goes: it has its name
// only when all of it is on the medium, and loses it before anything of it is removed. For one process at a time.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainstone {

/// Name of the file, within a checkpoint's folder, that is written last.
inline constexpr char const* manifest_name = "manifest";

/// "rank-00003"
std::string checkpoint_file_name(int rank);

/// Complete checkpoints by name, those of later steps first, of one step those that were written later. None if there
/// is no such folder; any other problem throws Error. Names: "step-00000100", and "step-00000100.2" where the first one
/// was there already.
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

/// Removes all but the first `keep` of these, given by name, newest first. \return why, for each that could not be: a
/// training does not end for that
std::vector<std::string> remove_older_checkpoints(std::filesystem::path const& folder,
                                                  std::vector<std::string> const& newest_first, std::int64_t keep);

} // namespace trainstone
