#include "train/offload_measurement.hpp"

#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "core/aligned_bytes.hpp"
#include "core/clock.hpp"
#include "core/file_queue.hpp"
#include "kernels/cast.hpp"
#include "parallel/engine/optimizer_update.hpp"
#include "parallel/engine/state_memory.hpp"
#include "train/state_files.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace trainstone {

namespace {

double median_of(std::vector<double> values) {
  auto const middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Of the chunks that an update goes over.
struct ChunkShape {
  Index elements, vectors, chunks;

  /// Gradients and parameters are there of a few chunks, whose places are used in turn.
  Index homes() const { return elements * OffloadMeasurement::fewest_chunks; }
  std::uint64_t vector_bytes() const { return static_cast<std::uint64_t>(elements) * sizeof(float); }
  /// Of a request: all vectors.
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(vectors) * vector_bytes(); }
  std::uint64_t file_bytes() const { return static_cast<std::uint64_t>(chunks) * bytes(); }
};

ChunkShape shape_of(OffloadMeasurement const& measurement) {
  auto const vectors =
      static_cast<std::uint64_t>(std::max<Index>(1, measurement.optimizer.moments() + Index{measurement.types.master}));
  std::uint64_t const most = measurement.file_bytes / OffloadMeasurement::fewest_chunks;
  std::uint64_t const vector = std::min(measurement.request_bytes, most) / vectors;
  ChunkShape shape{.elements = static_cast<Index>(file_footprint(std::max<std::uint64_t>(1, vector)) / sizeof(float)),
                   .vectors = static_cast<Index>(vectors),
                   .chunks = OffloadMeasurement::fewest_chunks};
  shape.chunks = std::max(shape.chunks, static_cast<Index>(measurement.file_bytes / shape.bytes()));
  return shape;
}

/// Of one update of all chunks, in s, and of its copies without a file.
struct RoundSeconds {
  double copies = 0, update = 0;
  FileSeconds file = {};
  double copies_alone = 0;
};

/// State in a file, and with the kernels gradients and parameters, as OptimizerState and the engine have them.
class MovedState {
public:
  MovedState(ExecutionSpace const& exec, MemoryLedger& ledger, OffloadMeasurement const& measurement)
      : m_exec(exec),
        m_asked(&measurement),
        m_shape(shape_of(measurement)),
        m_gradients(state(ledger, measurement.gradients)),
        m_parameters(state(ledger, measurement.types.parameters)),
        m_pinned(ledger, "measured chunks",
                 chunks_in_memory * m_shape.bytes() + 3 * m_shape.vector_bytes() + file_alignment),
        m_file(measurement.files, m_shape.file_bytes()),
        m_queue(m_file) {
    std::span<std::byte> const all = from_file_alignment(m_pinned.take(m_pinned.capacity()));
    std::memset(all.data(), 0, chunks_in_memory * m_shape.bytes());
    m_slots = all.first(chunks_in_memory * m_shape.bytes());
    m_worked = all.subspan(m_slots.size(), 3 * m_shape.vector_bytes());
    for (Index i = 0; i < m_shape.chunks; ++i) m_queue.wait(m_queue.write(place(i), slot(i)));
  }

  /// In the order of OptimizerState::update.
  RoundSeconds update() {
    RoundSeconds seconds;
    FileSeconds const before = m_queue.seconds();
    FileQueue::Ticket last = 0, ready = m_queue.read(place(0), slot(0));
    for (Index i = 0; i < m_shape.chunks; ++i) {
      FileQueue::Ticket const next = i + 1 < m_shape.chunks ? m_queue.read(place(i + 1), slot(i + 1)) : 0;
      m_queue.wait(ready);
      work(i, seconds);
      last = m_queue.write(place(i), slot(i));
      ready = next;
    }
    m_queue.wait(last);
    FileSeconds const after = m_queue.seconds();
    seconds.file = {after.read - before.read, after.write - before.write};
    for (Index i = 0; i < m_shape.chunks; ++i) {
      timed(seconds.copies_alone, [&] { copy_here(i); });
      timed(seconds.copies_alone, [&] { copy_back(i); });
    }
    return seconds;
  }

