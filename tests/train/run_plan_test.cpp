// The plan of a run against closed forms that are written down here independently of src/.

#include "train/plan/run_plan.hpp"

#include "core/error.hpp"
#include "core/views.hpp"
#include "support/run_configs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace trainstone;
using trainstone::test::make_config;

namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t granule) { return (value + granule - 1) / granule * granule; }

/// Elements of root's three groups and of all blocks, each padded to ranks * 256.
std::uint64_t padded_parameters(GptConfig const& m, std::uint64_t ranks) {
  auto const h = static_cast<std::uint64_t>(m.channels), layers = static_cast<std::uint64_t>(m.layers);
  std::uint64_t const vocab = round_up(static_cast<std::uint64_t>(m.vocab), 128);
  std::uint64_t const positions = static_cast<std::uint64_t>(m.context) * h, granule = ranks * 256;
  std::uint64_t const root = round_up(vocab * h, granule) + round_up(positions, granule) + round_up(2 * h, granule);
  return root + layers * round_up(12 * h * h + 13 * h, granule);
}

/// With which no message is copied, wherever kernels run.
constexpr char const* unstaged_buffers = host_reaches_memory ? "host" : "device";

} // namespace

TEST_CASE("state takes 4 + 4 + 8 bytes per padded parameter on every rank", "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97}, GptConfig{1, 1, 1, 1, 1});
  Rank const ranks = GENERATE(1, 2, 3, 4);
  RunPlan const plan = plan_run(make_config(model, model.context, {1, 1, ranks}), 0, ranks);
  std::uint64_t const elements = padded_parameters(model, static_cast<std::uint64_t>(ranks));
  CHECK(plan.memory_bytes()[MemoryCategory::parameters] == 4 * elements);
  CHECK(plan.memory_bytes()[MemoryCategory::gradients] == 4 * elements);
  CHECK(plan.memory_bytes()[MemoryCategory::optimizer] == 8 * elements);
}

TEST_CASE("gradient descent keeps nothing, with momentum 4 bytes per padded parameter", "[train][plan]") {
  RunConfig config = make_config({2, 3, 12, 11, 29}, 11, {1, 1, 2});
  config.optimizer.type = OptimizerType::sgd;
  CHECK(plan_run(config, 0, 2).memory_bytes()[MemoryCategory::optimizer] == 0);
  config.optimizer.momentum = 0.9;
  CHECK(plan_run(config, 0, 2).memory_bytes()[MemoryCategory::optimizer] == 4 * padded_parameters(config.model, 2));
}

namespace {

/// Closed forms of one row of the table, in elements: sent per rank and step, and held per rank.
struct Row {
  char const* name;
  ParallelConfig parallel;
  std::uint64_t sent_times_n; ///< N times what a rank sends, over Psi
  std::uint64_t reductions;   ///< collectives per step for 2 buckets: of 1 (reduce-scatter) or 2 (all-reduce) halves
  std::uint64_t gathers;      ///< all-gathers of one group per step
  std::uint64_t parameters_over, gradients_over, optimizer_over; ///< what Psi is divided by
};

std::vector<Row> rows(std::uint64_t n, std::uint64_t rank_micro_batches, std::uint64_t groups) {
  std::uint64_t const others = n - 1;
  auto const all_reduce = GradientReductionWay::all_reduce;
  return {
      {"ddp", {}, 2 * others, 4, 0, 1, 1, 1},
      {"ddp, reduced after every micro-batch",
       {.reduce = ReduceWhen::each},
       2 * rank_micro_batches * others,
       4 * rank_micro_batches,
       0,
       1,
       1,
       1},
      {"zero 1", {.strategy = Strategy::zero, .zero_stage = 1}, 2 * others, 2, groups, 1, 1, n},
      {"zero 1, reduced after every micro-batch",
       {.strategy = Strategy::zero, .zero_stage = 1, .reduce = ReduceWhen::each},
       (rank_micro_batches + 1) * others,
       2 * rank_micro_batches,
       groups,
       1,
       1,
       n},
      {"zero 1 with all-reduce",
       {.strategy = Strategy::zero, .zero_stage = 1, .gradient_reduction = all_reduce},
       3 * others,
       4,
       groups,
       1,
       1,
       n},
      {"zero 2",
       {.strategy = Strategy::zero, .zero_stage = 2},
       (rank_micro_batches + 1) * others,
       2 * rank_micro_batches,
       groups,
       1,
       n,
       n},
      {"zero 2 with all-reduce",
       {.strategy = Strategy::zero, .zero_stage = 2, .gradient_reduction = all_reduce},
       (2 * rank_micro_batches + 1) * others,
       4 * rank_micro_batches,
       groups,
       1,
       n,
       n},
      {"zero 3",
       {.strategy = Strategy::zero, .zero_stage = 3},
       3 * rank_micro_batches * others,
       2 * rank_micro_batches,
       2 * rank_micro_batches * groups,
       n,
       n,
       n},
  };
}

} // namespace

