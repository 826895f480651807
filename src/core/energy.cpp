#include "core/energy.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <memory>

namespace trainstone {

namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(fs::path const& file) {
  std::uint64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

std::string word_in(fs::path const& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

/// A zone of its own, or memory within a package: cores and the like are part of their package.
bool is_whole(std::string const& name) { return name.starts_with("package") || name == "dram"; }

/// From one reading to the next; nothing if the meter went back without having reached its end.
std::optional<std::uint64_t> counted_between(EnergyMeter const& meter, std::uint64_t before, std::uint64_t now) {
  if (now >= before) return now - before;
  if (before > meter.last) return std::nullopt; // where it has no end, too
  return meter.last - before + now;
}

/// NVML's functions, which have no header here: the driver's library is looked for when the program runs.
class Nvml {
public:
  using Device = void*;

  static std::shared_ptr<Nvml> open() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    auto const start = function<int (*)()>(library, "nvmlInit_v2");
    auto const find = function<FindDevice>(library, "nvmlDeviceGetHandleByPciBusId_v2");
    auto const read = function<ReadEnergy>(library, "nvmlDeviceGetTotalEnergyConsumption");
    if (!start || !find || !read || start() != 0) return nullptr; // stays loaded: unloading drivers is not asked for
    return std::shared_ptr<Nvml>(new Nvml(find, read));
  }

  std::optional<Device> device(std::string const& bus) const {
    Device found = nullptr;
    return m_find(bus.c_str(), &found) == 0 ? std::optional(found) : std::nullopt;
  }
  std::optional<std::uint64_t> microjoules(Device device) const {
    unsigned long long millijoules = 0;
    return m_read(device, &millijoules) == 0 ? std::optional(std::uint64_t{1000} * millijoules) : std::nullopt;
  }

private:
  using FindDevice = int (*)(char const*, Device*);
  using ReadEnergy = int (*)(Device, unsigned long long*);

  Nvml(FindDevice find, ReadEnergy read) : m_find(find), m_read(read) {}

  template <class Function>
  static Function function(void* library, char const* name) {
    return reinterpret_cast<Function>(dlsym(library, name));
  }

  FindDevice m_find;
  ReadEnergy m_read;
};

} // namespace

std::vector<EnergyMeter> host_energy_meters(fs::path const& powercap) {
  std::vector<EnergyMeter> meters;
  std::error_code none;
  for (fs::directory_entry const& zone : fs::directory_iterator(powercap, none)) {
    if (!zone.path().filename().string().starts_with("intel-rapl:")) continue; // AMD's are called so, too
    std::string const name = word_in(zone.path() / "name");
    fs::path const file = zone.path() / "energy_uj";
    if (!is_whole(name) || !number_in(file)) continue;
    meters.push_back(
        {name, [file] { return number_in(file); }, number_in(zone.path() / "max_energy_range_uj").value_or(0)});
  }
  std::ranges::sort(meters, {}, &EnergyMeter::name);
  return meters;
}

std::optional<EnergyMeter> device_energy_meter(std::string const& bus) {
  if (bus.empty()) return std::nullopt;
  std::shared_ptr<Nvml> const library = Nvml::open();
  if (!library) return std::nullopt;
  std::optional<Nvml::Device> const device = library->device(bus);
  if (!device || !library->microjoules(*device)) return std::nullopt;
  return EnergyMeter{bus, [library, device] { return library->microjoules(*device); }, 0};
}

EnergySum::EnergySum(std::vector<EnergyMeter> meters) : m_meters(std::move(meters)), m_complete(!m_meters.empty()) {
  m_before.resize(m_meters.size());
  update();
  m_microjoules = 0;
}

void EnergySum::update() {
  for (std::size_t i = 0; i < m_meters.size(); ++i) {
    std::optional<std::uint64_t> const now = m_meters[i].read();
    std::optional<std::uint64_t> const counted = now ? counted_between(m_meters[i], m_before[i], *now) : std::nullopt;
    m_complete = m_complete && counted;
    m_microjoules += counted.value_or(0);
    m_before[i] = now.value_or(m_before[i]);
  }
}

std::optional<double> EnergySum::joules() const {
  return m_complete ? std::optional(1e-6 * static_cast<double>(m_microjoules)) : std::nullopt;
}

EnergySpan::EnergySpan(std::vector<EnergySum> sums, double interval)
    : m_sums(std::move(sums)), m_interval(interval), m_begin(std::chrono::steady_clock::now()), m_last(m_begin) {}

void EnergySpan::add(std::int64_t amount) {
  m_amount += amount;
  if (seconds_since(m_last) >= m_interval) read();
}

void EnergySpan::finish() {
  if (m_amount != m_amount_read) read();
}

void EnergySpan::read() {
  for (EnergySum& sum : m_sums) sum.update();
  m_last = std::chrono::steady_clock::now();
  m_amount_read = m_amount;
}

} // namespace trainstone
