#include "report/report_input.hpp"

#include "core/error.hpp"
#include "report/report_text.hpp"
#include "result/json_file.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

constexpr char const* advice = "; report takes result.json of `trainstone run`, a folder with one, what `trainstone "
                               "commbench --json`, `matmul --json` or `estimate --sweep --json` wrote, or "
                               "the folder of a study";

std::optional<GoldenCurve> golden_of(std::string const& golden_file, ResultFile const& file) {
  if (golden_file.empty()) return std::nullopt;
  Result const& result = file.result;
  return find_golden_curve(golden_file, result.golden ? result.golden->key : result.golden_key);
}

class Reader {
public:
  Reader(std::string golden_file, std::optional<NamedMachine> machine)
      : m_golden_file(std::move(golden_file)), m_machine(std::move(machine)) {}

  void read(std::string const& path) {
    m_input.paths.push_back(path);
    fs::path const place(path);
    std::error_code ignored;
    if (!fs::is_directory(place, ignored)) return read_file(path);
    if (fs::exists(place / "study.json", ignored)) return read_study_at(path);
    bool const has_result = fs::exists(place / "result.json", ignored);
    TRAINSTONE_REQUIRE_INPUT(has_result, "{}: there is neither result.json nor study.json in this folder{}", path,
                             advice);
    read_file(place / "result.json");
  }

  ReportInput take() { return std::move(m_input); }

private:
  void read_file(std::string const& path) {
    JsonFile const file = JsonFile::read(path, advice);
    std::string const kind = file.has("/kind") ? file.text("/kind") : "";
    fs::path const place = fs::weakly_canonical(path);
    bool const named_by_folder = place.filename() == "result.json";
    std::string const name = named_by_folder ? place.parent_path().filename() : place.stem();
    if (kind == "run") {
      add_result(name, read_result(file), m_golden_file);
    } else if (kind == "commbench") {
      m_input.commbench.push_back({unique(name), read_commbench(file)});
    } else if (kind == "sweep") {
      m_input.sweeps.push_back({unique(name), read_sweep(file)});
    } else if (kind == "matmul") {
      m_input.products.push_back({unique(name), read_product(file)});
    } else {
      file.fail(fmt::format("no result: /kind is {}, must be \"run\", \"commbench\", \"sweep\" or \"matmul\"",
                            kind.empty() ? "missing" : '"' + kind + '"'));
    }
  }

  void read_study_at(std::string const& path) {
    ReportedStudy reported{unique(fs::weakly_canonical(path).filename()), read_study(path), {}};
    std::string golden_file = m_golden_file;
    std::error_code ignored;
    if (golden_file.empty() && fs::exists(golden_path(reported.study.deck), ignored))
      golden_file = golden_path(reported.study.deck);
    for (StudyPoint& point : reported.study.points) {
      if (!point.result) continue;
      reported.result_of_point[point.name] = m_input.results.size();
      add_result(point.name, std::move(*point.result), golden_file);
      point.result.reset();
    }
    m_input.studies.push_back(std::move(reported));
    std::string const commbench = fs::path(path) / "commbench.json";
    if (fs::exists(commbench, ignored)) read_file(commbench);
  }

  void add_result(std::string const& name, ResultFile file, std::string const& golden_file) {
    std::optional<GoldenCurve> golden = golden_of(golden_file, file);
    StepComparison step = compare_step(file, m_machine);
    m_input.results.push_back({unique(name), std::move(file), std::move(golden), std::move(step)});
  }

  std::string unique(std::string const& text) {
    std::string name = file_name_of(text);
    if (name.empty()) name = "result";
    std::string found = name;
    for (int number = 2; !m_names.insert(found).second; ++number) found = fmt::format("{}-{}", name, number);
    return found;
  }

  std::string m_golden_file;
  std::optional<NamedMachine> m_machine;
  ReportInput m_input;
  std::set<std::string> m_names{"scaling", "sweeps"}; // of the plots of all together
};

} // namespace

ReportInput read_report_input(std::vector<std::string> const& paths, std::string const& golden_file,
                              std::string const& machine_file) {
  std::error_code ignored;
  TRAINSTONE_REQUIRE_INPUT(golden_file.empty() || fs::exists(golden_file, ignored), "{}: there are no golden curves",
                           golden_file);
  std::optional<NamedMachine> machine;
  if (!machine_file.empty()) machine = NamedMachine{machine_file, read_machine_file(machine_file)};
  Reader reader(golden_file, std::move(machine));
  for (std::string const& path : paths) reader.read(path);
  return reader.take();
}

} // namespace trainstone
