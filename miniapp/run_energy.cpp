#include "run_energy.hpp"

#include "comm/execution/control.hpp"

#include <array>
#include <vector>

namespace trainstone {

namespace {

constexpr std::size_t host_sum = 0, device_sum = 1;

/// What this rank adds to the sum of all: joules, and how many meters are missing.
std::array<double, 2> share_of(bool reads, std::optional<EnergySpan> const& span, std::size_t sum) {
  if (!reads) return {0, 0};
  std::optional<double> const joules = span ? span->joules(sum) : std::nullopt;
  return {joules.value_or(0), joules ? 0.0 : 1.0};
}

} // namespace

RunEnergy::RunEnergy(PreparedRun const& run, std::int64_t completed, Rank rank)
    : m_window(run.one_worker ? MeasuredWindow{} : run.window),
      m_reads_host(run.neighbours.front() == rank),
      m_reads_device(run.devices_per_node > 0 && run.sharers.front() == rank),
      m_bus(run.places.at(static_cast<std::size_t>(rank)).device) {
  begin(completed);
}

void RunEnergy::begin(std::int64_t completed) {
  if (m_window.empty() || completed != m_window.first - 1) return;
  std::vector<EnergyMeter> of_device;
  if (m_reads_device)
    if (auto meter = device_energy_meter(m_bus)) of_device.push_back(*std::move(meter));
  std::vector<EnergySum> sums;
  sums.emplace_back(m_reads_host ? host_energy_meters() : std::vector<EnergyMeter>());
  sums.emplace_back(std::move(of_device));
  m_span.emplace(std::move(sums));
}

void RunEnergy::after(StepReport const& step) {
  begin(step.step);
  if (m_window.empty() || step.step < m_window.first || step.step > m_window.last) return;
  m_span->add(step.tokens);
  if (step.step == m_window.last || step.is_last) m_span->finish();
}

std::optional<EnergyInfo> RunEnergy::total(RankContext& context) const {
  auto const [host, no_host] = share_of(m_reads_host, m_span, host_sum);
  auto const [device, no_device] = share_of(m_reads_device, m_span, device_sum);
  std::vector<double> sums{host, no_host, device, no_device, m_reads_device ? 1.0 : 0.0};
  control_all_reduce(context.exec, context.communicator, Operation::sum, sums);
  if (!m_span || m_span->amount() == 0) return std::nullopt;
  EnergyInfo info;
  if (sums[1] == 0) info.host_joules = sums[0];
  if (sums[3] == 0 && sums[4] > 0) info.device_joules = sums[2];
  info.seconds = m_span->seconds();
  info.tokens = m_span->amount();
  return info.host_joules || info.device_joules ? std::optional(info) : std::nullopt;
}

} // namespace trainstone
