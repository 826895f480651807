#include "parallel/servers/transfer_order.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace trainstone {

namespace {

struct Waiting {
  std::int64_t ready; ///< its backward has ended
  std::int64_t left;  ///< of its transfer
  std::int64_t done = 0;
};

/// The layer whose transfer goes next; those that are not ready wait. -1: none is left.
Index next_layer(std::vector<Waiting> const& all, TransferOrder order, std::int64_t now) {
  Index best = -1;
  for (Index layer = 0; layer < std::ssize(all); ++layer) {
    Waiting const& one = all[static_cast<std::size_t>(layer)];
    if (one.left == 0 || one.ready > now) continue;
    bool const earlier =
        best < 0 || (order == TransferOrder::fifo && one.ready < all[static_cast<std::size_t>(best)].ready);
    if (earlier) best = layer; // with priority the first one found
  }
  return best;
}

void append(std::vector<LinkSlot>& link, LinkSlot const& slot) {
  if (!link.empty() && link.back().layer == slot.layer && link.back().end == slot.begin)
    link.back().end = slot.end;
  else
    link.push_back(slot);
}

} // namespace

TransferTimeline play_transfers(std::vector<LayerTimes> const& layers, TransferOrder order, std::int64_t slice) {
  TransferTimeline timeline;
  std::vector<Waiting> all(layers.size());
  std::int64_t now = 0;
  for (std::size_t layer = layers.size(); layer-- > 0;) {
    timeline.backward.push_back({static_cast<Index>(layer), now, now + layers[layer].backward});
    now += layers[layer].backward;
    all[layer] = {now, layers[layer].transfer, now};
  }
  std::int64_t link = 0;
  while (std::ranges::any_of(all, [](Waiting const& one) { return one.left > 0; })) {
    Index const layer = next_layer(all, order, link);
    if (layer < 0) { // the link is idle until the next layer is ready
      std::int64_t next = std::numeric_limits<std::int64_t>::max();
      for (Waiting const& one : all)
        if (one.left > 0) next = std::min(next, one.ready);
      link = next;
      continue;
    }
    Waiting& one = all[static_cast<std::size_t>(layer)];
    std::int64_t const length = slice == 0 ? one.left : std::min(slice, one.left);
    append(timeline.link, {layer, link, link + length});
    link += length;
    one.left -= length;
    one.done = link;
  }
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    now = std::max(now, all[layer].done);
    timeline.forward.push_back({static_cast<Index>(layer), now, now + layers[layer].forward});
    now += layers[layer].forward;
  }
  timeline.end = now;
  return timeline;
}

std::int64_t least_transfer_time(std::vector<LayerTimes> const& layers) {
  std::int64_t forward = 0, backward = 0, transfer = 0;
  for (LayerTimes const& one : layers) {
    forward += one.forward;
    backward += one.backward;
    transfer += one.transfer;
  }
  return std::max({forward + backward, layers.back().backward + transfer + layers.back().forward,
                   backward + layers.front().transfer + forward});
}

} // namespace trainstone
