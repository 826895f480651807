#include "comm/execution/exported_parts.hpp"

#include "comm/execution/control.hpp"
#include "comm/execution/node_memory.hpp"
#include "core/error.hpp"

namespace trainstone::Impl {

ExportedParts::ExportedParts(MemoryExport const& calls, Communicator const& communicator, std::string const& label,
                             std::uint64_t bytes)
    : m_calls(calls) {
  MemoryExport::Handle mine{};
  try {
    on_all_ranks(communicator, fmt::format("export {} bytes for {}", bytes, label), [&] {
      m_own = m_calls.allocate(bytes);
      if (communicator.node_size() > 1) mine = m_calls.handle(m_own);
    });
    std::vector<MemoryExport::Handle> const handles = all_gather_values(communicator, mine);
    on_all_ranks(communicator, fmt::format("map its neighbours' memory for {}", label),
                 [&] { map_neighbours(communicator, handles); });
  } catch (CollectiveError const&) {
    unmap_neighbours();
    barrier(communicator); // nobody has this rank's part mapped any longer
    if (m_own) m_calls.free(m_own);
    throw;
  }
}

void ExportedParts::map_neighbours(Communicator const& communicator, std::vector<MemoryExport::Handle> const& handles) {
  for (Rank const rank : communicator.topology().neighbours(communicator.rank()))
    m_parts.push_back(rank == communicator.rank() ? m_own : m_calls.map(handles[static_cast<std::size_t>(rank)]));
}

ExportedParts::~ExportedParts() {
  unmap_neighbours();
  m_calls.free(m_own);
}

void ExportedParts::unmap_neighbours() noexcept {
  for (std::byte* const part : m_parts)
    if (part != m_own) m_calls.unmap(part);
  m_parts.clear();
}

} // namespace trainstone::Impl
