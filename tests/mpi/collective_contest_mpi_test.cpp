// What commbench and calibrate stand on: the check of results, and fitted curves.

#include "comm/algorithms/registry.hpp"
#include "comm/execution/buffers.hpp"
#include "comm/execution/control.hpp"
#include "comm/execution/shared_overhead.hpp"
#include "comm/measurement/calibration.hpp"
#include "comm/measurement/calibration_probes.hpp"
#include "comm/measurement/collective_contest.hpp"
#include "comm/measurement/exact_data.hpp"
#include "comm/measurement/mpi_collective.hpp"
#include "comm/schedule/counters.hpp"
#include "comm/schedule/expected_results.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/push_bytes.hpp"
#include "core/types.hpp"

#include "support/world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>

using namespace trainstone;

namespace {

/// Everybody of the collective that needs no shared memory, and MPI's own.
std::vector<Contestant> message_passing(Problem const& problem, ElementType type) {
  std::vector<Contestant> all;
  for (Algorithm const algorithm : algorithms_of(problem.collective))
    if (refusal(problem, algorithm).empty()) all.push_back({.algorithm = algorithm});
  if (mpi_refusal(problem, type).empty())
    for (MpiForm const form : mpi_forms(problem)) all.push_back({.algorithm = {}, .form = form});
  return all;
}

/// Memory for a problem and its contestants, shared as the problem says, and not a byte more of it.
struct Memory {
  Memory(Communicator const& communicator, Problem const& problem, ElementType type,
         std::vector<Contestant> const& contestants)
      : memory(ExecutionSpace(), communicator, ledger, "test",
               contest_bytes(communicator.buffers(), problem, communicator.rank(), type, contestants),
               problem.shared_memory) {}

  MeasuredBuffers const& buffers() const { return memory.buffers(); }

  MemoryLedger ledger;
  MeasuredMemory memory;
};

constexpr ContestOptions quick{.timing = {.warmup_calls = 1, .samples = 2, .calls = 1}};

void check_contest(Communicator& communicator, Problem const& problem, ElementType type) {
  ExecutionSpace const exec;
  std::vector<Contestant> const contestants = message_passing(problem, type);
  Memory const memory(communicator, problem, type, contestants);
  auto const results =
      run_contest(exec, communicator, problem, Operation::sum, type, contestants, memory.buffers(), quick);
  REQUIRE(results.size() == contestants.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    INFO(to_string(problem.collective) << " " << to_string(contestants[i]) << " " << to_string(type) << " of "
                                       << problem.elements());
    CHECK(results[i].wrong == 0);
    CHECK(results[i].samples.seconds.size() == 2);
  }
}

/// \return what was counted
Traffic check_all_contests(Communicator& communicator) {
  comm_counters() = {};
  for (Collective const collective : collectives) {
    if (has_servers(collective) && communicator.size() < 2) continue;
    for (Index const length : {1009, 840}) { // uneven blocks, and equal ones: other calls of MPI
      for (ElementType const type : {ElementType::float32, ElementType::bfloat16, ElementType::int64}) {
        Index const elements = !has_data(collective) ? 0 : length;
        check_contest(communicator, even_problem(collective, elements, communicator.topology(), 0, 1), type);
      }
    }
  }
  return comm_counters().total(Purpose::training);
}

Problem all_reduce_of(Index elements, Communicator const& communicator) {
  return {.collective = Collective::all_reduce,
          .partition = Partition::even(elements, communicator.size()),
          .topology = communicator.topology()};
}

} // namespace

TEST_CASE("all contestants of all collectives are exact in every type that they carry, staged messages count the same",
          "[mpi][contest][staged]") {
  Communicator communicator = Communicator::world();
  Traffic const host = host_reaches_memory ? check_all_contests(communicator) : Traffic{};
  communicator.use_buffers(MessageBuffers::staged, ExecutionSpace());
  Traffic const staged = check_all_contests(communicator);
  if (host_reaches_memory) CHECK(staged == host);
}

