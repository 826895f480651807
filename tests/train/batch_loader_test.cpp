// Micro-batches come to where kernels read them by both ways: filled there by the host, or through mirrors in pinned
// memory, which is planned to the byte.

#include "train/data/batch_loader.hpp"

#include "core/host_copy.hpp"
#include "support/training_run.hpp"

#include <catch2/catch_test_macros.hpp>

#include <vector>

using namespace trainstone;
using namespace trainstone::test;

namespace {

using Arrays = std::vector<std::vector<std::int32_t>>;

Arrays arrays_of(MicroBatch const& batch) {
  ExecutionSpace const exec;
  Arrays all;
  for (auto const& array : {batch.tokens, batch.targets, batch.buckets.order, batch.buckets.begin, batch.buckets.token})
    all.push_back(copy_to_host(exec, array, "test"));
  return all;
}

} // namespace

TEST_CASE("batches are the same with mirrors and without, and mirrors take what data do", "[train][memory]") {
  ExecutionSpace const exec;
  Index const rank_micro_batches = 3;
  RunConfig const config = training_config({1, 1, 8, 8, 29}, {2, rank_micro_batches, 2 * rank_micro_batches});
  RunPlan const plan = plan_run(config, 0, 1);
  std::uint64_t const bytes = total_bytes(data_plan(plan));
  CHECK(total_bytes(mirror_plan(plan)) == (host_reaches_memory ? 0 : bytes));
  CHECK(plan.memory_bytes()[MemoryCategory::data] == bytes + total_bytes(mirror_plan(plan)));
  TrainingBatches const batches = training_batches(config.model.vocab);
  std::vector<std::vector<Arrays>> loaded;
  for (std::uint64_t const mirrored : {std::uint64_t{0}, bytes}) {
    if (mirrored == 0 && !host_reaches_memory) continue; // the host cannot fill the arrays
    MemoryLedger ledger;
    Allocation const memory(ledger, MemoryCategory::data, "data", bytes);
    PinnedMemory mirrors(ledger, "mirrors of data", mirrored, MemoryCategory::data);
    CHECK(ledger.current()[MemoryCategory::data] == bytes + mirrored);
    Arena data(memory.bytes());
    BatchLoader loader(rank_micro_batches * plan.shape.rows(), rank_micro_batches, config.model.vocab, data, mirrors);
    CHECK(data.used() == data.capacity());
    CHECK(mirrors.used() == mirrors.capacity());
    loader.begin(exec);
    std::vector<MicroBatch> all;
    for (Index own = 0; own < rank_micro_batches; ++own)
      all.push_back(loader.load(exec, batches.training, 0, own, own, plan.shape.rows()));
    loaded.emplace_back();
    for (MicroBatch const& batch : all) loaded.back().push_back(arrays_of(batch));
  }
  for (auto const& one : loaded) CHECK(one == loaded.front());
  CHECK(loaded.front()[0] != loaded.front()[1]);
}
