#include "parallel/program/offload_prediction.hpp"

#include <algorithm>

namespace trainstone {

namespace {

/// A file whose requests end one after the other.
class FileClock {
public:
  /// \return when a request ends that is made at this time
  double request(double now, double seconds) {
    m_free = std::max(m_free, now) + seconds;
    m_busy += seconds;
    return m_free;
  }
  double busy() const { return m_busy; }

private:
  double m_free = 0, m_busy = 0;
};

/// What a chunk takes.
struct ChunkTimes {
  double read, write, copies, update;
};

std::vector<ChunkTimes> times_of_chunks(ShardPlan const& plan, OffloadRates const& rates, double update_of_element) {
  StateLayout const& layout = plan.layout;
  double const copied = static_cast<double>(bytes_per_value(plan.reductions.storage) +
                                            (layout.types.master ? 1 : 2) * bytes_per_value(layout.types.parameters));
  bool const in_file = plan.offload.optimizer == Residence::file;
  auto const vectors = static_cast<double>(in_file ? optimizer_vectors(layout) : 0);
  std::vector<ChunkTimes> times;
  for (StateChunk const& chunk : update_chunks(plan.offload, layout, 0, std::ssize(layout.groups) - 1)) {
    auto const elements = static_cast<double>(chunk.range.size());
    double const bytes =
        vectors * static_cast<double>(file_footprint(static_cast<std::uint64_t>(chunk.range.size()) * sizeof(float)));
    times.push_back({in_file ? bytes / rates.read : 0, in_file ? bytes / rates.write : 0,
                     elements * copied / rates.copy, elements * update_of_element});
  }
  return times;
}

} // namespace

PredictedMoves predict_moves(ShardPlan const& plan, OffloadRates const& rates, double update_of_element,
                             double between) {
  PredictedMoves moves;
  if (!plan.offload.moves_optimizer()) return moves;
  std::vector<ChunkTimes> const chunks = times_of_chunks(plan, rates, update_of_element);
  if (chunks.empty()) return moves;
  FileClock file;
  double now = 0;
  double ready = file.request(now, chunks.front().read);
  constexpr int until_steady = 4;
  for (int update = 0; update < until_steady; ++update) {
    double const busy_before = file.busy();
    moves = {};
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      double const next = i + 1 < chunks.size() ? file.request(now, chunks[i + 1].read) : 0;
      double const wait = std::max(0.0, ready - now);
      moves.waits += wait;
      moves.copies += chunks[i].copies;
      now += wait + chunks[i].copies + chunks[i].update;
      file.request(now, chunks[i].write);
      ready = next;
    }
    ready = file.request(now, chunks.front().read);
    moves.file = file.busy() - busy_before;
    now += between;
  }
  return moves;
}

} // namespace trainstone