TEST_CASE("every strategy sends and holds what the closed forms say", "[train][plan]") {
  GptConfig const model = GENERATE(GptConfig{2, 3, 12, 11, 29}, GptConfig{3, 3, 36, 19, 97});
  Rank const ranks = GENERATE(1, 2, 3, 4, 8);
  Index const rank_micro_batches = GENERATE(1, 4);
  auto const n = static_cast<std::uint64_t>(ranks), groups = static_cast<std::uint64_t>(model.layers + 1);
  std::uint64_t const elements = padded_parameters(model, n);
  for (Row const& row : rows(n, static_cast<std::uint64_t>(rank_micro_batches), groups)) {
    INFO(row.name << ", " << ranks << " ranks, " << rank_micro_batches << " micro-batches per rank");
    RunConfig config = make_config(model, model.context, {1, rank_micro_batches, rank_micro_batches * ranks});
    config.parallel = row.parallel;
    config.parallel.first_bucket_bytes = config.parallel.bucket_bytes; // the last block, and all others with root
    for (Rank rank = 0; rank < ranks; ++rank) {
      RunPlan const plan = plan_run(config, rank, ranks);
      CHECK(plan.step_sent().bytes == 4 * row.sent_times_n * elements / n);
      CHECK(plan.step_sent().messages == (row.reductions + row.gathers) * (n - 1));
      CHECK(plan.memory_bytes()[MemoryCategory::parameters] == 4 * elements / row.parameters_over);
      CHECK(plan.memory_bytes()[MemoryCategory::gradients] == 4 * elements / row.gradients_over);
      CHECK(plan.memory_bytes()[MemoryCategory::optimizer] == 8 * elements / row.optimizer_over);
    }
  }
}

TEST_CASE("stage 2 by all-reduce stages whole buckets, as by reduce-scatter, and keeps a share of the sum",
          "[train][plan]") {
  GptConfig const model{3, 3, 36, 19, 97};
  Rank const ranks = GENERATE(2, 3, 4);
  RecipeName const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16);
  auto const n = static_cast<std::uint64_t>(ranks), elements = padded_parameters(model, n);
  std::uint64_t const block = round_up(12 * 36 * 36 + 13 * 36, n * 256), bytes = recipe == RecipeName::fp32 ? 4 : 2;
  RunConfig config = make_config(model, model.context, {1, 2, 2 * ranks});
  config.precision.recipe = recipe;
  config.parallel = {.strategy = Strategy::zero,
                     .zero_stage = 2,
                     .gradient_reduction = GradientReductionWay::all_reduce,
                     .bucket_bytes = static_cast<double>(bytes * block)};
  config.parallel.first_bucket_bytes = config.parallel.bucket_bytes;
  for (bool const two_in_flight : {true, false}) {
    config.parallel.in_flight = two_in_flight ? 2 : 1;
    RunPlan const plan = plan_run(config, 0, ranks);
    std::uint64_t staging = 0;
    for (MemoryItem const& item : plan.memory)
      if (item.name == "fresh gradients") staging = item.bytes;
    // root's gradients, which live from head to embed, and one block per reduction in flight
    std::uint64_t const root = elements - 3 * block, slots = two_in_flight ? 2 : 1;
    CHECK(staging == (bytes * (root + slots * block) + 63) / 64 * 64);
    CHECK(plan.memory_bytes()[MemoryCategory::gradients] == bytes * elements / n);
    config.parallel.gradient_reduction = GradientReductionWay::reduce_scatter;
    CHECK(plan_run(config, 0, ranks).memory_bytes() == plan.memory_bytes());
    config.parallel.gradient_reduction = GradientReductionWay::all_reduce;
  }
}

