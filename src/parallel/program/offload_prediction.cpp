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
  double read, write;                       ///< of the optimizer's state
  double read_parameters, write_parameters; ///< of those in a file
  double copies, update;
};

double copy_rate(OffloadPlan const& plan, OffloadRates const& rates) {
  return plan.has_file() && rates.copy_beside_file > 0 ? rates.copy_beside_file : rates.copy;
}

std::vector<ChunkTimes> times_of_chunks(ShardPlan const& plan, OffloadRates const& rates, double update_of_element) {
  StateLayout const& layout = plan.layout;
  OffloadPlan const& offload = plan.offload;
  StateMoves const copied = update_moves(offload, layout, plan.reductions.storage);
  double const copies_of_element = static_cast<double>(copied.to_host + copied.to_kernels) / copy_rate(offload, rates) /
                                   static_cast<double>(std::max<Index>(1, layout.share_elements()));
  auto const vectors = static_cast<double>(offload.optimizer == Residence::file ? optimizer_vectors(layout) : 0);
  auto const footprint = [](Index elements, std::size_t each) {
    return static_cast<double>(file_footprint(static_cast<std::uint64_t>(elements) * each));
  };
  std::vector<ChunkTimes> times;
  for (StateChunk const& chunk : update_chunks(plan.offload, layout, 0, std::ssize(layout.groups) - 1)) {
    auto const elements = static_cast<double>(chunk.range.size());
    double const state = vectors * footprint(chunk.range.size(), sizeof(float));
    double const parameters = offload.parameters == Residence::file
                                  ? footprint(chunk.range.size(), bytes_per_value(layout.types.parameters))
                                  : 0;
    times.push_back({state / rates.read, state / rates.write, (layout.types.master ? 0 : parameters) / rates.read,
                     parameters / rates.write, elements * copies_of_element, elements * update_of_element});
  }
  return times;
}

} // namespace

PredictedMoves predict_moves(ShardPlan const& plan, OffloadRates const& rates, double update_of_element,
                             double between) {
  PredictedMoves moves;
  if (!plan.offload.has_chunks()) return moves;
  bool const is_known = plan.offload.has_file() && rates.update_of_element > 0;
  double const update_of_chunks = is_known ? rates.update_of_element : update_of_element;
  std::vector<ChunkTimes> const chunks = times_of_chunks(plan, rates, update_of_chunks);
  if (chunks.empty()) return moves;
  FileClock file; // both files lie on one disk
  double now = 0;
  double ready = file.request(now, chunks.front().read); // the state is read ahead, parameters are not
  constexpr int until_steady = 4;
  for (int update = 0; update < until_steady; ++update) {
    double const busy_before = file.busy();
    moves = {.slower = static_cast<double>(plan.layout.share_elements()) * (update_of_chunks - update_of_element)};
    if (chunks.front().read_parameters > 0) ready = file.request(now, chunks.front().read_parameters);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      double const next =
          i + 1 < chunks.size() ? file.request(now, chunks[i + 1].read + chunks[i + 1].read_parameters) : 0;
      double const wait = std::max(0.0, ready - now);
      moves.waits += wait;
      moves.copies += chunks[i].copies;
      now += wait + chunks[i].copies + chunks[i].update;
      file.request(now, chunks[i].write + chunks[i].write_parameters);
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
