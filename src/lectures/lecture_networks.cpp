#include "lectures/lecture_networks.hpp"

#include "lectures/lecture_models.hpp"

#include <fmt/format.h>

namespace trainstone {

std::string lecture_networks_text(std::vector<NetworkRow> const& rows) {
  std::string text = "1. Frameworks and the largest networks that they trained\n";
  text += fmt::format("  {:<15} {:<12} {:<15} {:>10}  {:>12} {:>14}   {}\n", "framework", "kind", "devices",
                      "parameters", "all state", "least, each", "cards that hold");
  text += fmt::format("  {:<15} {:<12} {:<15} {:>10}  {:>12} {:>14}   {}\n", "", "as taught", "as taught", "as taught",
                      "exact, GB", "exact, GB", "it, GB");
  for (NetworkRow const& row : rows)
    text += fmt::format("  {:<15} {:<12} {:<15} {:>10}  {:>12.2f} {:>14}   {}\n", row.framework, row.kind,
                        row.taught_devices, row.taught_size, row.state / gigabyte,
                        row.least ? fmt::format("{:.2f}", *row.least / gigabyte) : "-",
                        row.least ? cards_text(*row.least, gigabyte) : "-");
  return text +
         "  Note: exact is model state alone, 16 bytes per parameter (mixed16), divided as the kind divides it at "
         "best: "
         "Data by 1,\n  but ZeRO by all devices (stage 3); Inter-Layer and Intra-Layer by all devices, as if the "
         "number "
         "that is taught were the\n  degree. A real run may divide by less, with data parallelism beside it, and keeps "
         "activations, too. Hybrid does not say how\n  it divides. A Data row that no card holds was not trained with "
         "all "
         "state on each card; LBANN's devices are no cards.\n  What the star of 24M* refers to is not known here.\n";
}

} // namespace trainstone
