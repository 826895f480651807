#include "lectures/taught_zero.hpp"

#include "comm/algorithms/registry.hpp"
#include "comm/schedule/counters.hpp"
#include "core/error.hpp"
#include "parallel/plan/recipe.hpp"

namespace trainstone {

namespace {

double bytes_per_parameter(RecipeName name, int stage, std::int64_t ranks) {
  return state_bytes(recipe(name), stage, 1.0, static_cast<double>(ranks)).total();
}

std::vector<ZeroMemoryRow> memory_rows() {
  std::vector<ZeroMemoryRow> rows{
      {0, "16", {120, 120, 120, 120, 120, 120}, {}, "", 0},
      {1, "4 + 12/N", {120, 52.5, 35.6, 31.4, 30.4, 30.1}, {}, "4 Psi", 0},
      {2, "2 + 14/N", {120, 41.3, 21.6, 16.6, 15.4, 15.1}, {}, "2 Psi", 0},
      {3, "16/N", {120, 30, 7.5, 1.88, 0.469, 0.117}, {}, "0", 0},
  };
  Recipe const mixed16 = recipe(RecipeName::mixed16);
  // what a stage leaves whole on every device
  std::array<std::int64_t, 4> const whole{mixed16.total(), mixed16.parameter + mixed16.gradient, mixed16.parameter, 0};
  for (ZeroMemoryRow& row : rows) {
    for (std::size_t i = 0; i < taught_zero_ranks.size(); ++i)
      row.bytes[i] = taught_zero_parameters * bytes_per_parameter(RecipeName::mixed16, row.stage, taught_zero_ranks[i]);
    row.limit = taught_zero_parameters * static_cast<double>(whole[static_cast<std::size_t>(row.stage)]);
  }
  return rows;
}

std::vector<ZeroRatioRow> ratio_rows(std::int64_t ranks) {
  std::vector<ZeroRatioRow> rows{{RecipeName::mixed16, {"4", "8", "N"}, {}},
                                 {RecipeName::mixed18, {"", "", ""}, {}},
                                 {RecipeName::mixed20, {"4", "8", "N"}, {}},
                                 {RecipeName::fp32, {"", "", ""}, {}}};
  for (ZeroRatioRow& row : rows)
    for (int stage = 1; stage <= 3; ++stage)
      row.exact[static_cast<std::size_t>(stage) - 1] =
          bytes_per_parameter(row.recipe, 0, ranks) / bytes_per_parameter(row.recipe, stage, ranks);
  return rows;
}

std::vector<ZeroLargestRow> largest_rows(std::int64_t ranks) {
  std::vector<ZeroLargestRow> rows{
      {0, "1.2", "20", {}, 0}, {1, "6", "100", {}, 0}, {2, "13", "200", {}, 0}, {3, "> 1000", "> 1000", {}, 0}};
  for (ZeroLargestRow& row : rows) {
    auto const largest = [&](std::int64_t n) {
      return taught_zero_card / bytes_per_parameter(RecipeName::mixed16, row.stage, n);
    };
    row.exact = {largest(64), largest(1024), largest(ranks)};
    row.with_tensor_ranks = static_cast<double>(taught_tensor_ranks) * largest(64);
  }
  return rows;
}

/// Elements that the busiest rank sends in one collective on all parameters or gradients.
std::int64_t count_ring(Collective collective, std::int64_t elements, Rank ranks) {
  Problem const problem = Problem::on_one_node(collective, Partition::even(elements, ranks));
  return static_cast<std::int64_t>(
      predict_traffic(make_schedule(problem, Algorithm::ring, 0), problem.topology, 1).bytes); // blocks are even
}

std::vector<ZeroVolumeRow> volume_rows(std::int64_t parameters, Rank ranks) {
  std::int64_t const share = parameters / ranks * (ranks - 1);
  std::int64_t const reduce_scatter = count_ring(Collective::reduce_scatter, parameters, ranks);
  std::int64_t const all_gather = count_ring(Collective::all_gather, parameters, ranks);
  std::int64_t const all_reduce = count_ring(Collective::all_reduce, parameters, ranks);
  std::string const two = "2 Psi (N-1)/N", three = "3 Psi (N-1)/N";
  return {{"data parallel, all-reduce", "1", two, 2 * share, all_reduce, "2 G Psi (N-1)/N"},
          {"stage 1", "1", two, 2 * share, reduce_scatter + all_gather, "(G+1) Psi (N-1)/N"},
          {"stage 1, all-reduce", "", three, 3 * share, all_reduce + all_gather, "(2G+1) Psi (N-1)/N"},
          {"stage 2", "1", two, 2 * share, reduce_scatter + all_gather, "(G+1) Psi (N-1)/N"},
          {"stage 2, all-reduce", "", three, 3 * share, all_reduce + all_gather, "(2G+1) Psi (N-1)/N"},
          {"stage 3", "1.5", three, 3 * share, reduce_scatter + 2 * all_gather, "3 G Psi (N-1)/N"}};
}

} // namespace

TaughtZero compare_taught_zero(std::int64_t ranks, MachineModel const& machine) {
  TRAINSTONE_REQUIRE_INPUT(2 <= ranks && ranks <= most_zero_lecture_ranks,
                           "--ranks {}: the lecture on ZeRO compares 2 to {} ranks", ranks, most_zero_lecture_ranks);
  std::int64_t const unit = 256 * ranks;
  std::int64_t const padded = (static_cast<std::int64_t>(taught_zero_parameters) + unit - 1) / unit * unit;
  TaughtZero lecture{ranks,
                     padded,
                     memory_rows(),
                     ratio_rows(ranks),
                     largest_rows(ranks),
                     volume_rows(padded, static_cast<Rank>(ranks)),
                     {},
                     {}};
  if (ranks > most_gather_ranks) return lecture;
  lecture.gathers = compare_taught_gathers(static_cast<Rank>(ranks), machine);
  lecture.units = compare_units(static_cast<Rank>(ranks), machine);
  return lecture;
}

} // namespace trainstone
