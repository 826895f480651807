#pragma once

// A checkpoint as it lies on the medium: its manifest, whether its files are whole, and any elements of its vectors.
// Promises: a faulty checkpoint throws InputError, and trouble with the file system throws Error; both name the
// checkpoint. Knows neither ranks nor Views.

#include "core/file_reads.hpp"
#include "train/checkpoint/manifest.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trainstone {

/// The manifest's text of a checkpoint. \throws InputError if there is none; Error if it cannot be read
std::string read_manifest_text(std::filesystem::path const& checkpoint);

class StoredCheckpoint {
public:
  /// Reads and checks the manifest.
  explicit StoredCheckpoint(std::filesystem::path path);
  /// As above, with a manifest's text that another rank has read.
  StoredCheckpoint(std::filesystem::path path, std::string const& manifest);

  std::filesystem::path const& path() const { return m_path; }
  CheckpointManifest const& manifest() const { return m_manifest; }

  /// Throws unless it belongs to this training; names the keys that differ.
  void require_identity(TrainingIdentity const& identity) const;
  /// Throws unless size and hash of one of manifest().files are those noted. Reads it once.
  void require_whole(std::size_t file) const;
  /// Elements `wanted` of a vector of a group; out has as many.
  void read(Index vector, Index group, Range wanted, std::span<float> out) const;
  /// What hashing and reading elements have read in this process so far.
  FileReads const& reads() const { return m_reads; }
  /// Throws with the reason.
  [[noreturn]] void refuse(std::string const& reason) const;

private:
  struct Place {
    std::size_t file;
    CheckpointPart part;
    Index first; ///< element of the file with which the part begins
  };

  FileInput const& input(std::size_t file) const;
  void read_from(std::size_t file, Index element, std::span<float> out) const;

  std::filesystem::path m_path;
  CheckpointManifest m_manifest;
  std::vector<std::vector<Place>> m_places;                           ///< by group
  mutable std::map<std::size_t, std::shared_ptr<FileInput>> m_inputs; ///< the files that were read last
  mutable FileReads m_reads;
};

} // namespace trainstone
