// trainstone report: results as Markdown, as one HTML page, and as pictures.

#include "commands.hpp"

#include "report/report_page.hpp"

#include <fmt/format.h>

namespace trainstone {

int report(ReportOptions const& options) {
  Page const page =
      report_page(read_report_input(options.paths, options.golden, options.machine_file), TRAINSTONE_VERSION);
  for (std::string const& name : write_report(page, options.output_folder))
    fmt::print("{}/{}\n", options.output_folder, name);
  return 0;
}

} // namespace trainstone
