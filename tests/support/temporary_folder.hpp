#pragma once

// A folder of its own for a test, removed with all that is in it.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainstone::test {

class TemporaryFolder {
public:
  TemporaryFolder() : m_path((std::filesystem::temp_directory_path() / "trainstone-XXXXXX").string()) {
    if (!mkdtemp(m_path.data())) throw std::runtime_error("cannot make a temporary folder");
  }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(m_path, ignored);
  }

  std::string const& path() const { return m_path; }

  /// Everything in the folder, relative to it, sorted.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(m_path)) {
      names.push_back(std::filesystem::relative(entry.path(), m_path).string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

private:
  std::string m_path;
};

} // namespace trainstone::test
