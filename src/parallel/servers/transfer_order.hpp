#pragma once

// In which order a worker's layers use its link to the servers, and what that costs: a simulation of one worker and one
// serial link. A layer's transfer, to the servers and back, may begin when its backward has ended, and its next forward
// needs all of it. Pure. Source: Priority-based Parameter Propagation for Distributed DNN Training, arXiv:1905.03960.

#include "core/index.hpp"

#include <cstdint>
#include <vector>

namespace trainstone {

enum class TransferOrder {
  fifo,     ///< as layers become ready: the last one first
  priority, ///< of the layers that are ready, the one that the next forward needs first
};

/// Times of one layer.
struct LayerTimes {
  std::int64_t forward, backward, transfer;
};

/// What happens between two times.
struct LinkSlot {
  Index layer;
  std::int64_t begin, end;
  bool operator==(LinkSlot const&) const = default;
};

struct TransferTimeline {
  std::vector<LinkSlot> backward, link, forward; ///< in order; equal neighbours on the link are one
  std::int64_t end = 0;                          ///< of the last forward
};

/// From the begin of the last layer's backward to the end of the last layer's next forward.
/// \param[in] layers  in the order of forward
/// \param[in] slice   time of what is transferred without a break; 0: whole layers
TransferTimeline play_transfers(std::vector<LayerTimes> const& layers, TransferOrder order, std::int64_t slice);

/// No order takes less: max(sum f + sum b, b of the last layer + sum c + f of the last layer, sum b + c of the first
/// layer + sum f).
std::int64_t least_transfer_time(std::vector<LayerTimes> const& layers);

} // namespace trainstone
