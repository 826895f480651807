#pragma once

// A temporary folder that all ranks see.

#include "comm/execution/control.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>

namespace trainstone::test {

/// The same folder on all ranks, for the first rank's lifetime of the object.
class SharedFolder {
public:
  explicit SharedFolder(Communicator const& world)
      : m_world(&world), m_path(all_gather_texts(world, m_own.path()).front()) {}
  ~SharedFolder() { barrier(*m_world); }
  std::filesystem::path const& path() const { return m_path; }

private:
  Communicator const* m_world;
  TemporaryFolder m_own;
  std::filesystem::path m_path;
};

} // namespace trainstone::test
