#pragma once

// A way to run a deck on a number of ranks: the mesh, the schedule of the pipeline, who shares the training state, what
// is computed again, and what lies outside of the memory that kernels work on. Owns which ways there are, and the keys
// of each. A value. Legal is what a deck with these keys is: resolve() decides.

#include "advice/deck_on_ranks.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainstone {

/// What all ways have in common: the samples of a step, and of them what a rank computes at a time.
struct WayBatch {
  std::int64_t micro = 1, global = 1;
};

struct Way {
  std::int64_t tensor = 1, pipeline = 1, data = 1;
  std::int64_t features = 1;     ///< y of a tensor grid, whose x is `tensor`
  std::string schedule = "1f1b"; ///< of several stages
  std::int64_t chunks = 1;
  Strategy strategy = Strategy::ddp;
  std::int64_t zero_stage = 0, shard_group = 0;
  bool sequence = false;
  Recompute recompute = Recompute::none;
  Residence optimizer = Residence::kernels;  ///< where the optimizer's state lies between updates
  Residence parameters = Residence::kernels; ///< where a rank's shares of parameters lie

  std::int64_t ranks() const { return tensor * features * pipeline * data; }
  std::int64_t accumulation(WayBatch const& batch) const { return batch.global / (batch.micro * data); }
  /// Whether a rank holds a share of its parameters alone.
  bool shares_parameters() const { return strategy == Strategy::hsdp || zero_stage == 3; }
  /// Whether a part of the state does not lie with the kernels.
  bool moves() const { return optimizer != Residence::kernels || parameters != Residence::kernels; }
  bool operator==(Way const&) const = default;
};

/// "tensor 8 x data 4 x pipeline 2, interleaved 2, zero 1, sequence, recompute full"
std::string to_string(Way const& way);

/// Micro-batches are of one sample if the deck does not name theirs, and its samples do not divide on its own mesh.
/// \throws InputError if the deck names less than two of the three numbers of a batch
WayBatch batch_of_ways(DeckOnRanks const& asked);

/// The keys that make a deck run that way. \param[in] deck  may expect another number of ranks
std::vector<std::string> keys_of(Way const& way, WayBatch const& batch, Deck const& deck);

/// The deck that runs that way on its ranks.
DeckOnRanks on_way(DeckOnRanks const& asked, Deck const& deck, Way const& way, WayBatch const& batch);

/// All meshes of so many ranks: the heads divide among tensor ranks, the blocks among stages, the micro-batches among
/// data ranks, and the channels among features if the deck has a tensor grid. Ways without anything else.
std::vector<Way> meshes(RunConfig const& config, WayBatch const& batch, std::int64_t ranks);

/// Schedules and numbers of chunks of a mesh, of all that a training can have but the naive one, whose stages never
/// compute side by side.
std::vector<Way> with_schedules(Way const& mesh, GptConfig const& model, WayBatch const& batch);

/// Who shares the training state among the data ranks: ddp, the stages of zero, and hsdp in groups of all sizes.
std::vector<Way> with_strategies(Way const& way);

/// Positions shared or not, what blocks compute again, and what lies on the host or in files: what a rank does to need
/// less memory. All with the state in one place before those with another place, and of these the fastest first. On one
/// data rank parameters are moved by stage 3 of zero. Another such dimension belongs here, its keys into keys_of(), and
/// another residence beside Way::optimizer.
std::vector<Way> with_savings(Way const& way, RunConfig const& config);

/// A way as with_savings() takes it.
Way without_savings(Way const& way);

/// Whether all that is moved in one way is moved in the other, too, and to the same place.
bool moves_no_more(Way const& one, Way const& other);

} // namespace trainstone
