#include "report/output.hpp"

#include "core/error.hpp"
#include "core/plural.hpp"
#include "core/quantity.hpp"
#include "core/roofline.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <unistd.h>

namespace trainstone {

namespace {

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string joined_names(std::vector<Check> const& checks, bool passed) {
  std::string names;
  for (Check const& check : checks) {
    if (check.made && check.passed == passed) names += ' ' + check.name;
  }
  return names;
}

std::string share_of_bound(KernelRow const& kernel, double gemm_flops_per_second, double bandwidth_bytes_per_second) {
  auto const [least, peak] =
      bound_kernel(kernel.flops, kernel.bytes, gemm_flops_per_second, bandwidth_bytes_per_second);
  double const share = 100 * least / kernel.seconds;
  return share > 0 && std::isfinite(share) ? fmt::format("{:.0f} % {}", share, peak) : "-";
}

} // namespace

std::string mebibytes(std::uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / mebi); }

std::string header_line(RunHeader const& header) {
  std::string const git =
      header.git.empty() ? "git unknown" : fmt::format("git {} {}", header.git, header.dirty ? "dirty" : "clean");
  return fmt::format("trainstone {} {} | Kokkos {} | {} | buffers {} | {} on {}{} | deck {}", header.version, git,
                     header.kokkos, header.mpi, header.buffers, plural(header.ranks, "rank"),
                     plural(header.nodes, header.emulated_nodes ? "emulated node" : "node"),
                     header.emulated_network ? " | emulated network" : "", header.deck);
}

std::string network_line(CommConfig const& comm) {
  auto const link = [](double latency, double bandwidth) {
    std::string text;
    if (latency > 0) text += to_string(Quantity{Dimension::time, latency});
    if (latency > 0 && bandwidth > 0) text += " and ";
    if (bandwidth > 0) text += "their bytes at " + to_string(Quantity{Dimension::rate, bandwidth});
    return text;
  };
  std::string const others = link(comm.emulated_latency, comm.emulated_bandwidth);
  std::string const inside = link(comm.emulated_inside_latency, comm.emulated_inside_bandwidth);
  return fmt::format("note: the network is emulated: a rank sends and receives one message after the other, messages "
                     "take {}{}{}",
                     others.empty() ? "what they take here" : others, inside.empty() ? "" : ", inside a node " + inside,
                     comm.emulated_node_port ? ", and the ranks of a node share one connection to other nodes" : "");
}

std::string memory_line(NamedAmounts const& predicted_bytes) {
  std::string items;
  for (auto const& [name, bytes] : predicted_bytes) {
    items += fmt::format("{}{} {:.1f}", items.empty() ? "" : ", ", name, static_cast<double>(bytes) / mebi);
  }
  return fmt::format("memory per rank   predicted {} ({})", mebibytes(total(predicted_bytes)), items);
}

std::string work_line(std::uint64_t sent_bytes, std::uint64_t messages, std::uint64_t flops, std::string_view unit) {
  return fmt::format("per {} and rank predicted {} sent in {}, {:.1e} FLOP", unit, mebibytes(sent_bytes),
                     plural(static_cast<std::int64_t>(messages), "message"), static_cast<double>(flops));
}

std::string step_line(StepReport const& step, double eta_seconds) {
  auto const percent = [&](double seconds) { return step.seconds > 0 ? 100 * seconds / step.seconds : 0.0; };
  double const tokens_per_second = step.seconds > 0 ? static_cast<double>(step.tokens) / step.seconds : 0.0;
  std::string const held_out =
      step.validation_loss ? fmt::format(" | held-out {:.4f}", *step.validation_loss) : std::string();
  std::string const norm = std::isnan(step.norm) ? "-" : fmt::format("{:.2f}", step.norm); // where it is not computed
  std::string line =
      fmt::format("step {:>5}/{} | loss {:.4f}{} | norm {} | lr {:.1e} | {:.1f} ms | {:.2e} tok/s", step.step,
                  step.steps, step.loss, held_out, norm, step.learning_rate, 1e3 * step.seconds, tokens_per_second);
  if (step.phases_are_timed)
    line += fmt::format(" | gemm {:.0f} % attention {:.0f} % adam {:.0f} % comm {:.0f} % (exposed {:.0f} %)",
                        percent(step.phase_seconds[Phase::gemm]), percent(step.phase_seconds[Phase::attention]),
                        percent(step.phase_seconds[Phase::optimizer]),
                        percent(step.phase_seconds[Phase::communication]), percent(step.exposed_communication_seconds));
  else
    line += fmt::format(" | comm exposed {:.0f} %", percent(step.exposed_communication_seconds));
  if (step.loss_scale) line += fmt::format(" | scale {:g}", *step.loss_scale);
  if (step.skipped) line += " | SKIPPED: gradients overflow, the scale halves";
  if (eta_seconds >= 0) line += " | ETA " + duration(eta_seconds);
  return line;
}

