#include "run_energy.hpp"

#include "comm/control.hpp"

#include <chrono>
#include <vector>

namespace trainstone {

namespace {

constexpr double seconds_between_readings = 1; // RAPL begins at 0 again after minutes

double seconds_between(SteadyTime begin, SteadyTime end) { return std::chrono::duration<double>(end - begin).count(); }

/// What this rank adds to the sum of all: joules, and how many meters are missing.
std::array<double, 2> share_of(bool reads, std::optional<EnergySum> const& sum) {
  if (!reads) return {0, 0};
  std::optional<double> const joules = sum ? sum->joules() : std::nullopt;
  return {joules.value_or(0), joules ? 0.0 : 1.0};
}

} // namespace

RunEnergy::RunEnergy(PreparedRun const& run, std::int64_t completed, Rank rank)
    : m_window(run.window),
      m_reads_host(run.neighbours.front() == rank),
      m_reads_device(run.devices_per_node > 0 && run.sharers.front() == rank),
      m_bus(run.places.at(static_cast<std::size_t>(rank)).device) {
  begin(completed);
}

void RunEnergy::begin(std::int64_t completed) {
  if (m_window.empty() || completed != m_window.first - 1) return;
  if (m_reads_host) m_host.emplace(host_energy_meters());
  std::vector<EnergyMeter> of_device;
  if (m_reads_device)
    if (auto meter = device_energy_meter(m_bus)) of_device.push_back(*std::move(meter));
  if (m_reads_device) m_device.emplace(std::move(of_device));
  m_begin = m_last = std::chrono::steady_clock::now();
}

void RunEnergy::read() {
  if (m_host) m_host->update();
  if (m_device) m_device->update();
  m_last = std::chrono::steady_clock::now();
  m_tokens_read = m_tokens;
}

void RunEnergy::after(StepReport const& step) {
  begin(step.step);
  if (m_window.empty() || step.step < m_window.first || step.step > m_window.last) return;
  m_tokens += step.tokens;
  if (step.step == m_window.last || seconds_since(m_last) >= seconds_between_readings) read();
}

std::optional<EnergyInfo> RunEnergy::total(Machinery& machinery) const {
  auto const [host, no_host] = share_of(m_reads_host, m_host);
  auto const [device, no_device] = share_of(m_reads_device, m_device);
  std::vector<double> sums{host, no_host, device, no_device, m_reads_device ? 1.0 : 0.0};
  control_all_reduce(machinery.exec, machinery.communicator, Operation::sum, sums);
  EnergyInfo info;
  if (sums[1] == 0) info.host_joules = sums[0];
  if (sums[3] == 0 && sums[4] > 0) info.device_joules = sums[2];
  info.seconds = seconds_between(m_begin, m_last);
  info.tokens = m_tokens_read;
  bool const is_measured = info.host_joules || info.device_joules;
  return is_measured && info.tokens > 0 ? std::optional(info) : std::nullopt;
}

} // namespace trainstone