TEST_CASE("the result of MPI's call lies where a user finds it", "[mpi][contest][staged]") {
  test::skip_on_devices("the host reads it");
  Communicator communicator = Communicator::world();
  ExecutionSpace const exec;
  auto const check = [&](Problem const& problem, MpiForm form) {
    Rank const rank = communicator.rank();
    Memory const memory(communicator, problem, ElementType::float32, {{.algorithm = {}, .form = form}});
    auto const floats = [](Vector<std::byte> bytes) {
      return std::span(reinterpret_cast<float*>(bytes.data()), bytes.extent(0) / sizeof(float));
    };
    auto const data = floats(memory.buffers().data).first(static_cast<std::size_t>(problem.elements()));
    auto const scratch = floats(memory.buffers().scratch);
    ExactData const truth(problem, Operation::sum, ElementType::float32);
    truth.fill<float>(rank, data);
    MpiCollective mpi(exec, communicator, problem, Operation::sum, Vector<float>(data.data(), data.size()),
                      Vector<float>(scratch.data(), scratch.size()), memory.buffers().staging, form);
    mpi.run_as_users_do();
    auto const result = mpi.users_result();
    std::vector<Impl::Expected> const expected = Impl::expected_results(problem, rank);
    std::vector<float> image(data.size(), -1.0f);
    if (!expected.empty()) {
      auto const begin = static_cast<std::size_t>(expected.front().range.begin);
      auto const end = static_cast<std::size_t>(expected.back().range.end);
      REQUIRE(result.size() == (end - begin) * sizeof(float));
      std::memcpy(image.data() + begin, result.data(), result.size());
    }
    INFO(to_string(problem.collective) << " " << to_string(form) << " of " << problem.elements());
    CHECK(truth.wrong<float>(rank, std::span<float const>(image)) == 0);
    CHECK(result.empty() == expected.empty());
  };
  for (MessageBuffers const buffers : {MessageBuffers::host, MessageBuffers::staged}) {
    if (buffers == MessageBuffers::staged) communicator.use_buffers(buffers, exec);
    for (Collective const collective : collectives) {
      if (has_servers(collective) || !has_data(collective)) continue;
      for (Index const length : {1009, 840}) {
        Problem const problem = even_problem(collective, length, communicator.topology(), 0, 1);
        for (MpiForm const form : mpi_forms(problem)) check(problem, form);
      }
    }
  }
}

TEST_CASE("blocks that are streamed past the caches arrive", "[mpi][contest]") {
  test::skip_on_devices("they stream nothing past caches");
  Communicator communicator = Communicator::world();
  ExecutionSpace const exec;
  if (communicator.size() < 2 || communicator.topology().nodes() > 1) return;
  auto const threads = static_cast<Index>(exec.concurrency());
  Index const elements = threads * static_cast<Index>(least_streamed_bytes / sizeof(float) + 5) + 3;
  Problem problem = even_problem(Collective::broadcast, elements, communicator.topology(), 0, 1);
  problem.shared_memory = true;
  std::vector<Contestant> const push{{.algorithm = Algorithm::shared_push}};
  Memory const memory(communicator, problem, ElementType::float32, push);
  Index pushes = 0;
  DelayPoint::Scoped const counting(
      delay_point(), [&](char const* label) { pushes += std::string_view(label) == "trainstone::comm::push" ? 1 : 0; });
  auto const results =
      run_contest(exec, communicator, problem, Operation::sum, ElementType::float32, push, memory.buffers(), quick);
  CHECK(results[0].wrong == 0);
  Index const calls = 1 + 1 + 2 + 2 + 1; // check, warm-up, two to see how long it takes, two samples, check
  CHECK(pushes == (communicator.rank() == problem.root ? calls * (communicator.size() - 1) : 0));
}

TEST_CASE("a wrong result is found, whether it is wrong before or after the timing, and on whatever rank",
          "[mpi][contest]") {
  test::skip_on_devices("the host spoils what kernels work on");
  ExecutionSpace const exec;
  Communicator communicator = Communicator::world();
  if (communicator.size() < 2) return; // nothing is run
  Problem const problem = all_reduce_of(1009, communicator);
  std::vector<Contestant> const ring{{.algorithm = Algorithm::ring}};
  Memory const memory(communicator, problem, ElementType::float32, ring);
  float* const data = reinterpret_cast<float*>(memory.buffers().data.data());
  // at the end of the first call (the first check), or of the last one (the second check): one addition less
  for (int const bad_start : {1, 2}) {
    for (Rank const bad_rank : {0, communicator.size() - 1}) {
      int starts = 0;
      DelayPoint::Scoped const spoiling(delay_point(), [&](char const* label) {
        if (std::string_view(label) != "trainstone::comm::start") return;
        bool const first_or_last = ++starts == (bad_start == 1 ? 1 : 1 + 1 + 2 + 2 + 1);
        if (first_or_last && communicator.rank() == bad_rank) data[17] += 1;
      });
      auto const results =
          run_contest(exec, communicator, problem, Operation::sum, ElementType::float32, ring, memory.buffers(), quick);
      CHECK(starts == 1 + 1 + 2 + 2 + 1); // check, warm-up, two to see how long it takes, two samples, check
      CHECK(results[0].wrong == communicator.size()); // one element on every rank
    }
  }
}

