#pragma once

// The activations of a rank as the simulator of steps sees them: not numbers, but the micro-batch that each one is of,
// and the block.
// Which activations a part keeps, and which ones it reads, is its description's matter (model/part_lists.hpp). Options
// of the model do not change the proof, but for what blocks compute again: a mask or a statistic is kept and read
// together with others.

#include "model/activation_plan.hpp"
#include "model/part.hpp"

#include <optional>
#include <set>
#include <vector>

namespace trainstone::Impl {

class ActivationMemory {
public:
  /// \param[in] parts  must outlive the object
  explicit ActivationMemory(PartTable const& parts);

  /// The first activation that a part's forward, its recomputation, the loss, or a part's backward reads, and that is
  /// not there: it is another micro-batch's, or nobody's.
  std::optional<PlacedActivation> missing_for_forward(Index part, Index micro_batch) const;
  std::optional<PlacedActivation> missing_for_recompute(Index part, Index micro_batch) const;
  std::optional<PlacedActivation> missing_for_loss(Index micro_batch) const;
  /// \param[in] chunk  whose logits the backward of head reads; none: all, or it reads none
  std::optional<PlacedActivation> missing_for_backward(Index part, Index micro_batch, Index chunk) const;

  /// A part's forward leaves what the part keeps for backward.
  void keep(Index part, Index micro_batch);
  /// The loss of a chunk leaves the gradient of its logits.
  void keep_logits(Index micro_batch, Index chunk);
  /// A part's recomputation leaves what the part's block has not kept.
  void recompute(Index part, Index micro_batch);
  /// Nobody reads what the part has kept any more.
  void drop(Index part);
  void drop_all();

private:
  /// What a place holds: of which micro-batch; and of which block, if blocks share the place, or of which chunk of the
  /// loss.
  struct Content {
    Index micro_batch, of;
    bool operator==(Content const&) const = default;
  };

  bool splits_loss() const { return m_parts->options().splits_loss(); }
  PlacedActivation place_of(Activation what, Part part) const;
  static Content content_of(PlacedActivation const& placed, Part part, Index micro_batch);
  void write(std::set<Activation> const& all, Part part, Index micro_batch);
  static std::size_t index(PlacedActivation const& placed);
  std::optional<PlacedActivation> first_missing(std::set<Activation> const& read, Part part, Index micro_batch) const;

  PartTable const* m_parts;
  ActivationPlaces m_places;
  std::vector<Content> m_contents; ///< by place
};

} // namespace trainstone::Impl
