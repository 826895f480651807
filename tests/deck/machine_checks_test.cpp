// Checks of keys that say how the machine is used, what it pretends to be, and which faults are injected.

#include "comm/execution/buffers.hpp"
#include "deck/deck_checks.hpp"
#include "support/deck_fixture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

using namespace trainstone;
using namespace trainstone::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

TEST_CASE("a delay has a place, a time and perhaps a rank of the run", "[deck]") {
  Deck const deck = read_small({"faults.delay.where=send", "faults.delay.time=2 ms", "faults.delay.rank=1"});
  CHECK(resolve(deck, 2).faults.delay_time == 2e-3);
  CHECK(resolve(read_small({"faults.delay.where=kernel", "faults.delay.time=2 ms"}), 1).faults.delay_rank == -1);
  CHECK(input_error_of([&] { resolve(deck, 1); }) ==
        "--set faults.delay.rank=1: faults.delay.rank = 1 is no rank of this run; nearest legal value: 0, or -1 for "
        "all");
  CHECK_THAT(error_with({"faults.delay.where=sent", "faults.delay.time=2 ms"}),
             ContainsSubstring(
                 "must be one of kernel, checkpoint, start, send, receive, barrier, wait, copy, reduce, combine"));
  CHECK_THAT(error_with({"faults.delay.where=send"}), ContainsSubstring("needs faults.delay.time"));
  CHECK_THAT(error_with({"faults.delay.time=2 ms"}), ContainsSubstring("needs faults.delay.where"));
  CHECK_THAT(error_with({"faults.delay.every=0"}), ContainsSubstring("out of range"));
}

TEST_CASE("a slowdown has a kernel and a factor above 1", "[deck]") {
  Deck const deck = read_small({"faults.slow.kernel=gemm", "faults.slow.factor=1.1"});
  CHECK(deck.config.faults.slow_factor == 1.1);
  CHECK(emulates_time(deck.config));
  CHECK(emulates_time(read_small({"faults.extra_message=true"}).config));
  CHECK_FALSE(emulates_time(read_small({}).config));
  CHECK_THAT(error_with({"faults.slow.kernel=gemm"}), ContainsSubstring("needs faults.slow.factor above 1"));
  CHECK_THAT(error_with({"faults.slow.factor=1.1"}), ContainsSubstring("needs faults.slow.kernel"));
  CHECK_THAT(error_with({"faults.slow.kernel=gem", "faults.slow.factor=2"}),
             ContainsSubstring("must be one of accumulate, "));
  CHECK_THAT(error_with({"faults.slow.kernel=gemm", "faults.slow.factor=0.9"}), ContainsSubstring("out of range"));
}

TEST_CASE("a pace may have a straggler, a rank of the run, and its time is emulated", "[deck]") {
  std::vector<std::string> const paced{"faults.pace.forward=20 ms", "faults.pace.backward=40 ms"};
  CHECK(read_small(paced).config.faults.pace_backward == 40e-3);
  CHECK(emulates_time(read_small(paced).config));
  CHECK(emulates_time(read_small({"faults.pace.backward=1 ms"}).config));
  Deck const deck = read_small({"faults.pace.forward=20 ms", "faults.straggler.rank=1", "faults.straggler.factor=1.5"});
  CHECK(resolve(deck, 2).faults.straggler_factor == 1.5);
  CHECK(input_error_of([&] { resolve(deck, 1); }) ==
        "--set faults.straggler.rank=1: faults.straggler.rank = 1 is no rank of this run; nearest legal value: 0");
  CHECK_THAT(error_with({"faults.pace.forward=20 ms", "faults.straggler.rank=0"}),
             ContainsSubstring("needs faults.straggler.factor above 1"));
  CHECK_THAT(error_with({"faults.pace.forward=20 ms", "faults.straggler.factor=2"}),
             ContainsSubstring("needs faults.straggler.rank"));
  CHECK_THAT(error_with({"faults.straggler.rank=0", "faults.straggler.factor=2"}),
             ContainsSubstring("needs faults.pace.forward or faults.pace.backward"));
  CHECK_THAT(error_with({"faults.straggler.sigma=0.5"}), ContainsSubstring("needs faults.pace.forward or"));
  CHECK_THAT(error_with({"faults.pace.forward=20 ms", "faults.straggler.seed=2"}),
             ContainsSubstring("faults.straggler.sigma"));
  CHECK(error_with({"faults.pace.forward=20 ms", "faults.straggler.sigma=0.5"}) == "no InputError");
  CHECK_THAT(error_with({"faults.pace.forward=61 s"}), ContainsSubstring("out of range"));
}