std::string energy_line(EnergyInfo const& energy) {
  std::vector<std::string> parts;
  auto const add = [&](char const* whose, std::optional<double> const& joules) {
    if (joules)
      parts.push_back(fmt::format("{} {:.4g} J ({:.4g} W, {:.3g} J per token)", whose, *joules,
                                  *joules / energy.seconds, *joules / static_cast<double>(energy.tokens)));
  };
  add("hosts", energy.host_joules);
  add("devices", energy.device_joules);
  return fmt::format("energy of {:.2f} s: {}", energy.seconds, fmt::join(parts, ", "));
}

std::string floor_line(double step_seconds, double floor_seconds, double gemm_flops_per_second,
                       double bandwidth_bytes_per_second) {
  return fmt::format(
      "step median {:.1f} ms = {:.2f} x floor {:.1f} ms (gemm {:.1f} GFLOP/s, bandwidth {:.1f} GB/s, all ranks)",
      1e3 * step_seconds, step_seconds / floor_seconds, 1e3 * floor_seconds, gemm_flops_per_second * 1e-9,
      bandwidth_bytes_per_second * 1e-9);
}

std::string kernel_lines(std::vector<KernelRow> const& kernels, double gemm_flops_per_second,
                         double bandwidth_bytes_per_second) {
  double all = 0;
  for (KernelRow const& kernel : kernels) all += kernel.seconds;
  std::string text =
      fmt::format("{:<44} {:>9} {:>10} {:>6} {:>9} {:>9}  {}\n", "kernels of a step, each timed on its own", "launches",
                  "ms", "%", "GB/s", "GFLOP/s", "of bound");
  for (KernelRow const& kernel : kernels) {
    auto const& [label, launches, seconds, flops, bytes] = kernel;
    text += fmt::format("{:<44} {:>9.1f} {:>10.3f} {:>6.1f} {:>9.1f} {:>9.1f}  {}\n", label, launches, 1e3 * seconds,
                        100 * seconds / all, 1e-9 * bytes / seconds, 1e-9 * flops / seconds,
                        share_of_bound(kernel, gemm_flops_per_second, bandwidth_bytes_per_second));
  }
  return text;
}

std::string verification_lines(std::vector<Check> const& checks) {
  auto const made = std::ranges::count_if(checks, &Check::made);
  auto const failed = std::ranges::count_if(checks, &Check::failed);
  std::string text = fmt::format("VERIFICATION {} ({}/{}):{}\n", failed == 0 ? "PASSED" : "FAILED", made - failed, made,
                                 joined_names(checks, failed == 0));
  for (Check const& check : checks) {
    if (check.failed())
      text +=
          fmt::format("  {}: {} (value {:.6e}, limit {:.6e})\n", check.name, check.detail, check.value, check.limit);
    if (!check.made) text += fmt::format("  {}: unknown: {} (value {:g})\n", check.name, check.detail, check.value);
  }
  return text;
}

std::string rate_name(Outcome outcome) {
  switch (outcome) {
  case Outcome::valid: return "FOM";
  case Outcome::unreferenced: return "FOM_UNREFERENCED";
  case Outcome::emulated: return "FOM_EMULATED";
  case Outcome::invalid: return "UNVERIFIED_RATE";
  case Outcome::stopped: return {};
  }
  return {};
}

std::string rate_lines(Outcome outcome, Rate const& tokens_per_second, std::int64_t ranks) {
  if (outcome == Outcome::stopped) return {};
  std::string text = fmt::format("{}: {:.6e} tokens/s  ci95 {:.2e} {:.2e}\n", rate_name(outcome),
                                 tokens_per_second.value, tokens_per_second.low, tokens_per_second.high);
  if (outcome == Outcome::valid) {
    text += fmt::format("FOM_PER_RANK: {:.6e} tokens/s\n", tokens_per_second.value / static_cast<double>(ranks));
  }
  return text;
}

std::string result_line(Outcome outcome, std::string const& class_name, bool is_local, std::string const& json_path) {
  return fmt::format("RESULT: {} class={}{} exit={} json={}", to_string(outcome), class_name,
                     outcome == Outcome::valid && is_local ? " golden=local" : "", exit_code(outcome), json_path);
}

void ProgressPrinter::operator()(StepReport const& step) {
  if (m_first == 0) m_first = step.step;
  std::int64_t const timed = step.step - m_first;
  if (timed > 0) m_seconds += step.seconds;
  double const per_step = timed > 0 ? m_seconds / static_cast<double>(timed) : step.seconds;
  std::string const line = step_line(step, per_step * static_cast<double>(step.steps - step.step));
  std::int64_t const every = (step.steps + 19) / 20;
  bool const keep = step.step == m_first || step.step == step.steps || step.requests.stop || step.step % every == 0 ||
                    step.validation_loss || step.skipped;
  if (m_terminal) {
    m_out << '\r' << line << std::string(m_drawn > line.size() ? m_drawn - line.size() : 0, ' ');
    m_drawn = line.size();
    if (keep) {
      m_out << '\n';
      m_drawn = 0;
    }
    m_out.flush();
  } else if (keep) {
    m_out << line << std::endl; // a pipe is read while the run lasts
  }
}

bool standard_output_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

} // namespace trainstone