  /// The rates of a round that took so long.
  OffloadRates rates(RoundSeconds const& seconds) const {
    auto const elements = static_cast<double>(m_shape.elements * m_shape.chunks),
               bytes = static_cast<double>(m_shape.file_bytes());
    auto const copied = static_cast<double>(bytes_per_value(m_asked->gradients) +
                                            bytes_per_value(types().parameters) * (types().master ? 1 : 2));
    return {.copy = elements * copied / seconds.copies_alone,
            .read = bytes / seconds.file.read,
            .write = bytes / seconds.file.write,
            .copy_beside_file = elements * copied / seconds.copies,
            .update_of_element = seconds.update / elements};
  }
  ScratchFile const& file() const { return m_file; }

private:
  StateMemory state(MemoryLedger& ledger, Storage storage) {
    return {m_exec, nullptr, ledger, MemoryCategory::buffers, "measured state", storage, m_shape.homes()};
  }
  StateTypes const& types() const { return m_asked->types; }
  std::uint64_t place(Index chunk) const { return static_cast<std::uint64_t>(chunk) * m_shape.bytes(); }
  std::span<std::byte> slot(Index chunk) const {
    return m_slots.subspan(static_cast<std::uint64_t>(chunk % chunks_in_memory) * m_shape.bytes(), m_shape.bytes());
  }
  /// Memory of the chunk in work.
  StoredVector worked(Index number, Storage storage) const {
    return elements_in(m_worked.subspan(static_cast<std::uint64_t>(number) * m_shape.vector_bytes()), storage,
                       m_shape.elements);
  }

  template <class Part>
  void timed(double& seconds, Part const& part) {
    SteadyTime const begin = std::chrono::steady_clock::now();
    part();
    m_exec.fence("trainstone::train::measure_offload: a part of an update is timed");
    seconds += seconds_since(begin);
  }

  std::byte* home(StateMemory const& state, Index chunk) const {
    Index const begin = chunk % OffloadMeasurement::fewest_chunks * m_shape.elements;
    return bytes_of(state.part(begin, m_shape.elements)).data();
  }
  StoredVector gradient() const { return worked(0, m_asked->gradients); }
  StoredVector parameters() const { return worked(1, types().parameters); }

  void copy_here(Index chunk) {
    copy_to_pinned(m_exec, home(m_gradients, chunk), bytes_of(gradient()));
    if (types().master) return set_to_zero(m_exec, parameters());
    copy_to_pinned(m_exec, home(m_parameters, chunk), bytes_of(parameters()));
  }
  void copy_back(Index chunk) { copy_from_pinned(m_exec, bytes_of(parameters()), home(m_parameters, chunk)); }

  void work(Index chunk, RoundSeconds& seconds) {
    timed(seconds.copies, [&] { copy_here(chunk); });
    timed(seconds.update, [&] { update(gradient(), slot(chunk)); });
    timed(seconds.copies, [&] { copy_back(chunk); });
  }

  void update(ConstStoredVector gradient, std::span<std::byte> vectors) {
    std::vector<Vector<float>> moments;
    for (Index i = 0; i < m_shape.vectors; ++i)
      moments.push_back(elements_in(vectors.subspan(static_cast<std::uint64_t>(i) * m_shape.vector_bytes()),
                                    Storage::fp32, m_shape.elements)
                            .as<float>());
    if (types().gradient_copy) {
      StoredVector const copy = worked(2, Storage::fp32);
      cast(m_exec, gradient, copy);
      gradient = copy;
    }
    Vector<float> const master = types().master ? moments.front() : parameters().as<float>();
    UpdateNumbers const numbers{.learning_rate = 1e-9, .gradient_scale = 1, .step = 1};
    update_parameters(m_exec, m_asked->optimizer, numbers, {}, gradient, master,
                      std::span(moments).subspan(types().master ? 1 : 0).first(moment_count()), parameters());
  }
  std::size_t moment_count() const { return static_cast<std::size_t>(m_asked->optimizer.moments()); }

  ExecutionSpace m_exec;
  OffloadMeasurement const* m_asked;
  ChunkShape m_shape;
  StateMemory m_gradients, m_parameters;
  PinnedMemory m_pinned;
  std::span<std::byte> m_slots, m_worked;
  ScratchFile m_file;
  FileQueue m_queue; ///< ends before what it uses
};

} // namespace

MeasuredOffload measure_offload(ExecutionSpace const& exec, Communicator& communicator, MemoryLedger& ledger,
                                OffloadMeasurement const& measurement) {
  std::optional<MovedState> state;
  collectively(communicator, [&] { state.emplace(exec, ledger, measurement); });
  std::vector<double> copies, updates, reads, writes, copies_alone;
  for (int number = 0; number <= measurement.rounds; ++number) {
    barrier(communicator);
    RoundSeconds const round = state->update();
    if (number == 0) continue;
    copies.push_back(round.copies);
    updates.push_back(round.update);
    reads.push_back(round.file.read);
    writes.push_back(round.file.write);
    copies_alone.push_back(round.copies_alone);
  }
  std::vector<double> seconds{median_of(copies), median_of(updates), median_of(reads), median_of(writes),
                              median_of(copies_alone)};
  control_all_reduce(exec, communicator, Operation::max, seconds);
  return {state->rates({seconds[0], seconds[1], {seconds[2], seconds[3]}, seconds[4]}),
          files_of_ranks(exec, communicator, &state->file())};
}

} // namespace trainstone
