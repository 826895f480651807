// What an update moves, where vectors lie in a file, and in which chunks an update goes over them.

#include "parallel/plan/offload_plan.hpp"

#include "parallel/program/offload_prediction.hpp"
#include "support/run_configs.hpp"
#include "train/plan/run_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>

using namespace trainstone;
using trainstone::test::make_config;

namespace {

GptConfig const model{2, 3, 36, 19, 97};

RunConfig config_of(RecipeName recipe, Residence residence, double chunk, Rank ranks, Index stage) {
  RunConfig config = make_config(model, 19, {1, 1, ranks});
  config.precision.recipe = recipe;
  config.parallel.strategy = stage == 0 ? Strategy::ddp : Strategy::zero;
  config.parallel.zero_stage = stage;
  config.parallel.offload_optimizer = residence;
  config.parallel.offload_chunk_bytes = chunk;
  return config;
}

std::uint64_t in_blocks(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

} // namespace

TEST_CASE("chunks cover every share once, in order", "[train][offload]") {
  double const chunk = GENERATE(1.0, 4096.0, 12345.0, 1e12);
  Rank const ranks = GENERATE(1, 2, 3);
  RunPlan const plan = plan_run(config_of(RecipeName::mixed16, Residence::file, chunk, ranks, 1), 0, ranks);
  StateLayout const& layout = plan.parallel.layout;
  OffloadPlan const& offload = plan.parallel.offload;
  CHECK(offload.chunk % 1024 == 0);
  if (chunk < 1e6)
    CHECK(offload.chunk == static_cast<Index>(1024 * ((chunk + 3 * 4096 - 1) / (3 * 4096) >= 2 ? 2 : 1)));
  Index group = 0, done = 0;
  for (StateChunk const& one : update_chunks(offload, layout, 0, std::ssize(layout.groups) - 1)) {
    if (one.group != group) {
      CHECK(done == layout.share(group).size());
      group = one.group;
      done = 0;
    }
    CHECK(one.range.begin == done);
    CHECK(one.range.begin % 1024 == 0);
    CHECK(one.range.size() <= offload.chunk);
    CHECK_FALSE(one.range.empty());
    done = one.range.end;
  }
  CHECK(group == std::ssize(layout.groups) - 1);
  CHECK(done == layout.share(group).size());
}

TEST_CASE("chunks lie in the file one after the other, each with its vectors", "[train][offload]") {
  Rank const ranks = GENERATE(1, 2, 3);
  double const chunk = GENERATE(4096.0, 30000.0);
  RunPlan const plan = plan_run(config_of(RecipeName::mixed16, Residence::file, chunk, ranks, 1), 0, ranks);
  StateLayout const& layout = plan.parallel.layout;
  OffloadPlan const& offload = plan.parallel.offload;
  std::uint64_t end = 0;
  for (StateChunk const& one : update_chunks(offload, layout, 0, std::ssize(layout.groups) - 1))
    for (Index vector = 0; vector < 3; ++vector) { // master copy and two moments
      CHECK(file_place(offload, layout, one.group, vector, one.range.begin) == end);
      CHECK(file_place(offload, layout, one.group, vector, one.range.end - 1) ==
            end + 4 * static_cast<std::uint64_t>(one.range.size() - 1));
      end += in_blocks(4 * static_cast<std::uint64_t>(one.range.size()));
    }
  CHECK(plan.file_bytes == end);
}

TEST_CASE("an update moves gradients down and parameters up, and all of a file both ways", "[train][offload]") {
  auto const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed18, RecipeName::mixed20);
  auto const stage = GENERATE(0, 1, 2, 3);
  Rank const ranks = GENERATE(1, 2, 4);
  bool const mixed = recipe != RecipeName::fp32;
  std::uint64_t const parameter = mixed ? 2 : 4;
  std::uint64_t const gradient = recipe == RecipeName::mixed16 || recipe == RecipeName::mixed20 ? 2 : 4;
  std::uint64_t const vectors = mixed ? 3 : 2;

  RunPlan const resident = plan_run(config_of(recipe, Residence::kernels, 4096, ranks, stage), 0, ranks);
  CHECK(resident.update_moves == StateMoves{});
  StateLayout const& layout = resident.parallel.layout;
  std::uint64_t share = 0, file = 0, chunks = 0;
  for (Index group = 0; group < std::ssize(layout.groups); ++group) {
    auto const elements = static_cast<std::uint64_t>(layout.share(group).size());
    share += elements;
    file += vectors * in_blocks(4 * elements);
    chunks += (4 * elements + 4095) / 4096;
  }
  std::uint64_t const down = share * (gradient + (mixed ? 0 : parameter));

