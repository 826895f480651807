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
  OffloadPlan const& offload = plan.offload;
  std::size_t const of_parameters = bytes_per_value(layout.types.parameters);
  std::size_t copied = offload.moves_optimizer() ? bytes_per_value(plan.reductions.storage) : 0;
  if (offload.moves_optimizer() && !offload.moves_parameters()) copied += (layout.types.master ? 1 : 2) * of_parameters;
  auto const vectors = static_cast<double>(offload.optimizer == Residence::file ? optimizer_vectors(layout) : 0);
  auto const footprint = [](Index elements, std::size_t each) {
    return static_cast<double>(file_footprint(static_cast<std::uint64_t>(elements) * each));
  };
  std::vector<ChunkTimes> times;
  for (StateChunk const& chunk : update_chunks(plan.offload, layout, 0, std::ssize(layout.groups) - 1)) {
    auto const elements = static_cast<double>(chunk.range.size());
    double const state = vectors * footprint(chunk.range.size(), sizeof(float));
    double const parameters = offload.parameters == Residence::file ? footprint(chunk.range.size(), of_parameters) : 0;
    times.push_back({(state + (layout.types.master ? 0 : parameters)) / rates.read, (state + parameters) / rates.write,
                     elements * static_cast<double>(copied) / rates.copy, elements * update_of_element});
  }
  return times;
}

} // namespace

PredictedMoves predict_moves(ShardPlan const& plan, OffloadRates const& rates, double update_of_element,
                             double between) {
  PredictedMoves moves;
  if (!plan.offload.has_chunks()) return moves;
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

PredictedMoves predict_moves_of_step(ShardPlan const& plan, OffloadRates const& rates, double update_of_element,
                                     double step) {
  double const update = static_cast<double>(plan.layout.share_elements()) * update_of_element;
  return predict_moves(plan, rates, update_of_element, std::max(0.0, step - update));
}

} // namespace trainstone