TEST_CASE("recipes hold and send what the closed forms say, in every stage", "[train][plan]") {
  struct Bytes {
    RecipeName recipe;
    std::uint64_t parameter, gradient, optimizer;
  };
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(1, 2, 3, 8);
  auto const n = static_cast<std::uint64_t>(ranks), elements = padded_parameters(model, n);
  using enum RecipeName;
  for (Bytes const& bytes :
       {Bytes{fp32, 4, 4, 8}, Bytes{mixed16, 2, 2, 12}, Bytes{mixed18, 2, 4, 12}, Bytes{mixed20, 2, 2, 16}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      INFO(to_string(bytes.recipe) << ", stage " << stage << ", " << ranks << " ranks");
      RunConfig config = make_config(model, model.context, {1, 1, ranks});
      config.precision.recipe = bytes.recipe;
      if (stage > 0) config.parallel = {.strategy = Strategy::zero, .zero_stage = stage};
      RunPlan const plan = plan_run(config, ranks - 1, ranks);
      CategoryBytes const held = plan.memory_bytes();
      CHECK(held[MemoryCategory::parameters] == bytes.parameter * elements / (stage >= 3 ? n : 1));
      CHECK(held[MemoryCategory::gradients] == bytes.gradient * elements / (stage >= 2 ? n : 1));
      CHECK(held[MemoryCategory::optimizer] == bytes.optimizer * elements / (stage >= 1 ? n : 1));
      // gradients in their own type: reduce-scatter, and all-gather in stage 0; parameters in theirs: once or twice
      std::uint64_t const sent = stage == 0   ? 2 * bytes.gradient
                                 : stage <= 2 ? bytes.gradient + bytes.parameter
                                              : bytes.gradient + 2 * bytes.parameter;
      CHECK(plan.step_sent().bytes == sent * elements * (n - 1) / n);
    }
  }
}

TEST_CASE("ordered mode sums gradients in fp32 whatever their type", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = GENERATE(1, 2, 4);
  auto const n = static_cast<std::uint64_t>(ranks), elements = padded_parameters(model, n);
  RunConfig config = make_config(model, model.context, {1, 4, 4 * ranks});
  config.precision.recipe = RecipeName::mixed16;
  config.parallel = {.strategy = Strategy::zero, .zero_stage = 1, .reduction = ReductionMode::ordered};
  RunPlan const plan = plan_run(config, 0, ranks);
  std::uint64_t const table = round_up(128 * 12, n * 256); // whose gradient has two parts
  CHECK(plan.memory_bytes()[MemoryCategory::gradients] == 4 * (elements + table));
  CHECK(plan.memory_bytes()[MemoryCategory::parameters] == 2 * elements);
  CHECK(plan.step_sent().bytes == ((4 + 2) * elements + 4 * table) * (n - 1) / n);
}

TEST_CASE("hybrid sharding sends 3 (F-1)/F inside of groups and 2/F (R-1)/R across them", "[train][plan]") {
  GptConfig const model{3, 3, 36, 19, 97};
  auto const [ranks, group] = GENERATE(std::pair{4, 2}, std::pair{6, 3}, std::pair{8, 2}, std::pair{8, 4});
  Index const rank_micro_batches = GENERATE(1, 4);
  bool const across_each = GENERATE(false, true);
  auto const n = static_cast<std::uint64_t>(ranks), f = static_cast<std::uint64_t>(group), r = n / f;
  auto const g = static_cast<std::uint64_t>(rank_micro_batches);
  std::uint64_t const elements = padded_parameters(model, n);
  RunConfig config = make_config(model, model.context, {1, rank_micro_batches, rank_micro_batches * ranks});
  config.parallel = {.strategy = Strategy::hsdp, .shard_group = group};
  if (across_each) config.parallel.reduce = ReduceWhen::each;
  RunPlan const plan = plan_run(config, 1, ranks);
  std::uint64_t const inside = 3 * g * elements * (f - 1) / f;
  std::uint64_t const across = (across_each ? g : 1) * 2 * (elements / f) * (r - 1) / r;
  CHECK(plan.step_sent().bytes == 4 * (inside + across));
  CHECK(plan.memory_bytes()[MemoryCategory::parameters] == 4 * elements / f);
  CHECK(plan.memory_bytes()[MemoryCategory::optimizer] == 8 * elements / f);
}

