#pragma once

// What stages have sent and received so far, while their programs are played: channel by channel, in order. The n-th
// send of a channel belongs to its n-th receive.

#include "parallel/pipeline/stage_program.hpp"

#include <optional>
#include <vector>

namespace trainstone::Impl {

/// \tparam Posted  what is known of a send or of a receive
template <class Posted>
class PipelineChannels {
public:
  explicit PipelineChannels(Index stages)
      : m_stages(stages),
        m_activations(static_cast<std::size_t>(stages)),
        m_gradients(static_cast<std::size_t>(stages)) {}

  std::vector<Posted>& sent_by(MessageKind kind, Index stage) { return channel(kind, stage).sent; }
  std::vector<Posted>& received_by(MessageKind kind, Index stage) {
    return channel(kind, StageNeighbours{stage, m_stages}.sender(kind)).received;
  }
  /// The sends that these receives meet.
  std::vector<Posted>& sent_to(MessageKind kind, Index stage) {
    return channel(kind, StageNeighbours{stage, m_stages}.sender(kind)).sent;
  }
  std::vector<Posted>& received_from(MessageKind kind, Index stage) { return channel(kind, stage).received; }

private:
  struct Channel {
    std::vector<Posted> sent, received;
  };
  Channel& channel(MessageKind kind, Index sender) {
    return (kind == MessageKind::activation ? m_activations : m_gradients)[static_cast<std::size_t>(sender)];
  }

  Index m_stages;
  std::vector<Channel> m_activations, m_gradients; ///< by sender
};

/// The chunk that reads a message which `chunk` of `stage` has sent.
constexpr Index reading_chunk(PipelineShape const& shape, MessageKind kind, Index stage, Index chunk) {
  Index const sender = shape.virtual_stage(stage, chunk);
  return (kind == MessageKind::activation ? sender + 1 : sender - 1) / shape.stages;
}

/// The place of a message among those of a channel; none if it is not there.
template <class Posted>
std::optional<std::size_t> place_of(std::vector<Posted> const& posted, Index micro_batch, Index chunk) {
  for (std::size_t place = posted.size(); place-- > 0;)
    if (posted[place].micro_batch == micro_batch && posted[place].chunk == chunk) return place;
  return std::nullopt;
}

} // namespace trainstone::Impl
