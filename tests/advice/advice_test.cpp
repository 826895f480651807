// The search among all ways: that it leaves out nothing that fits, and what it says is what plans say.

#include "advice/advice.hpp"

#include "advice/largest_fit.hpp"
#include "advice/least_time.hpp"
#include "core/error.hpp"
#include "train/plan/extreme_plans.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <set>

using namespace trainstone;

namespace {

DeckOnRanks deck_on(std::int64_t ranks) {
  return {R"(
model.layers = 4
model.heads = 4
model.channels = 64
model.context = 32
model.vocab = 256
data.source = "synthetic"
data.steps = 4
batch.micro = 1
batch.global = 8
comm.expected_ranks = 2
kernels.gemm = "kokkos"
)",
          {{}, {"comm.expected_ranks=" + std::to_string(ranks)}, {}},
          ranks,
          std::min<std::int64_t>(ranks, 2)};
}

StepMachine machine() {
  return {.model = uniform_machine({.alpha = 1e-6, .beta = 1e-9, .gamma = 1e-10}), .rates = {1e10, 1e10}};
}

/// Every way there is on 8 ranks, written down once more: bytes of all that are legal.
std::vector<std::pair<Way, std::uint64_t>> all_ways(DeckOnRanks const& asked) {
  std::vector<std::pair<Way, std::uint64_t>> all;
  constexpr std::array places{Residence::kernels, Residence::host, Residence::file};
  auto const add = [&](Way way) {
    for (Recompute const how : {Recompute::none, Recompute::selective, Recompute::full})
      for (bool const sequence : {false, true})
        for (Residence const optimizer : places)
          for (Residence const parameters : places) {
            if (parameters > optimizer) continue; // the optimizer's state is moved first
            way.recompute = how, way.sequence = sequence, way.optimizer = optimizer, way.parameters = parameters;
            DeckOnRanks const on = on_way(asked, asked.deck(), way, {1, 8});
            try {
              all.emplace_back(way, needed_memory(on));
            } catch (InputError const&) {
            }
          }
  };
  for (int const tensor : {1, 2, 4, 8})
    for (int const pipeline : {1, 2, 4, 8}) {
      if (8 % (tensor * pipeline) != 0) continue;
      int const data = 8 / tensor / pipeline;
      for (auto const& [schedule, chunks] : {std::pair("1f1b", 1), std::pair("gpipe", 1), std::pair("1f1b-eager", 1),
                                             std::pair("interleaved", 2), std::pair("interleaved", 4)}) {
        if (pipeline == 1 && std::string(schedule) != "1f1b") continue;
        Way const mesh{.tensor = tensor, .pipeline = pipeline, .data = data, .schedule = schedule, .chunks = chunks};
        for (int const stage : data > 1 ? std::vector{0, 1, 2, 3} : std::vector{0, 3}) {
          Way way = mesh;
          if (stage > 0) way.strategy = Strategy::zero, way.zero_stage = stage;
          add(way);
        }
        for (int group = 2; group < data; group *= 2) {
          Way way = mesh;
          way.strategy = Strategy::hsdp, way.shard_group = group;
          add(way);
        }
      }
    }
  return all;
}

} // namespace