  RunPlan const host = plan_run(config_of(recipe, Residence::host, 4096, ranks, stage), 0, ranks);
  CHECK(host.update_moves == StateMoves{.to_host = down, .to_kernels = share * parameter});
  RunPlan const filed = plan_run(config_of(recipe, Residence::file, 4096, ranks, stage), 0, ranks);
  CHECK(filed.update_moves == StateMoves{down, share * parameter, file, file, 2 * chunks});

  // of memory, the state leaves the kernels': to the host's, or to none
  auto const optimizer = [](RunPlan const& plan) { return plan.memory_bytes()[MemoryCategory::optimizer]; };
  std::uint64_t const copies = recipe == RecipeName::mixed20 ? 4 * share : 0; // in chunks
  CHECK(optimizer(resident) == vectors * 4 * share + copies);
  CHECK(optimizer(host) == vectors * 4 * share);
  CHECK(optimizer(filed) == 0);
  std::uint64_t const chunk = in_blocks(gradient * 1024) + in_blocks(parameter * 1024) + (copies > 0 ? 4096 : 0);
  CHECK(host.pinned_bytes - resident.pinned_bytes == vectors * 4 * share + chunk + 4096);
  CHECK(filed.pinned_bytes - resident.pinned_bytes == chunk + 3 * vectors * 4096 + 4096);
}

TEST_CASE("shares of parameters are copied by gathers, and a file of them is written by updates", "[train][offload]") {
  auto const recipe = GENERATE(RecipeName::fp32, RecipeName::mixed16, RecipeName::mixed18);
  auto const state = GENERATE(Residence::kernels, Residence::host, Residence::file);
  Rank const ranks = GENERATE(1, 2, 3);
  bool const mixed = recipe != RecipeName::fp32, moves = state != Residence::kernels;
  std::uint64_t const parameter = mixed ? 2 : 4, gradient = recipe == RecipeName::mixed16 ? 2 : 4;
  std::uint64_t const vectors = mixed ? 3 : 2;
  RunConfig config = config_of(recipe, state, 4096, ranks, 3);
  config.batch.accumulation = 2;
  config.batch.global *= 2;
  config.parallel.offload_parameters = Residence::host;
  RunPlan const host = plan_run(config, 0, ranks);
  config.parallel.offload_parameters = Residence::file;
  RunPlan const filed = plan_run(config, 0, ranks);
  StateLayout const& layout = filed.parallel.layout;
  std::uint64_t share = 0, file = 0, state_file = 0, chunks = 0;
  auto const chunk = static_cast<std::uint64_t>(filed.parallel.offload.chunk);
  CHECK(chunk * parameter % 4096 == 0);
  for (Index group = 0; group < std::ssize(layout.groups); ++group) {
    auto const elements = static_cast<std::uint64_t>(layout.share(group).size());
    share += elements;
    file += in_blocks(parameter * elements);
    state_file += vectors * in_blocks(4 * elements);
    chunks += (elements + chunk - 1) / chunk;
  }
  // each group forward and backward; embed and head have the root's three groups twice in a micro-batch, and blocks too
  CHECK(host.gather_moves == StateMoves{.to_kernels = 2 * 2 * share * parameter});
  CHECK(filed.gather_moves == StateMoves{0, 2 * 2 * share * parameter, 2 * 2 * file, 0, 2 * 2 * 3});
  CHECK(filed.evaluation_moves.to_kernels < 2 * share * parameter); // blocks once, the root twice

  StateMoves expected{.to_host = moves ? share * gradient : 0}; // kernels reach what lies on the host
  StateMoves on_host = expected;
  if (state == Residence::file) {
    on_host.read = on_host.written = state_file;
    on_host.requests = host.update_moves.requests;
    CHECK(host.update_moves.requests > 0);
  }
  CHECK(host.update_moves == on_host);
  expected.written = file + (state == Residence::file ? state_file : 0);
  expected.read = expected.written - (mixed ? file : 0);
  expected.requests = chunks * ((mixed ? 1 : 2) + (state == Residence::file ? 2 : 0));
  CHECK(filed.update_moves == expected);

  CHECK(host.memory_bytes()[MemoryCategory::parameters] == share * parameter);
  CHECK(filed.memory_bytes()[MemoryCategory::parameters] == 0);
  CHECK(filed.file_bytes == file + (state == Residence::file ? state_file : 0));
}

TEST_CASE("parameters are moved where ranks keep shares of them", "[train][offload]") {
  for (Index const stage : {0, 1, 2}) {
    RunConfig config = config_of(RecipeName::fp32, Residence::kernels, 4096, 2, stage);
    config.parallel.offload_parameters = Residence::host;
    CHECK_THROWS_AS(plan_run(config, 0, 2), InputError);
  }
}

