#include "comm/algorithms/blocks.hpp"

#include "core/error.hpp"

namespace trainstone {

namespace {

Range head_of(Range const& whole, Run const& run) { return {whole.begin, whole.begin + run.head.size()}; }

Range tail_of(Range const& whole, Run const& run) { return {whole.begin + run.head.size(), whole.end}; }

} // namespace

Run run_of_blocks(Partition const& blocks, Rank first, Rank count) {
  Rank const n = blocks.ranks();
  TRAINSTONE_REQUIRE(first >= 0 && first < 2 * n && count >= 0 && count <= n, "no {} blocks from {} on among {}", count,
                     first, n);
  Rank const begin = first % n;
  if (begin + count <= n) return {blocks.range(begin, begin + count), {}};
  return {blocks.range(begin, n), blocks.range(0, begin + count - n)};
}

Slice pack(ScheduleBuilder& builder, Run const& run) {
  if (run.contiguous()) return data_slice(run.range());
  Range const packed = builder.new_scratch(run.size());
  builder.copy(data_slice(run.head), scratch_slice(head_of(packed, run)));
  builder.copy(data_slice(run.tail), scratch_slice(tail_of(packed, run)));
  builder.end_round();
  return scratch_slice(packed);
}

Slice landing_place(ScheduleBuilder& builder, Run const& run) {
  return run.contiguous() ? data_slice(run.range()) : scratch_slice(builder.new_scratch(run.size()));
}

void unpack(ScheduleBuilder& builder, Slice const& landed, Run const& run) {
  if (run.contiguous()) return;
  builder.copy(scratch_slice(head_of(landed.range, run)), data_slice(run.head));
  builder.copy(scratch_slice(tail_of(landed.range, run)), data_slice(run.tail));
}

void reduce_run(ScheduleBuilder& builder, Range const& scratch, Run const& run) {
  builder.reduce(scratch_slice(head_of(scratch, run)), data_slice(run.head));
  builder.reduce(scratch_slice(tail_of(scratch, run)), data_slice(run.tail));
}

} // namespace trainstone
