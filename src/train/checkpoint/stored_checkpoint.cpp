#include "train/checkpoint/stored_checkpoint.hpp"

#include "core/error.hpp"
#include "train/checkpoint/folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

std::string read_text(fs::path const& path) {
  std::ifstream file(path, std::ios::binary);
  TRAINSTONE_REQUIRE_INPUT(file.good(), "there is no {}: the checkpoint was not written to its end, or lost it",
                           path.filename().string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// "data.seed is 1 there and 2 here"; empty if they agree.
std::string differences(TrainingIdentity const& there, TrainingIdentity const& here) {
  std::map<std::string, std::string> const wanted(here.begin(), here.end()), found(there.begin(), there.end());
  std::vector<std::string> texts;
  for (auto const& [key, value] : wanted)
    if (auto const other = found.find(key); other == found.end() || other->second != value)
      texts.push_back(
          fmt::format("{} is {} there and {} here", key, other == found.end() ? "not given" : other->second, value));
  for (auto const& [key, value] : found)
    if (!wanted.contains(key)) texts.push_back(fmt::format("{} is {} there and not given here", key, value));
  return fmt::format("{}", fmt::join(texts, ", "));
}

} // namespace

StoredCheckpoint::StoredCheckpoint(fs::path path) : m_path(std::move(path)) {
  naming_it([&] { m_manifest = read_manifest(read_text(m_path / manifest_name)); });
  m_places.resize(m_manifest.groups.size());
  for (std::size_t i = 0; i < m_manifest.files.size(); ++i) {
    Index first = 0;
    for (CheckpointPart const& part : m_manifest.files[i].parts) {
      m_places[static_cast<std::size_t>(part.group)].push_back({i, part.range, first});
      first += part.range.size() * m_manifest.vectors;
    }
  }
}

void StoredCheckpoint::require_identity(TrainingIdentity const& identity) const {
  std::string const other = differences(m_manifest.identity, identity);
  if (!other.empty()) refuse("it belongs to another training: " + other);
}

void StoredCheckpoint::require_whole(std::size_t file) const {
  naming_it([&] {
    auto const& [name, digest, parts] = m_manifest.files[file];
    std::error_code missing;
    auto const size = fs::file_size(m_path / name, missing);
    TRAINSTONE_REQUIRE_INPUT(!missing, "{}: {}", name, missing.message());
    TRAINSTONE_REQUIRE_INPUT(size == digest.bytes, "{} has {} bytes instead of {}", name, size, digest.bytes);
    TRAINSTONE_REQUIRE_INPUT(digest_of(m_path / name) == digest, "{} is damaged: its hash is another one", name);
  });
}

void StoredCheckpoint::read(Index vector, Index group, Range wanted, std::span<float> out) const {
  for (Place const& place : m_places[static_cast<std::size_t>(group)]) {
    Range const here{std::max(wanted.begin, place.range.begin), std::min(wanted.end, place.range.end)};
    if (here.end <= here.begin) continue;
    Index const offset = place.first + vector * place.range.size() + here.begin - place.range.begin;
    auto const part =
        out.subspan(static_cast<std::size_t>(here.begin - wanted.begin), static_cast<std::size_t>(here.size()));
    naming_it([&] {
      FileInput(m_path / m_manifest.files[place.file].name)
          .read(static_cast<std::uint64_t>(offset) * sizeof(float), std::as_writable_bytes(part));
    });
  }
}

void StoredCheckpoint::refuse(std::string const& reason) const {
  throw InputError(fmt::format("checkpoint {}: {}", m_path.string(), reason));
}

void StoredCheckpoint::naming_it(std::function<void()> const& work) const {
  try {
    work();
  } catch (Error const& problem) {
    refuse(problem.what());
  }
}

} // namespace trainstone