TEST_CASE("a call out of order has a step, a rank of several, and somebody who notices", "[deck]") {
  std::vector<std::string> const fault{"faults.order.step=2", "faults.order.rank=1", "comm.check_order=true"};
  Deck const deck = read_small(fault);
  CHECK(resolve(deck, 2).faults.order_rank == 1);
  CHECK_THAT(input_error_of([&] { resolve(deck, 1); }), ContainsSubstring("faults.order.rank needs other ranks"));
  Deck const beyond = read_small({"faults.order.step=2", "faults.order.rank=4", "comm.check_order=true"});
  CHECK_THAT(input_error_of([&] { resolve(beyond, 4); }), EndsWith("is no rank of this run; nearest legal value: 3"));
  CHECK_THAT(error_with({"faults.order.step=2", "faults.order.rank=1"}),
             StartsWith("--set faults.order.step=2: ") && EndsWith("it needs comm.check_order = true"));
  CHECK_THAT(error_with({"faults.order.step=2"}), ContainsSubstring("faults.order.step needs faults.order.rank"));
  CHECK_THAT(error_with({"faults.order.rank=2"}), ContainsSubstring("faults.order.rank needs faults.order.step"));
  CHECK_THAT(error_with({"faults.order.step=11", "faults.order.rank=1", "comm.check_order=true"}),
             ContainsSubstring("exceeds data.steps = 10"));
}

TEST_CASE("nodes can be emulated up to the number of ranks", "[deck]") {
  Deck const deck = read_small({"comm.emulated_nodes=2"});
  CHECK(resolve(deck, 2).comm.emulated_nodes == 2);
  CHECK(input_error_of([&] { resolve(deck, 1); }) ==
        "--set comm.emulated_nodes=2: comm.emulated_nodes = 2 exceeds the number of ranks; nearest legal value: 1");
}

TEST_CASE("buffers that the build cannot have are refused, and shared memory where kernels do not reach it", "[deck]") {
  CHECK(read_small().config.comm.buffers == "auto");
  CHECK(read_small({"comm.buffers=staged"}).config.comm.buffers == "staged");
  std::string const impossible = host_reaches_memory ? "device" : "host";
  CHECK(error_with({"comm.buffers=" + impossible})
            .starts_with(fmt::format("--set comm.buffers={0}: comm.buffers = \"{0}\" gives MPI {0} memory itself, ",
                                     impossible)));
  for (char const* const key :
       {"comm.allreduce", "comm.reduce_scatter", "comm.all_gather", "comm.reduce", "comm.broadcast"}) {
    RunConfig config = read_small({"comm.buffers=staged"}).config;
    CHECK_FALSE(find_neighbours_problem(config, "too far"));
    config.comm = with_algorithm(config.comm, key, "shared");
    CHECK_FALSE(find_buffers_problem(config));
    std::optional<ConfigProblem> const problem = find_neighbours_problem(config, "too far");
    REQUIRE(problem);
    CHECK_THAT(problem->message,
               StartsWith(fmt::format("{0} = \"shared\" moves data in shared memory, which devices do "
                                      "not share here (too far); {0} must be one of auto, ",
                                      key)) &&
                   !ContainsSubstring(", shared"));
  }
  for (char const* const buffers : {"comm.buffers=auto", "comm.buffers=staged"})
    CHECK_NOTHROW(read_small({buffers, "comm.allreduce=shared"}));
}