TEST_CASE("MPI is timed in place and with two buffers, but where it has one form or ends the program", "[contest]") {
  using Forms = std::vector<MpiForm>;
  Forms const both{MpiForm::in_place, MpiForm::two_buffers}, in_place{MpiForm::in_place}, two{MpiForm::two_buffers};
  auto const forms = [](Collective collective, Index elements) {
    return mpi_forms(Problem::on_one_node(collective, Partition::even(elements, 3)));
  };
  for (Index const elements : {9, 10}) { // equal blocks, and unequal ones
    for (Collective const collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce,
                                        Collective::gather, Collective::scatter, Collective::all_to_all}) {
      INFO(to_string(collective) << " of " << elements);
      CHECK(forms(collective, elements) == both);
    }
    CHECK(forms(Collective::broadcast, elements) == in_place);
    CHECK(forms(Collective::barrier, elements) == in_place);
  }
  CHECK(forms(Collective::reduce_scatter, 9) == both);
  CHECK(forms(Collective::reduce_scatter, 10) == two);
}

TEST_CASE("MPI's own collectives refuse what they have no right answer for", "[mpi][contest]") {
  Communicator communicator = Communicator::world();
  ExecutionSpace const exec;
  Problem const problem = all_reduce_of(3, communicator);
  std::vector<bf16> data(3);
  CHECK_THROWS_AS(MpiCollective(exec, communicator, problem, Operation::sum, Vector<bf16>(data.data(), 3), {}),
                  InputError);
  Problem gather = problem;
  gather.collective = Collective::all_gather; // moves bits only
  CHECK(mpi_refusal(gather, ElementType::bfloat16).empty());
  Problem push = problem;
  push.collective = Collective::server_push;
  CHECK(mpi_refusal(push, ElementType::float32).find("parameter servers") != std::string::npos);
  for (Index const elements : {Index{1} << 31, Index{1} << 40}) {
    Problem const large = all_reduce_of(elements, communicator);
    CHECK(mpi_refusal(large, ElementType::float32) ==
          "MPI's collectives count elements in 31 bits, so no all_reduce of more than 2147483647");
  }
  CHECK(mpi_refusal(all_reduce_of((Index{1} << 31) - 1, communicator), ElementType::float32).empty());
  std::vector<float> too_short(2);
  Vector<float> const two(too_short.data(), 2);
  CHECK_THROWS_AS(MpiCollective(exec, communicator, problem, Operation::sum, two, {}), Error);
}

TEST_CASE("MPI is given a copy where messages are staged, of what it reads", "[mpi][contest][staged]") {
  Communicator communicator = Communicator::world();
  ExecutionSpace const exec;
  communicator.use_buffers(MessageBuffers::staged, exec);
  Problem const broadcast = even_problem(Collective::broadcast, 17, communicator.topology(), 0, 1);
  std::vector<float> data(17, communicator.rank() == 0 ? 3.0f : 5.0f);
  Vector<float> const view(data.data(), data.size());
  std::vector<std::byte> staging(
      mpi_staging_bytes(MessageBuffers::staged, broadcast, communicator.rank(), 4, MpiForm::in_place));
  CHECK(staging.size() == 128); // 17 elements on 64 bytes of their own
  CHECK(mpi_staging_bytes(MessageBuffers::host, broadcast, communicator.rank(), 4, MpiForm::in_place) == 0);
  MpiCollective mpi(exec, communicator, broadcast, Operation::sum, view, {}, staging);
  std::ranges::fill(staging, std::byte{1});
  mpi.run();
  CHECK(std::ranges::count(data, 3.0f) == 17);
  CHECK(std::memcmp(staging.data(), data.data(), 17 * sizeof(float)) == 0);
  CHECK(std::ranges::count(staging, std::byte{1}) == 128 - 17 * sizeof(float));
  CHECK_THROWS_AS(MpiCollective(exec, communicator, broadcast, Operation::sum, view, {}, std::span(staging).first(64)),
                  Error);
}

