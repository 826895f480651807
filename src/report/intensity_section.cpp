#include "report/intensity_section.hpp"

#include "core/error.hpp"
#include "report/recorded_run.hpp"
#include "train/plan/run_plan.hpp"
#include "train/plan/step_prediction.hpp"

#include <fmt/format.h>

#include <cmath>

namespace trainstone {

namespace {

double ratio(std::uint64_t above, std::uint64_t below) {
  return static_cast<double>(above) / static_cast<double>(below);
}

std::string per_byte(std::uint64_t flops, std::uint64_t bytes) {
  return bytes == 0 ? "none" : fmt::format("{:.4g}", ratio(flops, bytes));
}

std::string percent(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? "none" : fmt::format("{:.2f} %", 100 * ratio(part, all));
}

std::vector<Cell> row_of(IntensityRow const& row, PhaseWork const& sum) {
  auto const& [flops, bytes] = row.work;
  return {row.kernels,
          fmt::format("{}", flops),
          percent(flops, sum.flops),
          fmt::format("{}", bytes),
          percent(bytes, sum.bytes),
          per_byte(flops, bytes)};
}

Table work_table(Intensity const& intensity) {
  Table table{{"kernels of a step of rank 0", "FLOP", "share", "bytes of memory", "share", "FLOP per byte"}, {}};
  PhaseWork const sum = intensity.sum();
  for (IntensityRow const& row : intensity.rows) table.rows.push_back(row_of(row, sum));
  table.rows.push_back(row_of({"all", sum}, sum));
  return table;
}

/// Operations that products do in the time of a byte of memory.
double balance(PeakInfo const& peaks) { return peaks.gemm_flops_per_second / peaks.bandwidth_bytes_per_second; }

Table ratios_table(Intensity const& intensity, PeakInfo const& peaks, std::int64_t ranks) {
  PhaseWork const sum = intensity.sum();
  Table table{{"a step of rank 0", "value"}, {}};
  table.rows.push_back({"FLOP per byte of memory", per_byte(sum.flops, sum.bytes)});
  table.rows.push_back({"FLOP per byte sent", per_byte(sum.flops, intensity.sent_bytes)});
  if (!std::isfinite(balance(peaks))) return table;
  table.rows.push_back({"FLOP of products in the time of a byte of memory, at the peaks of this run",
                        fmt::format("{:.4g}", balance(peaks))});
  double const seconds =
      static_cast<double>(intensity.rows.front().work.flops) * static_cast<double>(ranks) / peaks.gemm_flops_per_second;
  table.rows.push_back({"MB/s at which messages take as long as products at their peak",
                        fmt::format("{:.4g}", 1e-6 * static_cast<double>(intensity.sent_bytes) / seconds)});
  return table;
}

/// What the figures say.
std::string verdict(Intensity const& intensity, PeakInfo const& peaks) {
  PhaseWork const products = intensity.rows.front().work;
  std::string text =
      fmt::format("{} of the operations are matrix products, with {} of the bytes.",
                  percent(products.flops, intensity.sum().flops), percent(products.bytes, intensity.sum().bytes));
  if (!std::isfinite(balance(peaks))) return text;
  bool const is_bound_by_arithmetic = ratio(products.flops, products.bytes) > balance(peaks);
  return text + (is_bound_by_arithmetic
                     ? " They do more operations per byte than this machine does in the time of a byte: arithmetic "
                       "bounds them, not memory."
                     : " They do fewer operations per byte than this machine does in the time of a byte: memory bounds "
                       "them. Wider models and larger micro-batches do more.");
}

} // namespace

PhaseWork Intensity::sum() const {
  PhaseWork all;
  for (IntensityRow const& row : rows) {
    all.flops += row.work.flops;
    all.bytes += row.work.bytes;
  }
  return all;
}

Intensity intensity_of(ResultFile const& file) {
  ResolvedRun const run = recorded_run(file);
  RunPlan const plan = plan_run(run, 0);
  TRAINSTONE_REQUIRE_INPUT(plan.step_flops.total() == file.result.predicted.flops,
                           "{}: another version wrote it, whose steps have {} FLOP; here they have {}", file.path,
                           file.result.predicted.flops, plan.step_flops.total());
  return {{{"matrix products", plan.step_work[Phase::gemm]},
           {"attention's core", plan.step_work[Phase::attention]},
           {"norms, GELU, sums, loss", plan.step_work[Phase::other]},
           {"update", update_work(plan, run.config.optimizer)}},
          file.result.counted.sent_bytes};
}

Page intensity_section(NamedResult const& named) {
  Page page{Heading{3, "Why training suits HPC: operations per byte"}};
  try {
    Result const& result = named.file.result;
    Intensity const intensity = intensity_of(named.file);
    page.emplace_back(Line{verdict(intensity, result.peaks)});
    page.emplace_back(work_table(intensity));
    page.emplace_back(ratios_table(intensity, result.peaks, result.topology.ranks));
    page.emplace_back(Line{
        "Bytes of memory are what kernels declare: each operand is read or written once. Sums of gradients and the "
        "norm are not among them. Attention's core is its products with scores, and softmax."});
  } catch (InputError const& why) {
    page.emplace_back(Line{fmt::format("There are no operations per byte: {}.", why.what())});
  }
  return page;
}

} // namespace trainstone
