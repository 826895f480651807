#include "train/checkpoint/stored_checkpoint.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/json_text.hpp"
#include "train/checkpoint/folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_inputs = 64; // open at a time: rows of a tensor may lie in as many files as there are slices

/// Runs `work`; errors name the checkpoint.
template <class Work>
auto naming(fs::path const& checkpoint, Work const& work) {
  try {
    return work();
  } catch (InputError const& problem) {
    throw InputError(fmt::format("checkpoint {}: {}", checkpoint.string(), problem.what()));
  } catch (Error const& problem) {
    throw Error(fmt::format("checkpoint {}: {}", checkpoint.string(), problem.what()));
  }
}

/// "data.seed is 1 there and 2 here"; empty if they agree.
std::string differences(TrainingIdentity const& there, TrainingIdentity const& here) {
  std::map<std::string, std::string> wanted;
  std::map<std::string, std::string> const found(there.begin(), there.end());
  for (auto const& [key, value] : here) wanted.emplace(key, utf8_text(value)); // as the manifest has it
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

std::string read_manifest_text(fs::path const& checkpoint) {
  fs::path const path = checkpoint / manifest_name;
  std::error_code problem;
  bool const is_there = fs::exists(path, problem);
  bool const is_file = is_there && fs::is_regular_file(path, problem);
  std::uintmax_t const size = is_file ? fs::file_size(path, problem) : 0;
  if (problem && problem != std::errc::no_such_file_or_directory)
    throw Error(fmt::format("{}: {}", path.string(), problem.message()));
  return naming(checkpoint, [&] {
    TRAINSTONE_REQUIRE_INPUT(is_there && !problem, "there is no {}: it was not written to its end, or lost it",
                             manifest_name);
    TRAINSTONE_REQUIRE_INPUT(is_file, "its {} is no file", manifest_name);
    require_manifest_size(size);
    std::string text(static_cast<std::size_t>(size), '\0');
    FileInput(path).read(0, std::as_writable_bytes(std::span(text)));
    return text;
  });
}

StoredCheckpoint::StoredCheckpoint(fs::path path) : StoredCheckpoint(path, read_manifest_text(path)) {}

StoredCheckpoint::StoredCheckpoint(fs::path path, std::string const& manifest) : m_path(std::move(path)) {
  naming(m_path, [&] { m_manifest = read_manifest(manifest); });
  m_places.resize(m_manifest.groups.size());
  for (std::size_t i = 0; i < m_manifest.files.size(); ++i) {
    Index first = 0;
    for (CheckpointPart const& part : m_manifest.files[i].parts) {
      m_places[static_cast<std::size_t>(part.group)].push_back({i, part, first});
      first += part.elements() * m_manifest.vectors;
    }
  }
}

void StoredCheckpoint::require_identity(TrainingIdentity const& identity) const {
  std::string const other = differences(m_manifest.identity, identity);
  if (!other.empty()) refuse("it belongs to another training: " + other);
}

void StoredCheckpoint::require_whole(std::size_t file) const {
  naming(m_path, [&] {
    auto const& [name, digest, parts] = m_manifest.files[file];
    std::error_code missing;
    auto const size = fs::file_size(m_path / name, missing);
    if (missing && missing != std::errc::no_such_file_or_directory)
      throw Error(fmt::format("{}: {}", name, missing.message()));
    TRAINSTONE_REQUIRE_INPUT(!missing, "{}: {}", name, missing.message());
    TRAINSTONE_REQUIRE_INPUT(size == digest.bytes, "{} has {} bytes instead of {}", name, size, digest.bytes);
    SteadyTime const begin = std::chrono::steady_clock::now();
    TRAINSTONE_REQUIRE_INPUT(digest_of(m_path / name) == digest, "{} is damaged: its hash is another one", name);
    m_reads += {digest.bytes, seconds_since(begin)};
  });
}

void StoredCheckpoint::read(Index vector, Index group, Range wanted, std::span<float> out) const {
  for (Place const& place : m_places[static_cast<std::size_t>(group)]) {
    CheckpointPart const& part = place.part;
    Index const stride = std::max<Index>(1, part.stride), before = wanted.begin - part.range.end;
    Index const first_run = before < 0 ? 0 : before / stride + 1; // that ends behind the begin
    for (Index number = first_run; number < part.runs && part.run(number).begin < wanted.end; ++number) {
      Range const run = part.run(number);
      Range const here{std::max(wanted.begin, run.begin), std::min(wanted.end, run.end)};
      if (here.begin >= here.end) continue;
      Index const in_file = place.first + vector * part.elements() + number * run.size() + here.begin - run.begin;
      read_from(
          place.file, in_file,
          out.subspan(static_cast<std::size_t>(here.begin - wanted.begin), static_cast<std::size_t>(here.size())));
    }
  }
}

void StoredCheckpoint::read_from(std::size_t file, Index element, std::span<float> out) const {
  SteadyTime const begin = std::chrono::steady_clock::now();
  naming(m_path,
         [&] { input(file).read(static_cast<std::uint64_t>(element) * sizeof(float), std::as_writable_bytes(out)); });
  m_reads += {out.size_bytes(), seconds_since(begin)};
}

FileInput const& StoredCheckpoint::input(std::size_t file) const {
  if (auto const open = m_inputs.find(file); open != m_inputs.end()) return *open->second;
  if (m_inputs.size() == most_inputs) m_inputs.clear();
  return *m_inputs.emplace(file, std::make_shared<FileInput>(m_path / m_manifest.files[file].name)).first->second;
}

void StoredCheckpoint::refuse(std::string const& reason) const {
  throw InputError(fmt::format("checkpoint {}: {}", m_path.string(), reason));
}

} // namespace trainstone
