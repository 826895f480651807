#include "train/batch_loader.hpp"

#include "core/timed_region.hpp"

namespace trainstone {

BatchLoader::BatchLoader(MicroBatchShape shape, Index vocab, Arena& arena)
    : m_vocab(vocab),
      m_tokens(arena.vector<std::int32_t>("tokens", shape.rows())),
      m_targets(arena.vector<std::int32_t>("targets", shape.rows())),
      m_order(arena.vector<std::int32_t>("rows by token", shape.rows())),
      m_begin(arena.vector<std::int32_t>("buckets", shape.rows() + 1)),
      m_bucket_token(arena.vector<std::int32_t>("tokens of buckets", shape.rows())) {}

MicroBatch BatchLoader::load(ExecutionSpace const& exec, BatchSource const& source, std::int64_t batch,
                             Index micro_batch) {
  TimedRegion const region([] { return "trainstone::train::load"; });
  exec.fence("trainstone::train::load: kernels may still read the previous micro-batch");
  source(batch, micro_batch, m_tokens.values(), m_targets.values());
  for (std::int32_t const target : m_targets.values()) // inputs are checked while they are sorted
    TRAINSTONE_REQUIRE(target >= 0 && target < m_vocab, "target {} is not in the vocabulary of {}", target, m_vocab);
  build_token_buckets(m_tokens.values(), m_vocab, m_order.values(), m_begin.values(), m_bucket_token.values());
  for (Mirrored const* array : {&m_tokens, &m_targets, &m_order, &m_begin, &m_bucket_token})
    Kokkos::deep_copy(exec, array->device, array->host);
  exec.fence("trainstone::train::load: the host will fill the arrays again");
  return {.tokens = m_tokens.device,
          .targets = m_targets.device,
          .buckets = {m_order.device, m_begin.device, m_bucket_token.device}};
}

} // namespace trainstone
