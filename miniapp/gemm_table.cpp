#include "gemm_table.hpp"

#include "comm/execution/buffers.hpp"
#include "core/atomic_file.hpp"
#include "core/json_text.hpp"
#include "core/plural.hpp"
#include "kernels/gemm/library_threads.hpp"
#include "kernels/measurement/gemm_measurement.hpp"
#include "model/work.hpp"
#include "result/result.hpp"
#include "run_result.hpp"
#include "train/plan/run_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

namespace trainstone {

namespace {

using Table = std::map<std::string, std::string>; ///< a method's name by the name of a shape
using Kept = std::map<std::string, Table>;        ///< by what else times depend on

/// Empty if the user has no such folder.
std::filesystem::path table_path() {
  if (char const* const cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::filesystem::path(cache) / "trainstone" / "gemm.json";
  if (char const* const home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "trainstone" / "gemm.json";
  return {};
}

/// What other runs must have alike to take a table over.
std::string conditions(RankContext const& context, std::int64_t neighbours) {
  MachineInfo const machine = describe_machine();
  std::string variables; // threads of libraries, and what instructions they may use
  for (auto const& [name, value] : machine.environment) variables += fmt::format(", {}={}", name, value);
  CodeInfo const code = code_info();
  return fmt::format("trainstone {} git {}, {}, {}, {} on this machine, {} each and {} of libraries{}, {}",
                     code.version, code.git, machine.cpu, current_device().name, plural(neighbours, "rank"),
                     plural(context.exec.concurrency(), "thread"), library_threads(), variables, gemm_versions());
}

/// Nothing where there is no such file, or no such table: then it is measured, and written anew.
Kept read_kept(std::filesystem::path const& path) {
  std::ifstream file(path);
  auto const json = nlohmann::json::parse(file, nullptr, false);
  try {
    return json.is_object() ? json.get<Kept>() : Kept{};
  } catch (nlohmann::json::exception const&) {
    return {};
  }
}

/// How it went, for the note.
std::string keep(std::filesystem::path const& path, Kept const& kept) {
  if (path.empty()) return "kept nowhere: there is neither XDG_CACHE_HOME nor HOME";
  try {
    write_file_in_folder(path, json_text(nlohmann::json(kept)));
  } catch (Error const& error) {
    return fmt::format("kept nowhere: {}", error.what());
  }
  return fmt::format("kept in {}", path.string());
}

Table table_of_first(Communicator const& communicator, Table const& table) {
  bool const first = communicator.rank() == 0;
  std::string const text = all_gather_texts(communicator, first ? json_line(nlohmann::json(table)) : "")[0];
  return nlohmann::json::parse(text).get<Table>();
}

std::set<GemmShape> products(ResolvedRun const& run, Rank rank) {
  RunPlan const plan = plan_run(run, rank);
  return gemm_shapes(run.config.model, plan.shape, plan.storage(), run.config.model_options);
}

/// "onednn 6, blas 9", "cublaslt 6, cublaslt#3 9"
std::string counts(Table const& table, std::set<GemmShape> const& shapes) {
  std::map<std::string, int> uses;
  for (GemmShape const& shape : shapes) ++uses[table.at(to_string(shape))];
  std::vector<std::string> texts;
  for (auto const& [name, count] : uses) texts.push_back(fmt::format("{} {}", name, count));
  return fmt::format("{}", fmt::join(texts, ", "));
}

} // namespace

MeasuredGemms find_fastest_gemms(RankContext& context, std::int64_t neighbours, ResolvedRun const& asked) {
  if (asked.config.kernels.gemm != gemm_measured) return {};
  Communicator const& communicator = context.communicator;
  bool const first = communicator.rank() == 0;
  std::set<GemmShape> shapes;
  collectively(communicator, [&] { shapes = products(asked, communicator.rank()); });

  std::filesystem::path const path = first ? table_path() : "";
  std::string const key = conditions(context, neighbours);
  Kept kept = first ? read_kept(path) : Kept{};
  Table table = table_of_first(communicator, kept[key]);
  std::set<GemmShape> const missing = shapes_to_measure(shapes, table);
  std::string state = fmt::format("as kept in {}", path.string());
  if (!missing.empty()) {
    barrier(communicator);
    collectively(communicator, [&] {
      for (auto const& [shape, name] : measure_fastest_gemms(context.exec, missing)) table[shape] = name;
    });
    table = table_of_first(communicator, table);
    kept[key] = table;
    if (first) state = keep(path, kept);
  }
  return {
      make_gemm_choice(table, shapes),
      fmt::format("gemm measured, {}: {} ({})", plural(std::ssize(shapes), "product"), counts(table, shapes), state)};
}

} // namespace trainstone