TEST_CASE("measured memory is zero, apart for data and scratch, and in the ledger while it lives", "[mpi][contest]") {
  test::skip_on_devices("the host reads what kernels work on");
  Communicator communicator = Communicator::world();
  MemoryLedger ledger;
  for (bool const shared : {true, false}) {
    MeasuredMemory const memory(ExecutionSpace(), communicator, ledger, "test", {100, 65, 200}, shared);
    MeasuredBuffers const& buffers = memory.buffers();
    CHECK(buffers.data.extent(0) == 128);
    CHECK(buffers.scratch.data() == buffers.data.data() + 128);
    CHECK(buffers.staging.size() == 200);
    CHECK((buffers.segment != nullptr) == shared);
    CHECK(std::count(memory.bytes().data(), memory.bytes().data() + 256, std::byte{}) == 256);
    CHECK(ledger.current()[MemoryCategory::buffers] == 256 + 256 + (shared ? shared_overhead(256) : 0));
  }
  CHECK(ledger.current().total() == 0);
}

TEST_CASE("a calibration knows what can be measured on its ranks, and all ranks know the same", "[mpi][calibration]") {
  ExecutionSpace const exec;
  int const ranks = Communicator::world().size();
  for (int const nodes : {1, 2}) {
    if (nodes > ranks) continue;
    Communicator communicator = test::world(nodes);
    MemoryLedger ledger;
    Calibration const calibration = calibrate_communication(exec, communicator, ledger,
                                                            {.max_bytes = 4096,
                                                             .factor = 8,
                                                             .hold_out = true,
                                                             .timing = {.warmup_calls = 1, .samples = 2, .calls = 1},
                                                             .shared_memory = host_reaches_memory});
    CHECK(calibration.machine.missing_for(communicator.topology(), host_reaches_memory) == "");
    for (CalibratedCurve const& curve : calibration.curves) {
      INFO(curve.name);
      CHECK(curve.fitted.size() == 4);   // 8, 64, 512, 4096
      CHECK(curve.held_out.size() == 3); // 12, 96, 768
      for (TimeSample const& sample : curve.fitted) {
        CHECK(sample.seconds > 0);
        for (double const other : all_gather_values(communicator, sample.seconds)) CHECK(other == sample.seconds);
      }
    }
    CHECK(ledger.current().total() == 0);
    auto const ratios = drift(exec, communicator, calibration.machine, host_reaches_memory);
    CHECK(ratios.size() >= calibration.curves.size());
    for (auto const& [name, ratio] : ratios) {
      INFO(name);
      CHECK(ratio > 0);
      for (double const other : all_gather_values(communicator, ratio)) CHECK(other == ratio);
    }
  }
}

TEST_CASE("a calibration measures messages as its communicator's buffers are, and shared memory only where asked",
          "[mpi][calibration][staged]") {
  ExecutionSpace const exec;
  CalibrationOptions const few{.max_bytes = 4096,
                               .factor = 8,
                               .hold_out = false,
                               .passes = 1,
                               .timing = {.warmup_calls = 1, .samples = 2, .calls = 1},
                               .shared_memory = false};
  Communicator communicator = Communicator::world();
  for (MessageBuffers const buffers : {MessageBuffers::host, MessageBuffers::staged}) {
    if (buffers == MessageBuffers::host && !host_reaches_memory) continue;
    communicator.use_buffers(buffers, exec);
    bool const has_partner = partner(communicator.topology(), communicator.rank(), Link::intra).has_value();
    bool const has_copies = buffers == MessageBuffers::staged && has_partner;
    MemoryLedger ledger;
    Calibration const calibration = calibrate_communication(exec, communicator, ledger, few);
    CHECK(calibration.machine.missing_for(communicator.topology(), false) == "");
    CHECK_FALSE(calibration.machine.node_barrier);
    CHECK_FALSE(calibration.machine.combine_to_all);
    CHECK(drift(exec, communicator, calibration.machine, false).size() == calibration.curves.size());
    // two parts, scratch, and copies of a message there and one back
    CHECK(ledger.high_water()[MemoryCategory::buffers] == 3 * 4096 + (has_copies ? 2 * 4096 : 0));
    CHECK(ledger.current().total() == 0);
  }
}
