#pragma once

// The activations of a rank as the simulator of steps sees them: not numbers, but the micro-batch that each one is of.
// Which activations a part keeps, and which ones it reads, is its description's matter (model/part_lists.hpp). Options
// of the model do not change the proof: a mask or a statistic is kept and read together with others.

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

  /// The first activation that a part's forward, the loss, or a part's backward reads, and that is not there: it is
  /// another micro-batch's, or nobody's.
  std::optional<PlacedActivation> missing_for_forward(Index part, Index micro_batch) const;
  std::optional<PlacedActivation> missing_for_loss(Index micro_batch) const;
  std::optional<PlacedActivation> missing_for_backward(Index part, Index micro_batch) const;

  /// A part's forward leaves what the part keeps for backward.
  void keep(Index part, Index micro_batch);
  /// Nobody reads what the part has kept any more.
  void drop(Index part);
  void drop_all();

private:
  Index layers() const { return (m_parts->size() - 2) / 2; }
  PlacedActivation place_of(Activation what, Part part) const;
  static std::size_t index(PlacedActivation const& placed);
  std::optional<PlacedActivation> first_missing(std::set<Activation> const& read, Part part, Index micro_batch) const;

  PartTable const* m_parts;
  std::vector<Index> m_micro_batches; ///< by place
};

} // namespace trainstone::Impl
