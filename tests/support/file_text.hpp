#pragma once

// What a file holds, for tests that compare it.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace trainstone::test {

/// All bytes of a file; none if it cannot be read.
inline std::string file_text(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace trainstone::test
