#include "parallel/engine/parameter_shares.hpp"

#include "comm/execution/shared_segment.hpp"
#include "core/aligned_bytes.hpp"
#include "core/clock.hpp"
#include "core/launch.hpp"
#include "core/timeline.hpp"

#include <algorithm>

namespace trainstone {

ParameterShares::ParameterShares(ExecutionSpace const& exec, Communicator const* sharers, MemoryLedger& ledger,
                                 OffloadPlan const& plan, StateLayout const& layout)
    : m_exec(exec),
      m_plan(&plan),
      m_layout(&layout),
      m_memory(plan.parameters == Residence::kernels
                   ? StateMemory(exec, sharers, ledger, MemoryCategory::parameters, "parameters",
                                 layout.types.parameters, layout.parameter_elements())
                   : StateMemory()) {
  if (plan.parameters == Residence::host) allocate_on_host(ledger);
  if (plan.parameters == Residence::file) allocate_file(ledger);
}

void ParameterShares::allocate_on_host(MemoryLedger& ledger) {
  Storage const storage = m_layout->types.parameters;
  Index const elements = m_layout->share_elements();
  std::uint64_t const bytes = memory_footprint(static_cast<std::uint64_t>(elements) * bytes_per_value(storage));
  m_host = PinnedMemory(ledger, "parameters", bytes, MemoryCategory::parameters);
  m_on_host = elements_in(m_host.take(bytes), storage, elements);
  set_to_zero(m_exec, m_on_host);
}

/// A file that was just made reads as zeros.
void ParameterShares::allocate_file(MemoryLedger& ledger) {
  std::uint64_t const bytes = largest_fetch(*m_layout);
  m_fetched = PinnedMemory(ledger, "fetch slots", fetch_slots * bytes + file_alignment);
  std::span<std::byte> rest = from_file_alignment(m_fetched.take(m_fetched.capacity()));
  for (Slot& slot : m_slots) slot.memory = std::exchange(rest, rest.subspan(bytes)).first(bytes);
  m_file.emplace(m_plan->files, parameter_file_bytes(*m_layout));
  m_queue.emplace(*m_file);
}

StoredVector ParameterShares::part(Index begin, Index size) const {
  TRAINSTONE_REQUIRE(!in_file(), "parameters lie in a file, not in memory");
  return m_plan->parameters == Residence::host ? m_on_host.part(begin, size) : m_memory.part(begin, size);
}

void ParameterShares::fetch(Index unit, Index number, std::function<void()> const& meanwhile) {
  if (!in_file()) return;
  Slot& slot = m_slots.at(static_cast<std::size_t>(number));
  for (Patience patience; !slot.copied.is_done(); patience.look_again()) meanwhile();
  slot.unit = unit;
  std::uint64_t const bytes = fetched_bytes(*m_layout, unit);
  if (bytes == 0) return;
  std::uint64_t const place =
      parameter_place(*m_layout, m_layout->units[static_cast<std::size_t>(unit)].first_group, 0);
  slot.ready = m_last = m_queue->read(place, slot.memory.first(bytes));
  if (!m_counts) return;
  m_gathered.read += bytes;
  ++m_gathered.requests;
}

void ParameterShares::wait_fetched(Index number, std::function<void()> const& meanwhile) {
  if (!in_file()) return;
  auto const start = std::chrono::steady_clock::now();
  Span const span(Lane::wait, [] { return "parameters from the file"; });
  FileQueue::Ticket const ready = std::exchange(m_slots.at(static_cast<std::size_t>(number)).ready, 0);
  for (Patience patience; !m_queue->is_done(ready); patience.look_again()) meanwhile();
  m_queue->wait(ready); // for its error
  m_waited += seconds_since(start);
}

ParameterShares::Slot& ParameterShares::slot_of(Index unit) {
  auto const found = std::ranges::find(m_slots, unit, &Slot::unit);
  TRAINSTONE_REQUIRE(found != m_slots.end() && found->ready == 0, "the shares of unit {} were not fetched", unit);
  return *found;
}

StoredVector ParameterShares::taken(Index group) {
  StoredVector values;
  if (in_file()) {
    Index const unit = m_layout->unit_of(group), first = m_layout->units[static_cast<std::size_t>(unit)].first_group;
    std::uint64_t const begin = parameter_place(*m_layout, group, 0) - parameter_place(*m_layout, first, 0);
    values = elements_in(slot_of(unit).memory.subspan(begin), m_layout->types.parameters, share_size(group));
  } else {
    values = share(group);
  }
  if (m_plan->moves_parameters() && m_counts) m_gathered.to_kernels += bytes_of(values).size();
  return values;
}

void ParameterShares::release(Index unit) {
  if (!in_file()) return;
  Slot& slot = slot_of(unit);
  slot.copied.record(m_exec);
  slot.unit = -1;
}

/// For so many elements and what a request has beyond them.
std::span<std::byte> ParameterShares::first_slot(Index elements) const {
  std::size_t const each = bytes_per_value(m_layout->types.parameters);
  return m_slots.front().memory.first(file_footprint(static_cast<std::uint64_t>(elements) * each));
}

StoredVector ParameterShares::share(Index group, Range wanted) {
  if (!in_file())
    return part(m_layout->share_begin(group, m_layout->keeps_shares_of_parameters()) + wanted.begin, wanted.size());
  Storage const storage = m_layout->types.parameters;
  auto const block = static_cast<Index>(file_alignment / bytes_per_value(storage));
  Index const begin = wanted.begin / block * block; // where a request may begin
  wait_for_kernels(m_exec, "trainstone::parallel::parameter_shares: the memory is used again");
  m_slots.front().unit = -1;
  std::span<std::byte> const memory = first_slot(wanted.end - begin);
  if (!wanted.empty()) m_queue->wait(read(group, {begin, wanted.end}, memory));
  return elements_in(memory, storage, wanted.end - begin).part(wanted.begin - begin, wanted.size());
}

void ParameterShares::put_back(Index group) {
  if (!in_file() || share_size(group) == 0) return;
  wait_for_kernels(m_exec, "trainstone::parallel::parameter_shares: they go to a file");
  m_queue->wait(write(group, {0, share_size(group)}, first_slot(share_size(group))));
}

FileQueue::Ticket ParameterShares::read(Index group, Range range, std::span<std::byte> memory) {
  return m_last = m_queue->read(parameter_place(*m_layout, group, range.begin), memory);
}

FileQueue::Ticket ParameterShares::write(Index group, Range range, std::span<std::byte> memory) {
  return m_last = m_queue->write(parameter_place(*m_layout, group, range.begin), memory);
}

void ParameterShares::wait(FileQueue::Ticket ticket) {
  if (ticket == 0) return;
  auto const start = std::chrono::steady_clock::now();
  m_queue->wait(ticket);
  m_waited += seconds_since(start);
}

void ParameterShares::finish() {
  if (in_file()) m_queue->wait(m_last);
}

} // namespace trainstone
