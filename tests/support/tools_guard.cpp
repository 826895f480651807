#include "support/tools_guard.hpp"

#include "core/launch.hpp"

#include <Kokkos_Core.hpp>
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace trainstone::test {

namespace {

namespace Tools = Kokkos::Tools::Experimental;

struct Record {
  ExecutionSpace exec;
  CollectiveInstances collectives;
  Tools::EventSet previous_callbacks;
  std::string announced; ///< the label that the launch wrapper is about to start
  std::vector<std::string> violations;
  std::vector<std::string> kernels;
  std::vector<std::string> fences;
};

/// Kokkos Tools take plain functions, so what they write to is global.
std::unique_ptr<Record>& record() {
  static std::unique_ptr<Record> instance;
  return instance;
}

bool has_prefix(std::string_view label) { return label.starts_with("trainstone::"); }

/// What Kokkos emits itself: its labels, and the type names (mangled) of its unlabelled functors.
bool is_of_kokkos(std::string_view label) {
  return label.starts_with("Kokkos") || label.starts_with("HostSpace") || label.starts_with("ViewValue") ||
         (label.starts_with("N") && label.find("Kokkos") <= 4);
}

/// Whether what has this label may happen on another instance than the given one.
bool may_be_elsewhere(std::string_view label) {
  return record()->collectives == CollectiveInstances::their_own && label.starts_with("trainstone::comm::");
}

/// The back end and its device. A device's number has the instance's in it, too.
auto place(std::uint32_t device) {
  auto const identifier = Tools::identifier_from_devid(device);
  return std::pair(identifier.type, identifier.device_id);
}

/// The number of an instance, or Kokkos' number of all together, which no instance has.
std::uint32_t instance(std::uint32_t device) { return Tools::identifier_from_devid(device).instance_id; }
std::uint32_t all_instances() {
  return instance(
      Tools::int_for_synchronization_reason(Tools::SpecialSynchronizationCases::GlobalDeviceSynchronization));
}

void complain(std::string text) { record()->violations.push_back(std::move(text)); }

void check_label(char const* what, std::string_view label) {
  if (!has_prefix(label) && !is_of_kokkos(label)) complain(fmt::format("{} without prefix: '{}'", what, label));
}

void on_kernel(char const* name, std::uint32_t device, std::uint64_t* /*id*/) {
  std::string const announced = std::exchange(record()->announced, {});
  check_label("kernel", name);
  if (is_of_kokkos(name)) return;
  record()->kernels.emplace_back(name);
  if (announced != name) complain(fmt::format("kernel not started by the launch wrapper: '{}'", name));
  if (place(device) != place(Tools::device_id(record()->exec)) && !may_be_elsewhere(name))
    complain(fmt::format("kernel on another device: '{}'", name));
}

void on_launch(char const* label, ExecutionSpace const& exec) {
  record()->announced = label;
  if (exec != record()->exec && !may_be_elsewhere(label))
    complain(fmt::format("kernel on another instance: '{}'", label));
}

void on_region(char const* name) { check_label("region", name); }

void on_allocation(Kokkos_Profiling_SpaceHandle /*space*/, char const* name, void const* /*address*/,
                   std::uint64_t /*bytes*/) {
  check_label("allocation", name);
}

void on_fence(char const* name, std::uint32_t device, std::uint64_t* /*id*/) {
  std::string_view const reason = name;
  if (!is_of_kokkos(reason)) record()->fences.emplace_back(reason);
  if (reason.empty() || reason.find("Unnamed") != reason.npos)
    complain(fmt::format("fence without a reason: '{}'", reason));
  else if (!is_of_kokkos(reason) && instance(device) == all_instances())
    complain(fmt::format("fence of all instances: '{}'", reason));
  else if (!is_of_kokkos(reason) && instance(device) != instance(Tools::device_id(record()->exec)) &&
           !may_be_elsewhere(reason))
    complain(fmt::format("fence of another instance: '{}'", reason));
}

} // namespace

ToolsGuard::ToolsGuard(ExecutionSpace const& exec, CollectiveInstances collectives)
    : m_observer(launch_observer(), on_launch) {
  record() = std::make_unique<Record>(Record{exec, collectives, Tools::get_callbacks(), {}, {}, {}, {}});
  Tools::set_begin_parallel_for_callback(on_kernel);
  Tools::set_begin_parallel_reduce_callback(on_kernel);
  Tools::set_begin_parallel_scan_callback(on_kernel);
  Tools::set_push_region_callback(on_region);
  Tools::set_allocate_data_callback(on_allocation);
  Tools::set_begin_fence_callback(on_fence);
}

ToolsGuard::~ToolsGuard() {
  Tools::set_callbacks(record()->previous_callbacks);
  record().reset();
}

std::vector<std::string> const& ToolsGuard::violations() const { return record()->violations; }
std::vector<std::string> const& ToolsGuard::kernels() const { return record()->kernels; }
std::vector<std::string> const& ToolsGuard::fences() const { return record()->fences; }

} // namespace trainstone::test