TEST_CASE("of all ways that fit the search finds one with the least savings, and none that does not fit", "[advice]") {
  DeckOnRanks const asked = deck_on(8);
  std::vector<std::pair<Way, std::uint64_t>> const all = all_ways(asked);
  CHECK(all.size() > 600);
  for (std::uint64_t const memory : {600'000, 900'000, 1'500'000, 3'000'000, 100'000'000}) {
    INFO(memory);
    StepMachine moving = machine();
    moving.offload = OffloadRates{.copy = 1e8, .read = 2e7, .write = 1e7};
    Advice const advice = find_ways({.asked = asked, .memory = memory, .played = 1000}, moving);
    auto const listed = [&](Way const& way) {
      return std::ranges::any_of(advice.ranked, [&](RankedWay const& one) { return one.way == way; });
    };
    auto const saves_less = [](Way one, Way const& other) {
      auto const moves_less = [](Residence here, Residence there) {
        return here == there || here == Residence::kernels;
      };
      if (one == other || one.recompute > other.recompute || !moves_less(one.optimizer, other.optimizer) ||
          !moves_less(one.parameters, other.parameters))
        return false;
      one.recompute = other.recompute, one.optimizer = other.optimizer, one.parameters = other.parameters;
      // on one data rank stage 3 is there to move parameters
      if (one.data == 1) one.strategy = other.strategy, one.zero_stage = other.zero_stage;
      return one == other;
    };
    for (RankedWay const& one : advice.ranked) {
      auto const found = std::ranges::find(all, one.way, &std::pair<Way, std::uint64_t>::first);
      REQUIRE(found != all.end());
      if (one.played) CHECK(one.needed == found->second);
      CHECK(one.needed <= memory);
      DeckOnRanks answer = asked.with(one.keys);
      CHECK(needed_memory(answer) == found->second);
    }
    for (auto const& [way, needed] : all) {
      bool const is_of_use = way.data > 1 || way.zero_stage == 0 || way.parameters != Residence::kernels;
      if (needed > memory || !is_of_use) continue;
      bool const less = std::ranges::any_of(
          all, [&, &way = way](auto const& other) { return other.second <= memory && saves_less(other.first, way); });
      INFO(to_string(way));
      CHECK((listed(way) || less));
    }
    for (ExcludedMesh const& one : advice.excluded)
      for (auto const& [way, needed] : all)
        if (way.tensor == one.mesh.tensor && way.pipeline == one.mesh.pipeline) CHECK(needed > memory);
  }
}

TEST_CASE("ways with a timeline are in the order of their times, and few are of one mesh", "[advice]") {
  Advice const advice = find_ways({.asked = deck_on(8), .memory = {}, .played = 12}, machine());
  std::vector<double> times;
  std::multiset<std::pair<std::int64_t, std::int64_t>> of_mesh;
  for (RankedWay const& one : advice.ranked)
    if (one.played) {
      times.push_back(one.time.step);
      of_mesh.insert({one.way.tensor, one.way.pipeline});
      DeckOnRanks const on = deck_on(8).with(one.keys);
      CHECK(price_step(planned_run(on), machine()).step == one.time.step);
    }
  CHECK(times.size() == 12);
  CHECK(std::ranges::is_sorted(times));
  for (auto const& mesh : of_mesh) CHECK(of_mesh.count(mesh) <= most_of_a_mesh);
  CHECK(std::ranges::is_sorted(advice.ranked.begin() + 12, advice.ranked.end(), {}, &RankedWay::rough_seconds));
}

