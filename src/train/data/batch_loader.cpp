#include "train/data/batch_loader.hpp"

#include "core/timed_region.hpp"

namespace trainstone {

Mirrored::Mirrored(Arena& data, PinnedMemory& mirrors, char const* label, Index count)
    : m_array(data.vector<std::int32_t>(label, count)), m_values(m_array.data(), m_array.extent(0)) {
  if (mirrors.capacity() == 0) return;
  std::span<std::byte> const mirror = mirrors.take(m_values.size_bytes());
  m_values = {reinterpret_cast<std::int32_t*>(mirror.data()), m_values.size()};
}

Mirrored Mirrored::part(Index begin, Index count) const {
  auto const size = static_cast<std::size_t>(count);
  return {Vector<std::int32_t>(m_array.data() + begin, size), m_values.subspan(static_cast<std::size_t>(begin), size)};
}

void Mirrored::copy_to_device(ExecutionSpace const& exec) const {
  if (m_values.data() != m_array.data())
    copy_from_pinned(exec, std::as_bytes(m_values), reinterpret_cast<std::byte*>(m_array.data()));
}

BatchLoader::BatchLoader(Index rows, Index micro_batches, Index vocab, Arena& data, PinnedMemory& mirrors)
    : m_vocab(vocab),
      m_tokens(data, mirrors, "tokens", rows),
      m_targets(data, mirrors, "targets", rows),
      m_order(data, mirrors, "rows by token", rows),
      m_begin(data, mirrors, "buckets", rows + micro_batches),
      m_bucket_token(data, mirrors, "tokens of buckets", rows) {}

void BatchLoader::begin(ExecutionSpace const& exec) const {
  exec.fence("trainstone::train::load: kernels may still read the batches before");
}

MicroBatch BatchLoader::load(ExecutionSpace const& exec, BatchSource const& source, std::int64_t batch,
                             Index micro_batch, Index own, Index rows) {
  TimedRegion const region([] { return "trainstone::train::load"; });
  auto const own_part = [own](Mirrored const& all, Index count) { return all.part(own * count, count); };
  Mirrored const tokens = own_part(m_tokens, rows), targets = own_part(m_targets, rows),
                 order = own_part(m_order, rows), begin = own_part(m_begin, rows + 1),
                 bucket_token = own_part(m_bucket_token, rows);
  source(batch, micro_batch, tokens.values(), targets.values());
  for (std::int32_t const target : targets.values()) // inputs are checked while they are sorted
    TRAINSTONE_REQUIRE(target >= 0 && target < m_vocab, "target {} is not in the vocabulary of {}", target, m_vocab);
  build_token_buckets(tokens.values(), m_vocab, order.values(), begin.values(), bucket_token.values());
  for (Mirrored const* array : {&tokens, &targets, &order, &begin, &bucket_token}) array->copy_to_device(exec);
  return {.tokens = tokens.array(),
          .targets = targets.array(),
          .buckets = {order.array(), begin.array(), bucket_token.array()}};
}

} // namespace trainstone
