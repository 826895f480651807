#pragma once

// The activations of a rank as the simulator of steps sees them: not numbers, but the micro-batch and the block that
// each one is of. Which activations a part keeps, and which ones it reads, is its description's matter
// (model/part_lists.hpp). Options of the model do not change the proof, but for what blocks compute again: a mask or a
// statistic is kept and read together with others.

#include "model/activation_plan.hpp"
#include "model/part.hpp"
#include "parallel/program/instruction.hpp"

#include <optional>
#include <set>
#include <vector>

namespace trainstone::Impl {

class ActivationMemory {
public:
  /// \param[in] parts  must outlive the object
  ActivationMemory(PartTable const& parts, ActivationCopies const& copies);

  /// The first activation that a part's forward, its recomputation, the loss, a part's backward or a send reads, and
  /// that is not there: it is another micro-batch's, or nobody's.
  std::optional<PlacedActivation> missing_for_forward(Instruction const& forward) const;
  std::optional<PlacedActivation> missing_for_recompute(Instruction const& recompute) const;
  std::optional<PlacedActivation> missing_for_loss(Instruction const& loss) const;
  std::optional<PlacedActivation> missing_for_backward(Instruction const& backward) const;
  std::optional<PlacedActivation> missing_for_send(Instruction const& send) const;

  /// A part's forward leaves what the part keeps for backward.
  void keep(Instruction const& forward) { keep(forward, forward.micro_batch); }
  /// The loss of a chunk leaves the gradient of its logits.
  void keep_logits(Instruction const& loss);
  /// A part's recomputation leaves what the part's block has not kept.
  void recompute(Instruction const& recompute);
  /// A message brings the input of a chunk; from its start on, what was there is lost.
  void receive(Instruction const& wait) { m_contents[input_of(wait)] = {wait.micro_batch, wait.piece}; }
  void drop_input(Instruction const& receive) { m_contents[input_of(receive)] = {}; }
  /// Nobody reads what the part has kept any more.
  void drop(Instruction const& backward) { keep(backward, Instruction::none); }
  void drop_all();

private:
  /// What a place holds: of which micro-batch; and of which block or chunk, if several share the place.
  struct Content {
    Index micro_batch = Instruction::none, of = Instruction::none;
    bool operator==(Content const&) const = default;
  };

  bool splits_loss() const { return m_parts->options().splits_loss(); }
  PlacedActivation place_of(Activation what, Part part, ActivationBuffers const& buffers) const;
  Content content_of(PlacedActivation const& placed, Index part, Index micro_batch) const;
  void write(std::set<Activation> const& all, Instruction const& by, Index micro_batch);
  void keep(Instruction const& by, Index micro_batch);
  std::size_t index(PlacedActivation const& placed) const;
  std::size_t input_of(Instruction const& message) const;
  std::optional<PlacedActivation> first_missing(std::set<Activation> const& read, Index part,
                                                Instruction const& by) const;

  PartTable const* m_parts;
  ActivationPlaces m_places;
  Index m_copies;                  ///< rooms of an activation that is there several times
  std::vector<Content> m_contents; ///< by place
};

} // namespace trainstone::Impl