TEST_CASE("an emulated network is given by latency, bandwidth or both", "[deck]") {
  CHECK_FALSE(read_small().config.comm.emulated_network().is_slow());
  EmulatedNetwork const late = read_small({"comm.emulated_network.latency=50 us"}).config.comm.emulated_network();
  CHECK(late == EmulatedNetwork::uniform({.latency = 5e-5}));
  EmulatedNetwork const both =
      read_text(small_deck + "[comm]\nemulated_network = { latency = \"3 ms\", bandwidth = \"500 MB/s\" }\n")
          .config.comm.emulated_network();
  CHECK(both == EmulatedNetwork::uniform({.latency = 3e-3, .seconds_per_byte = 2e-9}));
  EmulatedNetwork const apart =
      read_small({"comm.emulated_network.latency=3 ms", "comm.emulated_network.inside.bandwidth=1 GB/s",
                  "comm.emulated_network.node_port=true"})
          .config.comm.emulated_network();
  CHECK(apart == EmulatedNetwork{{EmulatedLink{.seconds_per_byte = 1e-9}, EmulatedLink{.latency = 3e-3}}, true});
  CHECK_THAT(error_with({"comm.emulated_network.node_port=true"}),
             ContainsSubstring("comm.emulated_network.node_port is not read with comm.emulated_network.latency = "));
  CHECK(error_with({"comm.emulated_network.latency=50"}) ==
        "--set comm.emulated_network.latency=50: comm.emulated_network.latency is \"50\", must be a time with its unit "
        "(ns, us, ms, s, min, h), for example comm.emulated_network.latency = \"0 s\"");
  CHECK_THAT(error_with({"comm.emulated_network.bandwidth=-1 GB/s"}), ContainsSubstring("must be at least 0 B/s"));
  CHECK_THAT(error_of(small_deck + "[comm.emulated_network]\nbandwidth = 1e9\n"),
             ContainsSubstring("small.toml:15: comm.emulated_network.bandwidth is a number with a fraction, must be a "
                               "rate with its unit (B/s, "));
}

TEST_CASE("an emulated network refuses algorithms that move data in shared memory", "[deck]") {
  for (char const* key : {"comm.reduce_scatter", "comm.all_gather"}) {
    std::string const choice = std::string(key) + "=shared";
    CHECK_THAT(
        error_with({"parallel.strategy=zero", "parallel.zero_stage=1", choice, "comm.emulated_network.latency=1 us"}),
        StartsWith("--set " + choice) && ContainsSubstring("must be one of auto, ring, direct"));
  }
  for (char const* name : {"shared", "shared_copy", "hierarchical"}) {
    std::string const choice = std::string("comm.allreduce=") + name;
    CHECK(error_with({choice}) == "no InputError");
    CHECK_THAT(
        error_with({"parallel.strategy=zero", "parallel.zero_stage=1", choice, "comm.emulated_network.latency=1 us"}),
        StartsWith("--set " + choice + ": comm.allreduce = ") && ContainsSubstring("must be one of auto, naive, ") &&
            !ContainsSubstring(", shared") && !ContainsSubstring(", hierarchical"));
  }
  CHECK(error_with({"comm.allreduce=tree", "comm.emulated_network.latency=1 us"}) == "no InputError");
}

TEST_CASE("a fault names a step of the training and a part of the model", "[deck]") {
  auto const fault = [](std::string const& step, std::string const& part) {
    return error_with({"faults.nan.step=" + step, "faults.nan.unit=" + part});
  };
  for (char const* part : {"embed", "attention 0", "mlp 1", "head"}) CHECK(fault("10", part) == "no InputError");
  CHECK(fault("1", "block 2") ==
        "--set faults.nan.unit=block 2: faults.nan.unit = \"block 2\" is no part of the model: "
        "embed, attention 0, mlp 0 to mlp 1, head");
  for (char const* part : {"mlp", "mlp ", "mlp x", "mlp 1x", "mlp -1", "block 1", "tail"}) {
    CHECK_THAT(fault("1", part), ContainsSubstring("is no part of the model"));
  }
  CHECK_THAT(fault("11", "head"), ContainsSubstring("faults.nan.step = 11 exceeds data.steps = 10"));
  CHECK_THAT(error_with({"faults.nan.step=1"}), ContainsSubstring("faults.nan.step needs faults.nan.unit"));
  CHECK_THAT(error_with({"faults.nan.unit=head"}), ContainsSubstring("faults.nan.unit needs faults.nan.step"));
}

TEST_CASE("a rank that overflows needs a step, within the training", "[deck]") {
  CHECK_THAT(error_with({"faults.overflow.rank=1"}), ContainsSubstring("needs faults.overflow.step"));
  CHECK_THAT(error_with({"faults.overflow.step=1000000"}), ContainsSubstring("nearest legal value"));
  CHECK(error_with({"faults.overflow.step=1", "faults.overflow.rank=1"}) == "no InputError");
  Deck const deck = read_small({"faults.overflow.step=1", "faults.overflow.rank=2"});
  CHECK_THAT(input_error_of([&] { resolve(deck, 2); }),
             ContainsSubstring("no rank of this run; nearest legal value: 1"));
}
