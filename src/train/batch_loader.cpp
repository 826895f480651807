#include "train/batch_loader.hpp"

#include "core/timed_region.hpp"

namespace trainstone {

BatchLoader::BatchLoader(MicroBatchShape shape, Index turns, Index vocab, Arena& arena) : m_vocab(vocab) {
  Index const rows = shape.rows();
  auto const take = [&](char const* label, Index count) { return arena.vector<std::int32_t>(label, turns * count); };
  Vector<std::int32_t> const tokens = take("tokens", rows), targets = take("targets", rows),
                             order = take("rows by token", rows), begin = take("buckets", rows + 1),
                             bucket_token = take("tokens of buckets", rows);
  for (Index turn = 0; turn < turns; ++turn) {
    auto const part = [turn](Vector<std::int32_t> all, Index count) {
      return Mirrored(Vector<std::int32_t>(all.data() + turn * count, static_cast<std::size_t>(count)));
    };
    m_rooms.push_back(
        {part(tokens, rows), part(targets, rows), part(order, rows), part(begin, rows + 1), part(bucket_token, rows)});
  }
}

void BatchLoader::begin(ExecutionSpace const& exec) const {
  exec.fence("trainstone::train::load: kernels may still read the batches before");
}

MicroBatch BatchLoader::load(ExecutionSpace const& exec, BatchSource const& source, std::int64_t batch,
                             Index micro_batch, Index turn) {
  TimedRegion const region([] { return "trainstone::train::load"; });
  auto const& [tokens, targets, order, begin, bucket_token] = m_rooms[static_cast<std::size_t>(turn)];
  source(batch, micro_batch, tokens.values(), targets.values());
  for (std::int32_t const target : targets.values()) // inputs are checked while they are sorted
    TRAINSTONE_REQUIRE(target >= 0 && target < m_vocab, "target {} is not in the vocabulary of {}", target, m_vocab);
  build_token_buckets(tokens.values(), m_vocab, order.values(), begin.values(), bucket_token.values());
  for (Mirrored const* array : {&tokens, &targets, &order, &begin, &bucket_token}) array->copy_to_device(exec);
  return {
      .tokens = tokens.device, .targets = targets.device, .buckets = {order.device, begin.device, bucket_token.device}};
}

} // namespace trainstone
