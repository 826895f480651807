#include "advice_runs.hpp"

#include "core/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace trainstone {

namespace {

/// A folder of its own, which goes away with all its files.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "trainstone-check-XXXXXX").string();
    TRAINSTONE_REQUIRE(::mkdtemp(name.data()), "cannot make the folder {}: {}", name, std::strerror(errno));
    m_path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(m_path, ignored);
  }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  std::filesystem::path const& path() const { return m_path; }

private:
  std::filesystem::path m_path;
};

std::vector<std::string> words_of(std::string const& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The program's exit code; its output goes to a file.
int start_and_wait(std::vector<std::string> const& command, std::string const& output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::vector<char*> arguments;
  for (std::string const& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  int const problem = ::posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  TRAINSTONE_REQUIRE_INPUT(problem == 0, "--launcher {}: cannot be started: {}", command.front(),
                           std::strerror(problem));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    TRAINSTONE_REQUIRE(errno == EINTR, "cannot wait for {}: {}", command.front(), std::strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string end_of(std::string const& file) {
  constexpr std::size_t longest = 2000;
  std::ifstream stream(file);
  std::string const text{std::istreambuf_iterator<char>(stream), {}};
  return text.size() > longest ? text.substr(text.size() - longest) : text;
}

double measured_step(EstimateOptions const& options, RankedWay const& way, std::filesystem::path const& folder) {
  std::vector<std::string> command = words_of(options.launcher);
  for (std::string const& word :
       {std::string("-n"), std::to_string(way.way.ranks()), std::filesystem::read_symlink("/proc/self/exe").string(),
        std::string("run"), options.common.deck.path, std::string("--out"), folder.string()})
    command.push_back(word);
  for (auto const* keys : {&options.common.deck.overrides, &way.keys})
    for (std::string const& key : *keys) command.insert(command.end(), {"--set", key});
  std::string const output = folder.string() + ".txt";
  int const code = start_and_wait(command, output);
  std::ifstream file(folder / "result.json");
  auto const result = nlohmann::json::parse(file, nullptr, false);
  bool const has_time = code == 0 && !result.is_discarded() && result.contains("stats");
  TRAINSTONE_REQUIRE(has_time, "the run of \"{}\" ended with exit code {} and without a time of a step:\n{}",
                     to_string(way.way), code, end_of(output));
  return result["stats"]["step_seconds"]["median"].get<double>();
}

} // namespace

std::vector<double> measured_steps(EstimateOptions const& options, std::vector<RankedWay> const& ways) {
  TRAINSTONE_REQUIRE_INPUT(!words_of(options.launcher).empty(), "--launcher is empty; must be like mpiexec");
  TemporaryFolder const folder;
  std::vector<double> seconds;
  for (RankedWay const& way : ways) {
    fmt::print("run {}/{}: {}\n", seconds.size() + 1, ways.size(), to_string(way.way));
    std::fflush(stdout);
    seconds.push_back(measured_step(options, way, folder.path() / std::to_string(seconds.size())));
  }
  return seconds;
}

} // namespace trainstone
