#include "report/report_page.hpp"

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "core/plural.hpp"
#include "report/commbench_section.hpp"
#include "report/held_out_section.hpp"
#include "report/product_section.hpp"
#include "report/result_section.hpp"
#include "report/scaling_section.hpp"
#include "report/stop_section.hpp"
#include "report/sweep_section.hpp"

#include <filesystem>

namespace trainstone {

namespace {

void append(Page& page, Page more) {
  for (Block& block : more) page.push_back(std::move(block));
}

std::string contents(ReportInput const& input) {
  std::string text;
  auto const count = [&](std::size_t number, char const* one, char const* many) {
    if (number > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", number, number == 1 ? one : many);
  };
  count(input.studies.size(), "study", "studies");
  count(input.results.size(), "result", "results");
  count(input.commbench.size(), "measurement of collectives", "measurements of collectives");
  count(input.products.size(), "distributed product", "distributed products");
  count(input.sweeps.size(), "predicted sweep", "predicted sweeps");
  return text;
}

} // namespace

Page report_page(ReportInput const& input, std::string const& version) {
  Page page{Heading{1, "Trainstone report: " + contents(input)}};
  std::string paths;
  for (std::string const& path : input.paths) paths += (paths.empty() ? "" : ", ") + path;
  page.emplace_back(Line{fmt::format("Made by trainstone report {} from {}.", version, paths)});
  if (input.results.size() > 1) page.emplace_back(overview_table(input.results));
  for (ReportedStudy const& reported : input.studies) append(page, study_section(reported, input));
  append(page, scaling_section(input));
  append(page, sweep_section(input.sweeps));
  append(page, held_out_section(input.results));
  append(page, stop_section(input.results));
  for (NamedCommbench const& named : input.commbench) append(page, commbench_section(named));
  for (NamedProduct const& named : input.products) append(page, product_section(named));
  for (NamedResult const& named : input.results) append(page, result_section(named));
  return page;
}

std::vector<std::string> write_report(Page const& page, std::string const& folder) {
  std::filesystem::path const place(folder);
  std::error_code failure;
  std::filesystem::create_directories(place, failure);
  TRAINSTONE_REQUIRE_INPUT(!failure, "--out {}: cannot make this folder ({})", folder, failure.message());
  require_writable(place / "report.md");
  std::vector<std::string> names{"report.md", "index.html"};
  write_file_atomically(place / names[0], page_markdown(page));
  write_file_atomically(place / names[1], page_html(page));
  for (Block const& block : page)
    if (auto const* const figure = std::get_if<Figure>(&block)) {
      names.push_back(figure->name + ".svg");
      write_file_atomically(place / names.back(), figure->svg);
    }
  return names;
}

} // namespace trainstone
