#include "parallel/engine/optimizer_state.hpp"

#include "core/aligned_bytes.hpp"
#include "core/clock.hpp"
#include "core/launch.hpp"
#include "core/timeline.hpp"
#include "parallel/engine/joint_shares.hpp"
#include "parallel/engine/state_memory.hpp"

#include <utility>

namespace trainstone {

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// What a file request has of so many elements.
std::uint64_t request_bytes(Index elements) {
  return file_footprint(static_cast<std::uint64_t>(elements) * sizeof(float));
}

/// Whether all vectors of `next` lie behind those of `chunk`, which gets them.
bool append(OptimizerState::Chunk& chunk, OptimizerState::Chunk const& next) {
  if (!adjoin(chunk.gradient, next.gradient) || !adjoin(chunk.parameters, next.parameters) ||
      !adjoin(chunk.gradient_copy, next.gradient_copy))
    return false;
  for (std::size_t i = 0; i < chunk.vectors.size(); ++i)
    if (!adjoin(chunk.vectors[i], next.vectors[i])) return false;
  auto const extend = [](Vector<float>& vector, Vector<float> const& by) {
    vector = Vector<float>(vector.data(), vector.extent(0) + by.extent(0));
  };
  chunk.parts.insert(chunk.parts.end(), next.parts.begin(), next.parts.end());
  chunk.gradient.size += next.gradient.size;
  chunk.parameters.size += next.parameters.size;
  extend(chunk.gradient_copy, next.gradient_copy);
  for (std::size_t i = 0; i < chunk.vectors.size(); ++i) extend(chunk.vectors[i], next.vectors[i]);
  return true;
}

std::span<std::byte> aligned_part(std::span<std::byte>& rest, std::uint64_t bytes) {
  return std::exchange(rest, rest.subspan(bytes)).first(bytes);
}

} // namespace

OptimizerState::OptimizerState(ExecutionSpace const& exec, MemoryLedger& ledger, OffloadPlan const& plan,
                               StateLayout const& layout, Storage gradients)
    : m_exec(exec), m_plan(&plan), m_layout(&layout), m_gradients(gradients) {
  allocate(ledger);
  if (plan.optimizer == Residence::file) {
    m_file.emplace(plan.files, file_bytes(layout));
    m_queue.emplace(*m_file);
  }
  for (Index vector = 0; vector < optimizer_vectors(layout); ++vector) clear(vector);
}

void OptimizerState::allocate(MemoryLedger& ledger) {
  Index const elements = m_layout->share_elements(), vectors = optimizer_vectors(*m_layout);
  bool const copies = m_layout->types.gradient_copy;
  std::uint64_t const vector_bytes = memory_footprint(static_cast<std::uint64_t>(elements) * sizeof(float));
  if (!m_plan->moves_optimizer()) {
    Index const all = vectors + Index{copies};
    m_memory =
        Allocation(ledger, MemoryCategory::optimizer, "optimizer", static_cast<std::uint64_t>(all) * vector_bytes);
    Arena arena(m_memory.bytes());
    for (Index vector = 0; vector < vectors; ++vector)
      m_vectors.push_back(arena.vector<float>("optimizer state", elements));
    if (copies) m_gradient_copy = arena.vector<float>("gradients in fp32", elements);
  }
  if (m_plan->optimizer == Residence::host) {
    m_host = PinnedMemory(ledger, "optimizer", static_cast<std::uint64_t>(vectors) * vector_bytes,
                          MemoryCategory::optimizer);
    for (Index vector = 0; vector < vectors; ++vector)
      m_vectors.push_back(elements_in(m_host.take(vector_bytes), Storage::fp32, elements).as<float>());
  }
  if (!m_plan->has_chunks()) return;
  ChunkMemory const memory = chunk_memory(*m_plan, *m_layout, m_gradients);
  m_moving = PinnedMemory(ledger, "offload chunks", memory.total());
  std::span<std::byte> rest = from_file_alignment(m_moving.take(m_moving.capacity()));
  for (Slot& slot : m_slots) {
    slot.vectors = aligned_part(rest, memory.vectors);
    slot.parameters = aligned_part(rest, memory.filed_parameters);
  }
  m_moved_gradient = aligned_part(rest, memory.gradient);
  m_moved_copy = aligned_part(rest, memory.gradient_copy);
  m_moved_parameters = aligned_part(rest, memory.parameters);
}

std::span<std::byte> OptimizerState::parameter_request(std::span<std::byte> memory, StateChunk const& chunk) const {
  auto const elements = static_cast<std::uint64_t>(chunk.range.size());
  return memory.first(file_footprint(elements * bytes_per_value(m_layout->types.parameters)));
}

std::span<std::byte> OptimizerState::request(Slot const& slot, StateChunk const& chunk) const {
  if (!in_file()) return {};
  return slot.vectors.first(static_cast<std::uint64_t>(optimizer_vectors(*m_layout)) *
                            request_bytes(chunk.range.size()));
}

