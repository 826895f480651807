// The local moves of an Execution: kernels on its own buffers and on those of its neighbours, and where these lie.

#include "comm/execution/execution.hpp"
#include "comm/execution/local_moves.hpp"
#include "comm/execution/reduce.hpp"
#include "core/types.hpp"

#include <algorithm>
#include <array>
#include <memory_resource>
#include <vector>

namespace trainstone {

namespace {

/// In place of an offset: of a buffer at which nobody else may look.
constexpr std::uint64_t not_shared = ~std::uint64_t{0};

} // namespace

void Execution::enqueue_moves(std::size_t first, std::size_t last) {
  Round const& round = m_schedule.rounds[m_round];
  for (std::size_t i = first; i < last; ++i) {
    if (!round[i].is_local()) continue;
    switch (m_type) {
    case ElementType::float32: enqueue_move<float>(round[i]); break;
    case ElementType::float64: enqueue_move<double>(round[i]); break;
    case ElementType::bfloat16: enqueue_move<bf16>(round[i]); break;
    case ElementType::float16: enqueue_move<fp16>(round[i]); break;
    case ElementType::int32: enqueue_move<std::int32_t>(round[i]); break;
    case ElementType::int64: enqueue_move<std::int64_t>(round[i]); break;
    }
    m_kernels_enqueued = !m_options.on_host;
  }
}

Worker Execution::worker() const { return m_options.on_host ? Worker::calling_thread : Worker::kernels; }

template <class T>
void Execution::enqueue_move(Move const& move) {
  for (Index done = 0, length = 0; done < move.size(); done += length) {
    length = elements_of_kernel(move, m_options.pieces, done);
    enqueue_part<T>(move, {done, done + length});
  }
  Traffic& traffic = comm_counters().at(m_options.purpose, m_schedule.collective, m_schedule.algorithm);
  traffic.shared_bytes += shared_bytes(move, m_schedule, sizeof(T));
  if (move.copies()) return;
  Index const additions = move.action == Action::combine ? combined_parts(move, m_schedule) - 1 : 1;
  traffic.reduced += static_cast<std::uint64_t>(move.size() * additions);
}

/// Of a local move: `part` of its elements, which lie in one run.
template <class T>
void Execution::enqueue_part(Move const& move, Range const& part) {
  if (move.action == Action::combine) return enqueue_combine<T>(move, part);
  auto const size = static_cast<std::size_t>(part.size());
  Vector<T const> const from(reinterpret_cast<T const*>(address(move.from, part.begin)), size);
  Vector<T> const to(reinterpret_cast<T*>(address(move.to, part.begin)), size);
  if (move.action == Action::push) return push<T>(m_exec, from, to, worker());
  if (move.action == Action::copy) return copy<T>(m_exec, from, to, worker());
  reduce<T>(m_exec, m_operation, from, to, worker());
}

template <class T>
void Execution::enqueue_combine(Move const& move, Range const& part) {
  std::array<std::byte, 1024> room; // of few ranks: nothing is allocated
  std::pmr::monotonic_buffer_resource addresses(room.data(), room.size());
  std::pmr::vector<T const*> parts(&addresses);
  std::pmr::vector<T*> targets(&addresses);
  parts.reserve(static_cast<std::size_t>(combined_parts(move, m_schedule)));
  targets.reserve(move.to.owner == every_neighbour ? m_schedule.neighbours.size() : 1);
  if (move.from.owner == every_neighbour) {
    for (std::size_t i = 0; i < m_schedule.neighbours.size(); ++i)
      parts.push_back(reinterpret_cast<T const*>(neighbour_address(move.from, part.begin, i)));
  } else {
    for (Index i = 0; i < combined_parts(move, m_schedule); ++i)
      parts.push_back(reinterpret_cast<T const*>(address(move.from, i * move.size() + part.begin)));
  }
  if (move.to.owner == every_neighbour) {
    for (std::size_t i = 0; i < m_schedule.neighbours.size(); ++i)
      targets.push_back(reinterpret_cast<T*>(neighbour_address(move.to, part.begin, i)));
  } else {
    targets.push_back(reinterpret_cast<T*>(address(move.to, part.begin)));
  }
  combine<T>(m_exec, m_operation, parts, part.size(), targets, worker());
}

/// Of an element of a slice, counted from the slice's begin.
std::byte* Execution::address(Slice const& slice, Index element) const {
  if (slice.owner >= 0) {
    auto const place = std::ranges::lower_bound(m_schedule.neighbours, slice.owner) - m_schedule.neighbours.begin();
    return neighbour_address(slice, element, static_cast<std::size_t>(place));
  }
  if (slice.buffer == BufferId::mailbox) {
    TRAINSTONE_REQUIRE(m_schedule.needs_shared_memory(), "a mailbox of a schedule without neighbours: {} {}",
                       to_string(m_schedule.collective), to_string(m_schedule.algorithm));
    return neighbour_address(slice, element, m_options.segment->me());
  }
  bool const is_data = slice.buffer == BufferId::data;
  Memory const& memory = is_data ? m_data : m_scratch;
  Index const first = slice.range.begin + element, limit = is_data ? m_schedule.elements : m_scratch.elements;
  TRAINSTONE_REQUIRE(first >= 0 && slice.range.end <= limit, "{} [{}, {}) is outside of {} elements",
                     to_string(slice.buffer), slice.range.begin, slice.range.end, limit);
  Index const place = is_data && !slice.range.empty() ? m_options.pieces.place(first) : first;
  return memory.data + static_cast<std::size_t>(place) * size_of(m_type);
}

/// In the part of the node's segment that belongs to the neighbour, where it said at its first barrier.
std::byte* Execution::neighbour_address(Slice const& slice, Index element, std::size_t neighbour) const {
  SharedSegment const& segment = *m_options.segment;
  bool const is_data = slice.buffer == BufferId::data;
  Index const first = slice.range.begin + element;
  auto const begin = static_cast<std::uint64_t>(is_data ? m_options.pieces.place(first) : first) * size_of(m_type);
  if (slice.buffer == BufferId::mailbox) {
    TRAINSTONE_REQUIRE(slice.range.begin >= 0 && slice.range.end <= mailbox_elements, "mailbox [{}, {}) of {} elements",
                       slice.range.begin, slice.range.end, mailbox_elements);
    return segment.mailbox(m_ticket, neighbour) + begin;
  }
  std::uint64_t const buffer =
      is_data ? segment.data_offset(m_ticket, neighbour) : segment.scratch_offset(m_ticket, neighbour);
  TRAINSTONE_REQUIRE(buffer != not_shared, "{} of rank {} lies outside of the node's shared memory",
                     to_string(slice.buffer), m_schedule.neighbours[neighbour]);
  Index const last = is_data ? m_options.pieces.place(slice.range.end - 1) : slice.range.end - 1;
  std::uint64_t const end = buffer + static_cast<std::uint64_t>(last + 1) * size_of(m_type);
  TRAINSTONE_REQUIRE(end <= segment.part_bytes(neighbour), "{} [{}, {}) ends behind the neighbour's {} bytes",
                     to_string(slice.buffer), slice.range.begin, slice.range.end, segment.part_bytes(neighbour));
  return segment.part(neighbour) + buffer + begin;
}

/// Tells neighbours where the buffers lie.
void Execution::arrive() {
  SharedSegment& segment = *m_options.segment;
  std::byte const* const begin = segment.bytes().data();
  auto const offset = [&](Memory const& memory) {
    auto const bytes = static_cast<std::uint64_t>(memory.elements) * size_of(m_type);
    bool const shared = memory.elements > 0 && segment.contains(memory.data, bytes);
    return shared ? static_cast<std::uint64_t>(memory.data - begin) : not_shared;
  };
  segment.arrive(m_ticket, m_barriers, offset(m_data), offset(m_scratch));
}

} // namespace trainstone
