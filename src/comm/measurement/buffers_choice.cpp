#include "comm/measurement/buffers_choice.hpp"

#include "comm/execution/buffers_start.hpp"
#include "core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <string>

namespace trainstone {

namespace {

constexpr BuffersChoice shared{"shared", true, MessageBuffers::host};
constexpr BuffersChoice own{"private", false, MessageBuffers::host};
constexpr BuffersChoice staged{"staged", false, MessageBuffers::staged};
constexpr BuffersChoice device{"device", false, MessageBuffers::device};

std::string refusal_of(std::string_view name, bool kernels_on_host, DeviceFindings const& found) {
  if (name == device.name) return fmt::format("--buffers device: {}", found.messages.finding);
  if (!kernels_on_host && (name == shared.name || name == own.name))
    return fmt::format("--buffers {}: kernels work on a device's memory, which is not the host's", name);
  return fmt::format("--buffers: there is no \"{}\"", name);
}

} // namespace

std::vector<BuffersChoice> buffers_choices(bool kernels_on_host, DeviceFindings const& found) {
  if (kernels_on_host) return {shared, own, staged};
  auto const with_neighbours = [&](BuffersChoice choice) {
    choice.shared_memory = found.neighbours.proved;
    return choice;
  };
  if (found.messages.proved) return {with_neighbours(device), with_neighbours(staged)};
  return {with_neighbours(staged)};
}

BuffersChoice own_buffers(MessageBuffers messages) {
  constexpr std::array all{own, staged, device};
  return *std::ranges::find(all, messages, &BuffersChoice::messages);
}

BuffersChoice choose_measured_buffers(std::string_view name, bool kernels_on_host, DeviceFindings const& found) {
  std::vector<BuffersChoice> const legal = buffers_choices(kernels_on_host, found);
  if (name.empty()) return legal.front();
  auto const choice = std::ranges::find(legal, name, &BuffersChoice::name);
  TRAINSTONE_REQUIRE_INPUT(choice != legal.end(), "{}; there is: {}", refusal_of(name, kernels_on_host, found),
                           fmt::join(legal | std::views::transform(&BuffersChoice::name), ", "));
  return *choice;
}

} // namespace trainstone