Vector<float> OptimizerState::resident(Index vector, Index group, Range const& range) const {
  return StoredVector(m_vectors[at(vector)])
      .part(m_layout->share_offset(group) + range.begin, range.size())
      .as<float>();
}

void OptimizerState::wait(FileQueue::Ticket ticket) const {
  if (ticket == 0) return;
  auto const start = std::chrono::steady_clock::now();
  Span const span(Lane::wait, [] { return "optimizer state from the file"; });
  m_queue->wait(ticket);
  m_waited += seconds_since(start);
}

/// Asks for the vectors of a chunk.
void OptimizerState::bring(Slot& slot, StateChunk const& chunk, bool is_counted) {
  std::span<std::byte> const bytes = request(slot, chunk);
  if (bytes.empty()) return;
  slot.ready = m_last = m_queue->read(place(0, chunk.group, chunk.range.begin), bytes);
  if (!is_counted) return;
  m_moved.read += bytes.size();
  ++m_moved.requests;
}

/// Asks for a chunk of parameters in a file, if the update reads them.
void OptimizerState::bring_parameters(Slot& slot, StateChunk const& chunk, ParameterShares& parameters) {
  if (!parameters.in_file() || m_layout->types.master) return;
  std::span<std::byte> const bytes = parameter_request(slot.parameters, chunk);
  slot.parameters_ready = parameters.read(chunk.group, chunk.range, bytes);
  m_moved.read += bytes.size();
  ++m_moved.requests;
}

/// A copy on the host.
StoredVector OptimizerState::bring_here(StoredVector const& from, std::span<std::byte> memory) {
  std::span<std::byte> const here = memory.first(bytes_of(from).size());
  copy_to_pinned(m_exec, bytes_of(from).data(), here);
  m_moved.to_host += here.size();
  return elements_in(here, from.storage, from.size);
}

/// Where the update of a chunk reads and writes parameters.
StoredVector OptimizerState::parameters_in(Slot& slot, StateChunk const& part, Shares const& shares) {
  auto const& [group, range] = part;
  ParameterShares& parameters = *shares.parameters;
  bool const is_new = m_layout->types.master; // nothing is read
  StoredVector chunk;
  if (parameters.in_file()) {
    parameters.wait(std::exchange(slot.parameters_ready, 0));
    chunk = elements_in(slot.parameters, m_layout->types.parameters, range.size());
    if (is_new) set_to_zero(m_exec, chunk); // padding, which no update writes
  } else {
    chunk = parameters.share(group).part(range.begin, range.size());
  }
  if (m_plan->moves_parameters() || !m_plan->moves_optimizer()) return chunk; // kernels reach it where it lies
  if (!is_new) return bring_here(chunk, m_moved_parameters);
  chunk = elements_in(m_moved_parameters, chunk.storage, chunk.size);
  set_to_zero(m_exec, chunk);
  return chunk;
}

/// Everything is there when kernels that are enqueued from now on begin.
OptimizerState::Chunk OptimizerState::chunk_in(Slot& slot, StateChunk const& part, Shares const& shares) {
  auto const& [group, range] = part;
  Index const size = range.size();
  Chunk chunk{{part}, {}, shares.gradients(group).part(range.begin, size), {}, {}};
  wait(std::exchange(slot.ready, 0));
  for (Index vector = 0; vector < optimizer_vectors(*m_layout); ++vector)
    chunk.vectors.push_back(
        in_file() ? elements_in(slot.vectors.subspan(static_cast<std::uint64_t>(vector) * request_bytes(size)),
                                Storage::fp32, size)
                        .as<float>()
                  : resident(vector, group, range));
  chunk.parameters = parameters_in(slot, part, shares);
  if (!m_plan->moves_optimizer()) {
    if (m_layout->types.gradient_copy)
      chunk.gradient_copy =
          StoredVector(m_gradient_copy).part(m_layout->share_offset(group) + range.begin, size).as<float>();
    return chunk;
  }
  chunk.gradient = bring_here(chunk.gradient, m_moved_gradient);
  if (m_layout->types.gradient_copy) chunk.gradient_copy = elements_in(m_moved_copy, Storage::fp32, size).as<float>();
  wait_for_kernels(m_exec, "trainstone::parallel::update: the host updates the parameters");
  return chunk;
}

