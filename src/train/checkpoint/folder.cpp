#include "train/checkpoint/folder.hpp"

#include "core/durable_file.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <optional>
#include <regex>
#include <system_error>
#include <utility>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view temporary_end = ".unfinished", removed_end = ".removed";

/// Step and number of a checkpoint of that name.
std::optional<std::pair<std::int64_t, std::int64_t>> read_name(std::string const& name) {
  static std::regex const pattern(R"(step-(\d{8,18})(\.(\d{1,9}))?)");
  std::smatch found;
  if (!std::regex_match(name, found, pattern)) return std::nullopt;
  return std::pair(std::stoll(found[1]), found[3].matched ? std::stoll(found[3]) : 1);
}

std::string name_of(std::int64_t step, std::int64_t number) {
  return number == 1 ? fmt::format("step-{:08}", step) : fmt::format("step-{:08}.{}", step, number);
}

/// Calls it and names the system's reason in an Error.
template <class Work>
void on_files(Work const& work) {
  try {
    work();
  } catch (fs::filesystem_error const& problem) {
    throw Error(fmt::format("{}: {}", problem.path1().string(), problem.code().message()));
  }
}

std::vector<std::string> names_in(fs::path const& folder) {
  std::vector<std::string> names;
  on_files([&] {
    std::error_code problem;
    fs::directory_iterator const entries(folder, problem);
    if (problem && problem != std::errc::no_such_file_or_directory)
      throw fs::filesystem_error("", folder, problem); // what cannot be read must not be taken for nothing
    for (fs::directory_entry const& entry : entries) names.push_back(entry.path().filename().string());
  });
  return names;
}

void remove_leftovers(fs::path const& folder) {
  for (std::string const& name : names_in(folder))
    if (name.starts_with(".step-") && (name.ends_with(temporary_end) || name.ends_with(removed_end)))
      fs::remove_all(folder / name);
}

} // namespace

std::int64_t checkpoint_step(std::string const& name) { return read_name(name).value().first; }

std::string checkpoint_file_name(int rank) { return fmt::format("rank-{:05}", rank); }

std::vector<std::string> checkpoints_in(fs::path const& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](std::string const& name) { return !read_name(name); });
  std::ranges::sort(names, std::ranges::greater(), [](std::string const& name) { return *read_name(name); });
  return names;
}

UnfinishedCheckpoint::UnfinishedCheckpoint(fs::path folder, std::int64_t step)
    : m_folder(std::move(folder)), m_name(name_of(step, 1)) {
  on_files([&] {
    fs::create_directories(m_folder);
    remove_leftovers(m_folder);
    for (std::int64_t number = 2; fs::exists(m_folder / m_name); ++number) m_name = name_of(step, number);
    m_temporary = fmt::format(".{}{}", m_name, temporary_end);
    fs::create_directory(path());
  });
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  std::error_code ignored;
  if (!m_finished) fs::remove_all(path(), ignored);
}

std::string UnfinishedCheckpoint::finish() {
  make_durable(path());
  on_files([&] { fs::rename(path(), m_folder / m_name); });
  m_finished = true;
  make_durable(m_folder);
  return m_name;
}

std::vector<std::string> remove_older_checkpoints(fs::path const& folder, std::vector<std::string> const& newest_first,
                                                  std::int64_t keep) {
  std::vector<std::string> problems;
  for (auto i = static_cast<std::size_t>(keep); i < newest_first.size(); ++i) {
    try {
      on_files([&] {
        fs::path const removed = folder / fmt::format(".{}{}", newest_first[i], removed_end);
        fs::rename(folder / newest_first[i], removed);
        fs::remove_all(removed);
      });
    } catch (Error const& problem) {
      problems.emplace_back(problem.what());
    }
  }
  return problems;
}

} // namespace trainstone