TEST_CASE("workers send Psi to the servers, a server W Psi / K to the workers, and holds 1/K of the state",
          "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  auto const [recipe, parameter, gradient, optimizer] =
      GENERATE(std::tuple{RecipeName::fp32, 4u, 4u, 8u}, std::tuple{RecipeName::mixed16, 2u, 2u, 12u});
  for (Rank workers = 1; workers <= 7; ++workers)
    for (Rank servers = 1; workers + servers <= 8; ++servers) {
      Rank const ranks = workers + servers;
      auto const w = static_cast<std::uint64_t>(workers), k = static_cast<std::uint64_t>(servers);
      RunConfig config = make_config(model, model.context, {1, 2, 2 * workers});
      config.precision.recipe = recipe;
      config.parallel = {.strategy = Strategy::parameter_server,
                         .servers = servers,
                         .granularity = Granularity::bucket,
                         .in_flight = 3};
      RunPlan const worker = plan_run(config, 0, ranks), server = plan_run(config, ranks - 1, ranks);
      std::uint64_t const elements = padded_parameters(model, k);
      std::uint64_t const units = worker.parallel.layout.units.size();
      CAPTURE(to_string(recipe), workers, servers);

      CategoryBytes const held = worker.memory_bytes(), served = server.memory_bytes();
      CHECK(held[MemoryCategory::parameters] == parameter * elements);
      CHECK(held[MemoryCategory::gradients] == gradient * elements);
      CHECK(held[MemoryCategory::optimizer] == 0);
      CHECK(served[MemoryCategory::parameters] == parameter * elements / k);
      CHECK(served[MemoryCategory::gradients] == gradient * elements / k);
      CHECK(served[MemoryCategory::optimizer] == optimizer * elements / k);
      CHECK(served[MemoryCategory::activations] == 0);
      CHECK(served[MemoryCategory::data] == 0);
      // The last block is a bucket, all the rest another one, of which a server keeps what the other workers have sent.
      std::uint64_t const block = round_up(12 * 12 * 12 + 13 * 12, 256 * k);
      auto const scratch = std::ranges::find(server.memory, "reduction scratch", &MemoryItem::name);
      CHECK(scratch->bytes == (w - 1) * gradient * (elements - block) / k);

      CHECK(worker.step_sent().messages == 2 * k);
      CHECK(worker.step_sent().bytes == gradient * elements);
      CHECK(worker.step_sent().reduced == 0);
      CHECK(server.step_sent().messages == w * units);
      CHECK(server.step_sent().bytes == w * parameter * elements / k);
      CHECK(server.step_sent().reduced == (w - 1) * elements / k);
      CHECK(worker.step_flops.gemm == plan_run(make_config(model, model.context, {1, 2, 2}), 0, 1).step_flops.gemm);
      CHECK(server.step_flops.gemm == 0);
      CHECK(server.step_launches < worker.step_launches);
    }
}

