#pragma once

// Runs of blocks, counted modulo their number: a run that reaches beyond the last block goes on at the first one. Owns
// the way in which such a run still makes one message. If the run lies in two places, it is packed in scratch before it
// leaves, and unpacked from scratch after it arrives.

#include "comm/schedule/schedule_builder.hpp"

namespace trainstone {

/// The elements of a run: those of `head`, then those of `tail`, which begins at the first block and may be empty.
struct Run {
  Range head;
  Range tail;

  Index size() const { return head.size() + tail.size(); }
  bool contiguous() const { return head.empty() || tail.empty(); }
  /// All elements, if contiguous.
  Range range() const { return head.empty() ? tail : head; }
};

/// Blocks first ... first+count-1. \param[in] first 0 ... 2n-1 of n blocks    \param[in] count 0 ... n
Run run_of_blocks(Partition const& blocks, Rank first, Rank count);

/// What to send for a run of data. Of a wrapped one: new scratch, packed in a round of its own; no round may be open.
Slice pack(ScheduleBuilder& builder, Run const& run);
/// Where to receive a run of data: there if contiguous, else new scratch, to be unpacked after the messages.
Slice landing_place(ScheduleBuilder& builder, Run const& run);
/// Takes a run from its landing place to data.
void unpack(ScheduleBuilder& builder, Slice const& landed, Run const& run);
/// Adds a run that lies in scratch without gap to data.
void reduce_run(ScheduleBuilder& builder, Range const& scratch, Run const& run);

} // namespace trainstone