void OptimizerState::take_back(Slot& slot, StateChunk const& part, Chunk const& worked, Shares const& shares) {
  if (m_plan->moves_optimizer() && !m_plan->moves_parameters()) {
    StoredVector const home = shares.parameters->share(part.group).part(part.range.begin, part.range.size());
    copy_from_pinned(m_exec, bytes_of(worked.parameters), bytes_of(home).data());
    m_moved.to_kernels += bytes_of(home).size();
  }
  if (m_plan->has_file()) wait_for_kernels(m_exec, "trainstone::parallel::update: the state goes to a file");
  if (shares.parameters->in_file()) {
    std::span<std::byte> const bytes = parameter_request(slot.parameters, part);
    slot.parameters_ready = shares.parameters->write(part.group, part.range, bytes);
    m_moved.written += bytes.size();
    ++m_moved.requests;
  }
  std::span<std::byte> const bytes = request(slot, part);
  if (bytes.empty()) return;
  m_last = m_queue->write(place(0, part.group, part.range.begin), bytes);
  m_moved.written += bytes.size();
  ++m_moved.requests;
}

void OptimizerState::update_in_place(std::vector<StateChunk> const& chunks, Shares const& shares,
                                     std::function<void(Chunk const&)> const& work) {
  std::optional<Chunk> joint;
  for (StateChunk const& part : chunks) {
    Chunk const next = chunk_in(m_slots.front(), part, shares);
    if (joint && append(*joint, next)) continue;
    if (joint) work(*joint);
    joint = next;
  }
  if (joint) work(*joint);
}

void OptimizerState::update(Index first, Index last, Shares const& shares,
                            std::function<void(Chunk const&)> const& work) {
  std::vector<StateChunk> const chunks = update_chunks(*m_plan, *m_layout, first, last);
  if (!m_plan->has_chunks()) return update_in_place(chunks, shares, work);
  auto const slot_of = [&](std::size_t number) -> Slot& { return m_slots[number % m_slots.size()]; };
  bool const is_all = first == 0 && last + 1 == std::ssize(m_layout->groups);
  bool const was_ahead = std::exchange(m_is_ahead, false) && is_all;
  if (in_file() && !chunks.empty() && !was_ahead) bring(slot_of(0), chunks[0], !is_all);
  if (!chunks.empty()) bring_parameters(slot_of(0), chunks[0], *shares.parameters);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (in_file() && i + 1 < chunks.size()) bring(slot_of(i + 1), chunks[i + 1], true);
    if (i + 1 < chunks.size()) bring_parameters(slot_of(i + 1), chunks[i + 1], *shares.parameters);
    Chunk const chunk = chunk_in(slot_of(i), chunks[i], shares);
    work(chunk);
    take_back(slot_of(i), chunks[i], chunk, shares);
  }
  if (!in_file() || !is_all || chunks.empty()) return;
  bring(slot_of(0), chunks[0], true); // for the next update
  m_is_ahead = true;
}

void OptimizerState::finish() const {
  if (in_file()) wait(m_last);
}

Vector<float> OptimizerState::share(Index vector, Index group) const {
  TRAINSTONE_REQUIRE(!m_plan->moves_optimizer(), "optimizer state lies in a {}, not with the kernels",
                     to_string(m_plan->optimizer));
  return resident(vector, group, {0, size_of(group)});
}

void OptimizerState::read(Index vector, Index group, Range range,
                          std::function<void(Range const&, Vector<float> const&)> const& look) const {
  for (Range const& piece : chunks_of(*m_plan, range)) {
    if (!in_file()) {
      look(piece, resident(vector, group, piece));
      continue;
    }
    Index const begin = piece.begin / chunk_unit * chunk_unit;  // where a request may begin
    std::span<std::byte> const memory = m_slots.back().vectors; // nothing is ahead there
    m_last = m_queue->read(place(vector, group, begin), memory.first(request_bytes(piece.end - begin)));
    m_queue->wait(m_last);
    look(piece,
         elements_in(memory, Storage::fp32, piece.end - begin).part(piece.begin - begin, piece.size()).as<float>());
    wait_for_kernels(m_exec, "trainstone::parallel::optimizer_state: the memory is used again");
  }
}

void OptimizerState::write(Index vector, Index group,
                           std::function<void(Range const&, Vector<float> const&)> const& fill) {
  m_is_ahead = false;
  for (Range const& piece : chunks_of(*m_plan, {0, size_of(group)})) {
    if (!in_file()) {
      fill(piece, resident(vector, group, piece));
      continue;
    }
    std::span<std::byte> const memory = m_slots.back().vectors;
    m_queue->wait(m_last); // nothing uses the memory
    fill(piece, elements_in(memory, Storage::fp32, piece.size()).as<float>());
    wait_for_kernels(m_exec, "trainstone::parallel::optimizer_state: it goes to a file");
    m_last = m_queue->write(place(vector, group, piece.begin), memory.first(request_bytes(piece.size())));
  }
}

void OptimizerState::clear(Index vector) {
  for (Index group = 0; group < std::ssize(m_layout->groups); ++group)
    write(vector, group, [this](Range const&, Vector<float> const& values) { set_to_zero(m_exec, values); });
}

} // namespace trainstone
