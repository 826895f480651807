// The list of configurations of the equivalence matrix on stages: that it is complete, that a run accepts every row,
// and that the quick list leaves no value out.

#include "train/verification/mesh_matrix.hpp"

#include "parallel/plan/mesh.hpp"
#include "parallel/plan/parallel_problems.hpp"
#include "parallel/plan/pipeline_problems.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

using Values = std::map<std::string, std::set<std::string>>; ///< by column

std::string schedule_of(ParallelConfig const& parallel) {
  return fmt::format("{} {}", parallel.pipeline_schedule, parallel.pipeline_chunks);
}

Values values_of(std::vector<MatrixRow> const& rows) {
  Values values;
  for (MatrixRow const& row : rows) {
    ParallelConfig const& parallel = row.parallel;
    values["micro-batches and recipe"].insert(fmt::format("{} {}", row.micro_batches, to_string(row.recipe)));
    values["stages and schedule"].insert(fmt::format("{} {}", parallel.pipeline, schedule_of(parallel)));
    values["strategy"].insert(fmt::format("{} {}", to_string(parallel.strategy), parallel.zero_stage));
    values["stages and cut"].insert(fmt::format("{} {}", parallel.pipeline, static_cast<int>(parallel.stage_cut)));
    values["delays"].insert(fmt::format("{}", static_cast<int>(row.delays)));
    values["recomputation"].insert(fmt::format("{}", static_cast<int>(row.recompute.front())));
    values["bucket"].insert(parallel.bucket_bytes == tiny_bucket ? "tiny" : "default");
    values["unit"].insert(fmt::format("{}", parallel.unit));
    values["overlap"].insert(parallel.overlap ? "yes" : "no");
    values["algorithm"].insert(row.algorithm);
  }
  return values;
}

} // namespace

TEST_CASE("a run accepts every row of the mesh") {
  Rank const ranks = GENERATE(1, 2, 4, 8);
  bool const quick = GENERATE(false, true);
  for (MatrixRow const& row : mesh_matrix(ranks, quick)) {
    INFO(describe(row, ranks));
    Rank const data = mesh_of(row.parallel, ranks).data();
    CHECK(row.parallel.pipeline * data == ranks);
    CHECK(data <= 2);
    CommConfig comm;
    comm.allreduce = comm.reduce_scatter = comm.reduce = row.algorithm;
    CHECK_FALSE(find_parallel_problem(row.parallel, comm, data, row.micro_batches / data));
    CHECK_FALSE(find_pipeline_problem(row.parallel, ranks, row.layers, row.micro_batches / data));
  }
}

TEST_CASE("the mesh has every schedule with every strategy, recomputation, delay and kind of training") {
  // by stages: rows of one kind of training; 4 strategies, 9 pairs of recomputation and delay, schedules, and cuts
  std::map<Rank, std::size_t> const rows_of{
      {1, 4 * 9}, {2, 4 * (5 * 9 + 4 * 2)}, {4, 4 * (5 * 9 + 4 * 2)}, {8, 4 * (5 * 9 + 5 * 2)}};
  for (Rank const ranks : {1, 2, 4, 8}) {
    std::size_t expected = 4 * rows_of.at(ranks);
    if (ranks > 1) expected += 4 * rows_of.at(ranks / 2);
    CHECK(mesh_matrix(ranks, false).size() == expected);
  }
  std::set<std::string> different;
  std::size_t even = 0;
  for (MatrixRow const& row : mesh_matrix(8, false)) {
    if (row.parallel.stage_cut != StageCut::even) continue;
    ++even;
    different.insert(fmt::format("{} {} {} {} {} {} {} {}", row.micro_batches, to_string(row.recipe),
                                 row.parallel.pipeline, schedule_of(row.parallel), to_string(row.parallel.strategy),
                                 row.parallel.zero_stage, static_cast<int>(row.delays),
                                 static_cast<int>(row.recompute.front())));
  }
  CHECK(different.size() == even);
}

TEST_CASE("the quick mesh has every value of every column") {
  Rank const ranks = GENERATE(2, 4, 8);
  CHECK(values_of(mesh_matrix(ranks, true)) == values_of(mesh_matrix(ranks, false)));
  // one stage of one rank: there is less to combine, but what others are compared with
  Values const of_one = values_of(mesh_matrix(1, true)), of_all = values_of(mesh_matrix(1, false));
  for (auto const* const column : {"micro-batches and recipe", "strategy", "delays"})
    CHECK(of_one.at(column) == of_all.at(column));
  std::size_t rows = 0;
  for (Rank const some : {1, 2, 4, 8}) rows += mesh_matrix(some, true).size();
  CHECK(rows == 4 + 24 + 40 + 40);
}

TEST_CASE("the mesh of slices has tensor ranks with and without shared positions, with every strategy") {
  GptOptions options;
  options.slices.blocks = 4;
  for (bool const quick : {false, true}) {
    std::set<std::string> different;
    std::size_t kept = 0, rows = 0;
    for (MatrixRow const& row : mesh_matrix(8, quick, true, options)) {
      ParallelConfig const& parallel = row.parallel;
      INFO(describe(row, 8));
      Rank const data = mesh_of(parallel, 8).data();
      CHECK(parallel.tensor * parallel.pipeline * data == 8);
      CHECK_FALSE(find_parallel_problem(parallel, {}, data, row.micro_batches / data));
      CHECK_FALSE(find_pipeline_problem(parallel, 8, row.layers, row.micro_batches / data));
      CHECK((!parallel.sequence || parallel.tensor > 1));
      if (parallel.tensor == 1) continue;
      kept += parallel.tensor_keep_gathered ? 1 : 0;
      rows += parallel.sequence ? 1 : 0;
      different.insert(fmt::format("{} {} {} {} {}", parallel.tensor, parallel.pipeline, parallel.sequence,
                                   to_string(parallel.strategy), parallel.zero_stage));
    }
    // tensor x stages: 2 x 1, 2, 4 and 4 x 1, 2, of 8 ranks; 4 strategies, and hsdp where there are several data ranks
    CHECK(different.size() == 2 * (5 + 5 + 4 + 5 + 4));
    CHECK(kept > 0);
    CHECK(kept < rows);
  }
}

TEST_CASE("the mesh follows the buffers and the options of the run") {
  for (MatrixRow const& row : mesh_matrix(4, true, false)) CHECK(row.algorithm == "ordered");
  GptOptions options;
  options.attention = AttentionKind::flash;
  CHECK(values_of(mesh_matrix(4, false, true, options)).at("recomputation").size() == 2);
  options.recompute = {Recompute::full};
  CHECK(values_of(mesh_matrix(4, false, true, options)).at("recomputation").size() == 1);
}

TEST_CASE("a row of the mesh says how the model is cut, and which schedule runs") {
  MatrixRow row = mesh_matrix(1, true).front();
  CHECK_THAT(describe(row, 4), ContainsSubstring("4 ranks, 1 stage "));
  row.parallel.pipeline = 2;
  row.parallel.pipeline_schedule = "interleaved";
  row.parallel.pipeline_chunks = 2;
  CHECK_THAT(describe(row, 4), ContainsSubstring("4 ranks, 2 stages, interleaved, 2 chunks, even "));
  row.parallel.pipeline_chunks = 1;
  row.parallel.stage_cut = StageCut::listed;
  row.parallel.stages = {8, 0};
  CHECK_THAT(describe(row, 4), ContainsSubstring("interleaved, 1 chunk, 8+0 "));
}