TEST_CASE("no timeline is shorter than the bound on its step", "[advice]") {
  std::set<Recompute> recomputed;
  std::multiset<bool> played;
  for (bool const sends_fast : {false, true})
    for (std::uint64_t const memory : {700'000, 1'000'000, 1'500'000, 100'000'000}) {
      StepMachine one = machine();
      if (sends_fast) one.model = uniform_machine({.alpha = 1e-9, .beta = 1e-13, .gamma = 1e-14});
      Advice const advice = find_ways({.asked = deck_on(8), .memory = memory, .listed = 1000, .played = 1000}, one);
      for (RankedWay const& way : advice.ranked) {
        if (!way.played) continue;
        INFO(to_string(way.way));
        CHECK(way.least_seconds <= way.time.step);
        CHECK(way.least_seconds > 0);
        recomputed.insert(way.way.recompute);
        played.insert(sends_fast);
        bool const computes_alone = way.way.tensor == 1 && way.way.pipeline == 1 && way.way.strategy == Strategy::ddp;
        if (sends_fast && computes_alone && memory == 100'000'000) CHECK(way.least_seconds > 0.7 * way.time.step);
      }
      CHECK(may_still_win(advice) <= std::ssize(advice.ranked));
    }
  CHECK(recomputed.size() == 3);
  CHECK(played.count(false) > 30);
  CHECK(played.count(true) > 30);
}

TEST_CASE("blocks of a last stage whose backward follows at once compute nothing again in the bound", "[advice]") {
  for (std::int64_t const ranks : {1, 2, 4})
    for (char const* const recompute : {"none", "selective", "full"}) {
      DeckOnRanks const asked = deck_on(ranks).with({"parallel.pipeline=" + std::to_string(ranks), "batch.global=32",
                                                     "memory.recompute=" + std::string(recompute)});
      ResolvedRun const run = planned_run(asked);
      PartTimes const times = part_times(run, plan_memory(run, 0), machine());
      INFO(ranks << " stages, recompute " << recompute);
      CHECK(least_seconds(run, times) <= price_step(run, machine()).step);
    }
}

TEST_CASE("a way is judged by its fullest stage, which may be one in the middle", "[advice]") {
  DeckOnRanks asked = deck_on(4).with({"model.layers=2", "model.heads=1", "model.channels=128", "data.sequence=8",
                                       "model.vocab=64", "model.context=8"});
  Way const stages{.pipeline = 4};
  auto const needed_by = [&](Way const& way) { return needed_memory(on_way(asked, asked.deck(), way, {1, 8})); };
  ResolvedRun const run = planned_run(on_way(asked, asked.deck(), stages, {1, 8}));
  std::uint64_t const ends = std::max(plan_memory(run, 0).kernel_memory(), plan_memory(run, 3).kernel_memory());
  REQUIRE(needed_by(stages) > ends); // embedding and head are stages of their own
  Way moved = stages;
  moved.optimizer = Residence::host;
  std::uint64_t const memory = needed_by(moved);
  REQUIRE(memory < needed_by(stages));
  AdviceRequest const request{.asked = asked, .memory = memory};
  StepMachine moving = machine();
  moving.offload = OffloadRates{.copy = 1e9, .read = 1e8, .write = 1e8};
  Advice const advice = find_ways(request, moving);
  auto const is_listed = [&](Way const& way) {
    return std::ranges::any_of(advice.ranked, [&](RankedWay const& one) { return one.way == way; });
  };
  CHECK(is_listed(moved));
  CHECK_FALSE(is_listed(stages));
  CHECK(ranks_that_fit(request, 4) == 4);
}

TEST_CASE("parameters are moved where nothing else fits, also on one rank", "[advice]") {
  DeckOnRanks asked = deck_on(1).with({"comm.expected_ranks=1"});
  Way way{.strategy = Strategy::zero,
          .zero_stage = 3,
          .recompute = Recompute::full,
          .optimizer = Residence::host,
          .parameters = Residence::host};
  std::uint64_t const memory = needed_memory(on_way(asked, asked.deck(), way, {1, 8}));
  way.parameters = Residence::kernels;
  REQUIRE(memory < needed_memory(on_way(asked, asked.deck(), way, {1, 8})));
  Advice const advice = find_ways({.asked = asked, .memory = memory}, machine());
  REQUIRE_FALSE(advice.ranked.empty());
  for (RankedWay const& one : advice.ranked) {
    CHECK(one.way.parameters != Residence::kernels);
    CHECK_FALSE(one.has_time);
    CHECK(needed_memory(asked.with(one.keys)) <= memory);
  }
  // of a deck that moves parameters already, too
  DeckOnRanks const moving = asked.with({"parallel.strategy=zero", "parallel.zero_stage=3", "memory.offload_param=file",
                                         "memory.offload_optimizer=file"});
  Advice const own = find_ways({.asked = moving, .memory = {}}, machine());
  CHECK(own.ranked.front().way.parameters == Residence::kernels);
}

TEST_CASE("a deck with a tensor grid is searched with grids, and its own grid is a way", "[advice]") {
  DeckOnRanks const asked = deck_on(8).with({"parallel.tensor_grid=[2, 2, 1]"});
  Way const own = own_way(asked);
  CHECK(own.features == 2);
  CHECK(own.data == 2);
  Advice const advice = find_ways({.asked = asked, .memory = {}, .played = 1000}, machine());
  RankedWay const* const same = least_change(own, advice.ranked);
  CHECK(changes(own, same->way) == 0);
  CHECK(needed_memory(asked.with(same->keys)) == needed_memory(asked));
  std::set<std::pair<std::int64_t, std::int64_t>> grids;
  for (RankedWay const& one : advice.ranked) grids.emplace(one.way.tensor, one.way.features);
  for (auto const& [x, y] : {std::pair(1, 1), {1, 2}, {2, 1}, {2, 2}, {4, 1}, {4, 2}}) CHECK(grids.contains({x, y}));
  Advice const without = find_ways({.asked = deck_on(8), .memory = {}}, machine());
  CHECK(std::ranges::all_of(without.ranked, [](RankedWay const& one) { return one.way.features == 1; }));
}

TEST_CASE("what was not played and may still be faster is counted", "[advice]") {
  AdviceRequest const all{.asked = deck_on(8), .memory = {}, .listed = 1, .played = 1000};
  Advice const advice = find_ways(all, machine());
  CHECK(may_still_win(advice) == 0); // all of these were played
  auto const best = [&](std::size_t listed) {
    return find_ways({.asked = deck_on(8), .memory = {}, .listed = listed, .played = listed}, machine());
  };
  CHECK(advice.ranked.front().time.step <= best(4).ranked.front().time.step);
  CHECK(may_still_win(best(4)) > 0);
}

TEST_CASE("a step that moves optimizer state takes the copies longer, and has no time without rates", "[advice]") {
  DeckOnRanks const asked = deck_on(8);
  StepMachine moving = machine();
  moving.offload = OffloadRates{.copy = 1e8, .read = 2e7, .write = 1e7};
  ResolvedRun const host = planned_run(asked.with({"memory.offload_optimizer=host"}));
  StepTime const with = price_step(host, moving), without = price_step(planned_run(asked), moving);
  double const elements = static_cast<double>(plan_memory(host, 0).parallel.layout.share_elements());
  CHECK(with.offload == Catch::Approx(elements * 12 / 1e8)); // gradients there, parameters there and back, in fp32
  CHECK(with.step == Catch::Approx(without.step + with.offload));
  CHECK(without.offload == 0);
  ResolvedRun const file = planned_run(asked.with({"memory.offload_optimizer=file"}));
  CHECK(price_step(file, moving).offload > elements * 8 * (1 / 2e7 + 1 / 1e7) / 2);
  CHECK_THROWS_AS(price_step(host, machine()), InputError);

  AdviceRequest const tight{.asked = asked, .memory = 900'000};
  auto const moved = [](Advice const& advice) {
    return std::ranges::count_if(advice.ranked,
                                 [](RankedWay const& one) { return one.way.moves() && (one.played || !one.has_time); });
  };
  Advice const timed = find_ways(tight, moving), untimed = find_ways(tight, machine());
  CHECK(timed.ranked.size() > untimed.ranked.size());
  CHECK(std::ranges::all_of(timed.ranked, &RankedWay::has_time));
  CHECK(moved(timed) > 0);
  auto const meshes_of = [](Advice const& advice, bool moving_ones) {
    std::set<std::pair<std::int64_t, std::int64_t>> meshes;
    for (RankedWay const& one : advice.ranked)
      if (one.way.moves() == moving_ones) meshes.emplace(one.way.tensor, one.way.pipeline);
    return meshes;
  };
  CHECK_FALSE(meshes_of(untimed, true).empty());
  for (auto const& mesh : meshes_of(untimed, true)) CHECK_FALSE(meshes_of(timed, false).contains(mesh));
  for (auto const& mesh : meshes_of(timed, true))
    CHECK((meshes_of(untimed, true).contains(mesh) || meshes_of(untimed, false).contains(mesh)));
  for (RankedWay const& one : untimed.ranked) CHECK(one.has_time == !one.way.moves());
  CHECK(std::ranges::is_partitioned(untimed.ranked, &RankedWay::has_time));
  for (RankedWay const& one : timed.ranked) {
    if (one.way.optimizer == Residence::kernels) continue;
    CHECK(one.on_host > 0);
    CHECK((one.in_file > 0) == (one.way.optimizer == Residence::file));
  }
}

TEST_CASE("no plan needs less than the bound on its state", "[advice]") {
  DeckOnRanks const asked = deck_on(8);
  for (auto const& [way, needed] : all_ways(asked))
    CHECK(least_state(way, asked.deck().config) <= static_cast<double>(needed));
}

TEST_CASE("where nothing fits, the number of ranks is named from which on something does", "[advice]") {
  AdviceRequest request{.asked = deck_on(1), .memory = 1'300'000};
  request.asked = request.asked.with({"comm.expected_ranks=1"});
  CHECK(find_ways(request, machine()).ranked.empty());
  std::optional<std::int64_t> const enough = ranks_that_fit(request, 64);
  REQUIRE(enough);
  CHECK(*enough > 1);
  for (std::int64_t ranks = 1; ranks <= *enough; ranks *= 2) {
    AdviceRequest there{.asked = deck_on(ranks), .memory = request.memory};
    CHECK(find_ways(there, machine()).ranked.empty() == (ranks < *enough));
  }
  request.memory = 1000;
  CHECK_FALSE(ranks_that_fit(request, 64));
}

TEST_CASE("where ranks cannot share positions, they may share the rest", "[advice]") {
  AdviceRequest request{.asked = deck_on(1), .memory = 4'200'000};
  request.asked = request.asked.with(
      {"comm.expected_ranks=0", "model.layers=1", "model.channels=256", "model.context=33", "batch.global=1"});
  std::optional<std::int64_t> const enough = ranks_that_fit(request, 64);
  REQUIRE(enough);
  CHECK(*enough > 1);
  for (std::int64_t ranks = 1; ranks <= *enough; ranks *= 2) {
    AdviceRequest there = request;
    there.asked.ranks = ranks;
    Advice const found = find_ways(there, machine());
    CHECK(found.ranked.empty() == (ranks < *enough));
    CHECK(std::ranges::none_of(found.ranked, [](RankedWay const& one) { return one.way.sequence; }));
  }
}

TEST_CASE("samples that do not divide on the deck's own mesh are micro-batches of one", "[advice]") {
  DeckOnRanks asked = deck_on(16);
  std::string const micro = "batch.micro = 1", accumulation = "batch.accumulation = 1";
  asked.text.replace(asked.text.find(micro), micro.size(), accumulation);
  WayBatch const batch = batch_of_ways(asked);
  CHECK(batch.micro == 1);
  CHECK(batch.global == 8);
  CHECK_FALSE(find_ways({.asked = asked, .memory = {}}, machine()).ranked.empty());
  CHECK_FALSE(ranks_that_fit({.asked = asked, .memory = 1000}, 64));
  asked.ranks = 4;
  CHECK(batch_of_ways(asked).micro == 2);
  asked.text.erase(asked.text.find(accumulation), accumulation.size());
  CHECK_THROWS_AS(batch_of_ways(asked), InputError); // its samples alone
}

TEST_CASE("a way names its recomputation where the deck lists one for each block", "[advice]") {
  DeckOnRanks const asked = deck_on(1).with({R"(memory.recompute=["full","full","none","none"])"});
  for (Recompute const how : {Recompute::none, Recompute::full}) {
    Way way = own_way(asked);
    way.recompute = how;
    std::vector<std::string> const keys = keys_of(way, batch_of_ways(asked), asked.deck());
    CHECK(std::ranges::count(keys, fmt::format("memory.recompute={}", to_string(how))) == 1);
  }
}

TEST_CASE("the least change of a deck is the way with the fewest other choices", "[advice]") {
  DeckOnRanks const asked = deck_on(8);
  Way const own = own_way(asked);
  CHECK(own.data == 8);
  CHECK(changes(own, own) == 0);
  Advice const all = find_ways({.asked = asked, .memory = {}}, machine());
  CHECK(changes(own, least_change(own, all.ranked)->way) == 0);
  std::uint64_t const needed = needed_memory(asked);
  Advice const less = find_ways({.asked = asked, .memory = needed - 1}, machine());
  CHECK(changes(own, least_change(own, less.ranked)->way) == 1);
  CHECK(least_change(own, {}) == nullptr);
}