TEST_CASE("staging holds two blocks of a ring, per reduction in flight and gather, and cuts at one MiB",
          "[train][plan]") {
  GptConfig const model{2, 4, 128, 11, 8192};
  auto const n = std::uint64_t{2}, elements = padded_parameters(model, n);
  RunConfig config = make_config(model, model.context, {1, 1, 2});
  config.parallel = {.granularity = Granularity::step, .in_flight = 3, .prefetch = 0};
  config.comm.buffers = unstaged_buffers;
  RunPlan const host = plan_run(config, 0, 2);
  CHECK(engine_pinned_buffers(host.parallel).empty());
  config.comm.buffers = "staged";
  RunPlan const ddp = plan_run(config, 0, 2);
  std::uint64_t const block = 4 * elements / n;
  CHECK(ddp.memory_bytes()[MemoryCategory::buffers] == host.memory_bytes()[MemoryCategory::buffers] + 3 * 2 * block);
  CHECK(host.step_sent().messages == 2);
  CHECK(ddp.step_sent().messages == 2 * ((block + 1048575) / 1048576));
  CHECK(ddp.step_sent().bytes == host.step_sent().bytes);

  config.parallel = {.strategy = Strategy::zero, .zero_stage = 3, .prefetch = 2};
  config.precision.recipe = RecipeName::mixed16;
  RunPlan const zero = plan_run(config, 0, 2);
  std::uint64_t const root = static_cast<std::uint64_t>(zero.parallel.layout.largest_unit());
  CHECK(pinned_gather_bytes(zero.parallel) == 2 * 2 * root / n);
  CHECK(pinned_norm_bytes(zero.parallel) == 2 * round_up(8 * elements / 256 / n, 64));
  std::uint64_t staging = 0;
  for (PlannedTensor const& tensor : engine_pinned_buffers(zero.parallel)) staging += tensor.bytes;
  CHECK(staging == 2 * pinned_reduction_bytes(zero.parallel) + 3 * pinned_gather_bytes(zero.parallel) +
                       pinned_norm_bytes(zero.parallel));
}

TEST_CASE(
    "losses cost M values around the ring, with requests M + N, the norm an all-gather of one value per 256 parameters",
    "[train][plan]") {
  Rank const ranks = GENERATE(1, 2, 4);
  auto const n = static_cast<std::uint64_t>(ranks);
  GptConfig const model{1, 1, 4, 4, 7};
  RunConfig config = make_config(model, 4, {1, 2, 2 * ranks});
  for (int const stage : {0, 3}) {
    config.parallel = {.strategy = stage == 0 ? Strategy::ddp : Strategy::zero, .zero_stage = stage};
    RunPlan const plan = plan_run(config, ranks - 1, ranks);
    std::uint64_t const losses = 8 * 2 * 2 * (n - 1); // 2 N of them, in blocks of 2
    std::uint64_t const norm = stage == 0 ? 0 : 8 * padded_parameters(model, n) / 256 * (n - 1) / n;
    std::uint64_t const requests = 8 * 2 * (n - 1);
    CHECK(plan.step_control().bytes == losses + requests + norm);
    CHECK(plan.validation_control.bytes == losses);
  }
}

TEST_CASE("buckets cut what is too large, and their number shows in the messages", "[train][plan]") {
  GptConfig const model{2, 3, 12, 11, 29};
  Rank const ranks = 2;
  RunConfig config = make_config(model, model.context, {1, 1, ranks});
  config.parallel = {.strategy = Strategy::zero, .zero_stage = 2};
  config.parallel.bucket_bytes = config.parallel.first_bucket_bytes =
      2048; // a granule: 256 elements on each of 2 ranks
  std::uint64_t const granules = padded_parameters(model, 2) / 512;
  CHECK(plan_run(config, 0, ranks).step_sent().messages == granules + 3); // and 3 all-gathers
  config.parallel.first_bucket_bytes = 1e9;
  config.parallel.bucket_bytes = 1e9;
  CHECK(plan_run(config, 0, ranks).step_sent().messages == 2 + 3);
}

TEST_CASE("staged messages take pinned memory, which is told apart, and nothing else", "[train][plan]") {
  RunConfig config = make_config({3, 3, 12, 11, 29}, 11, {2, 3, 24});
  config.comm.buffers = unstaged_buffers;
  std::uint64_t const host = plan_run(config, 1, 4).memory_bytes().total();
  CHECK(plan_run(config, 1, 4).pinned_bytes == 0);
  config.comm.buffers = "staged";
  RunPlan const staged = plan_run(config, 1, 4);
  CHECK(staged.pinned_bytes > 0);
  CHECK(staged.memory_bytes().total() == host + staged.pinned_bytes);
}

TEST_CASE("an unknown all-reduce is refused and the known ones are named", "[train][plan]") {
  RunConfig config = make_config({1, 1, 4, 4, 7}, 4, {1, 1, 1});
  config.comm.allreduce = "rong";
  CHECK_THROWS_AS(plan_run(config, 0, 1), InputError);
}