TEST_CASE("a rank that owns nothing moves nothing", "[train][offload]") {
  RunConfig config = config_of(RecipeName::mixed16, Residence::file, 4096, 8, 1);
  config.parallel.partition = StatePartition::inter_layer;
  RunPlan const last = plan_run(config, 7, 8); // of three units
  REQUIRE(last.parallel.layout.share_elements() == 0);
  CHECK(last.update_moves == StateMoves{});
  CHECK(last.file_bytes == 0);
}

TEST_CASE("the optimizer's state is moved where each rank keeps a share of it", "[train][offload]") {
  RunConfig config = config_of(RecipeName::fp32, Residence::file, 4096, 2, 0);
  config.parallel.strategy = Strategy::naive;
  CHECK_THROWS_AS(plan_run(config, 0, 2), InputError);
  config.parallel.strategy = Strategy::parameter_server;
  CHECK_THROWS_AS(plan_run(config, 0, 2), InputError);
}

TEST_CASE("an update waits for the file as long as nothing else covers it", "[train][offload]") {
  RunPlan const plan = plan_run(config_of(RecipeName::fp32, Residence::file, 4096, 1, 0), 0, 1);
  StateMoves const& moves = plan.update_moves;
  auto const elements = static_cast<double>(plan.parallel.layout.share_elements());
  double const file_bytes = static_cast<double>(plan.file_bytes);
  OffloadRates const rates{.copy = 1e18, .read = 2e9, .write = 1e9};
  double const file = file_bytes / rates.read + file_bytes / rates.write;
  double const copies = static_cast<double>(moves.to_host + moves.to_kernels) / rates.copy;
  auto const predicted = [&](double update_of_element, double between) {
    PredictedMoves const found = predict_moves(plan.parallel, rates, update_of_element, between);
    CHECK(std::abs(found.file - file) < 1e-9 * file);
    CHECK(std::abs(found.copies - copies) < 1e-9 * file);
    return found.waits;
  };
  double const slow = 100 * file / elements; // kernels take longer than the file
  CHECK(predicted(slow, 1) == 0);
  CHECK(std::abs(predicted(0, 0) - file) < 1e-6 * file); // nothing covers it
  // behind the last kernel the last two chunks are written, and the first one is read
  std::vector<StateChunk> const chunks =
      update_chunks(plan.parallel.offload, plan.parallel.layout, 0, std::ssize(plan.parallel.layout.groups) - 1);
  auto const bytes_of = [](StateChunk const& chunk) {
    return 2 * static_cast<double>(in_blocks(4 * static_cast<std::uint64_t>(chunk.range.size())));
  };
  double const behind = (bytes_of(chunks.back()) + bytes_of(chunks[chunks.size() - 2])) / rates.write +
                        bytes_of(chunks.front()) / rates.read;
  CHECK(std::abs(predicted(0, behind / 2) - (file - behind / 2)) < 1e-6 * file);
  CHECK(std::abs(predicted(0, 1) - (file - behind)) < 1e-6 * file);
  CHECK(predicted(slow / 200, 1) < predicted(0, 1));

  // what kernels take meanwhile is a rate of the file's, where it was measured
  OffloadRates measured = rates;
  measured.update_of_element = slow / 200;
  PredictedMoves const found = predict_moves(plan.parallel, measured, slow, 1);
  CHECK(std::abs(found.slower - elements * (slow / 200 - slow)) < 1e-9 * elements * slow);
  CHECK(found.waits == predicted(slow / 200, 1));
  CHECK(found.total() == found.copies + found.slower + found.waits);
}

TEST_CASE("an update asks for the first parameters when it begins", "[train][offload]") {
  RunConfig config = config_of(RecipeName::fp32, Residence::file, 4096, 1, 3);
  config.parallel.offload_parameters = Residence::file;
  RunPlan const plan = plan_run(config, 0, 1);
  OffloadRates const rates{.copy = 1e18, .read = 2e9, .write = 1e9};
  StateChunk const first =
      update_chunks(plan.parallel.offload, plan.parallel.layout, 0, std::ssize(plan.parallel.layout.groups) - 1)
          .front();
  double const read = static_cast<double>(in_blocks(4 * static_cast<std::uint64_t>(first.range.size()))) / rates.read;
  PredictedMoves const found = predict_moves(plan.parallel, rates, 1e-3, 1);
  CHECK(std::abs(found.waits - read) < 1e-9 * read);
  double const file = static_cast<double>(plan.file_bytes) * (1 / rates.read + 1 / rates.write);
  CHECK(std::abs(found.file - file) < 1e-9 * file);
}
