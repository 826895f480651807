// When messages have gone through the ports of an emulated network, by ports in the memory of this process.

#include "comm/execution/network_ports.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <thread>
#include <vector>

using namespace trainstone;
using namespace std::chrono_literals;
using Impl::PortClocks;
using Impl::ports_between;
using Impl::RankPorts;

namespace {

/// Clocks of some ports, all free.
struct OwnClocks {
  explicit OwnClocks(std::size_t ports) : memory((PortClocks::bytes(ports) + 63) / 64) {}
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };
  std::vector<Line> memory;
  PortClocks clocks{memory.front().bytes.data()};

  PortClocks::Time take(std::vector<std::size_t> const& ports, PortClocks::Time now,
                        std::chrono::duration<double> busy) const {
    return clocks.take(ports, now, busy);
  }
};

constexpr PortClocks::Time start(7s);

} // namespace

TEST_CASE("what goes through a port waits for what went before", "[network]") {
  OwnClocks const own(1);
  CHECK(own.take({0}, start, 51us) == start + 51us);
  CHECK(own.take({0}, start, 50us) == start + 101us);
  CHECK(own.take({0}, start + 90us, 50us) == start + 151us); // posted while the second is in the port
  CHECK(own.take({0}, start + 400us, 52us) == start + 452us);
  CHECK(own.take({0}, start + 452us, 50us) == start + 502us);
}

TEST_CASE("a message waits for all of its ports, and occupies all of them as long", "[network]") {
  OwnClocks const own(4); // two senders' and two receivers'
  CHECK(own.take({0, 2}, start, 10us) == start + 10us);
  CHECK(own.take({1, 3}, start, 10us) == start + 10us); // beside it
  CHECK(own.take({1, 2}, start, 10us) == start + 20us);
  CHECK(own.take({0, 3}, start, 10us) == start + 20us);
  CHECK(own.take({0, 2}, start + 15us, 10us) == start + 30us);
  CHECK(own.take({3}, start, 10us) == start + 30us);
}

TEST_CASE("a port that is booked for later is free until then", "[network]") {
  OwnClocks const own(4); // two senders' and two receivers'
  CHECK(own.take({0, 2}, start, 10us) == start + 10us);
  CHECK(own.take({0, 3}, start, 10us) == start + 20us); // its sender is busy until then
  CHECK(own.take({1, 3}, start, 10us) == start + 10us);
  CHECK(own.take({1, 2}, start, 10us) == start + 20us);
  CHECK(own.take({1, 3}, start, 11us) == start + 31us);
  CHECK(own.take({2}, start + 20us, 5us) == start + 25us);
  CHECK(own.take({2, 3}, start, 5us) == start + 36us);
  CHECK(own.take({3}, start + 25us, 0s) == start + 36us + 1ns);
}

TEST_CASE("who comes late does not get time that others have forgotten", "[network]") {
  OwnClocks const own(1);
  CHECK(own.take({0}, start, 10us) == start + 10us);
  CHECK(own.take({0}, start + 20us, 10us) == start + 30us); // the first one is over
  CHECK(own.take({0}, start, 5us) == start + 15us);         // not before its end
}

TEST_CASE("what finds no time that is long enough goes in pieces", "[network]") {
  OwnClocks const own(4);
  CHECK(own.take({0, 2}, start, 10us) == start + 10us);
  CHECK(own.take({0, 3}, start, 10us) == start + 20us);
  CHECK(own.take({1, 3}, start + 1us, 10us) == start + 21us); // 9 us before the second message, 1 us behind it
  CHECK(own.take({1, 2}, start + 1us, 10us) == start + 20us); // while the third one waits
  CHECK(own.take({1}, start, 3us) == start + 23us);           // 1 us at first
}

TEST_CASE("a port that has more to remember than it can takes what comes behind the rest", "[network]") {
  OwnClocks const own(2);
  auto const booked = static_cast<int>(PortClocks::most_booked);
  for (int i = 0; i < booked; ++i) { // port 1 is always busy, port 0 for the third part of the time
    CHECK(own.take({1}, start, 2us) == start + (3 * i + 2) * 1us);
    CHECK(own.take({0, 1}, start, 1us) == start + (3 * i + 3) * 1us);
  }
  PortClocks::Time const last = start + 3 * booked * 1us;
  CHECK(own.take({0}, start, 1us) == last + 1us);
  CHECK(own.take({0}, start, 1us) == last + 2us);
  CHECK(own.take({0}, last + 10us, 1us) == last + 11us); // all the rest is over
}

TEST_CASE("times are rounded up to the clock's ticks, of which everything takes one", "[network]") {
  OwnClocks const own(1);
  CHECK(own.take({0}, start, std::chrono::duration<double>(0.4e-9)) == start + 1ns);
  CHECK(own.take({0}, start, 0s) == start + 2ns);
}

TEST_CASE("a network is slow by latency or by bytes, inside or between nodes", "[network]") {
  CHECK_FALSE(EmulatedNetwork{}.is_slow());
  CHECK(EmulatedNetwork::uniform({.latency = 1e-9}).is_slow());
  CHECK(EmulatedNetwork{{EmulatedLink{.seconds_per_byte = 1e-12}, EmulatedLink{}}}.is_slow());
  CHECK(EmulatedNetwork{{EmulatedLink{}, EmulatedLink{.latency = 1e-9}}}.is_slow());
}

TEST_CASE("threads that send at the same time queue, too", "[network]") {
  OwnClocks const own(2);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 1000; ++j) own.take({i % 2, 1 - i % 2}, start, 1us);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(own.take({1}, start, 0s) == start + 4000us + 1ns);
}

TEST_CASE("a message goes through the ports of both ranks, and of their nodes where ranks share them", "[network]") {
  using Ports = std::vector<std::size_t>;
  RankPorts const sender{.node = 0, .here = true, .out = 0, .in = 1, .node_out = 10, .node_in = 11};
  RankPorts const neighbour{.node = 0, .here = true, .out = 2, .in = 3, .node_out = 10, .node_in = 11};
  RankPorts const other{.node = 1, .here = true, .out = 4, .in = 5, .node_out = 12, .node_in = 13};
  RankPorts far = other;
  far.here = false;
  for (bool const node_port : {false, true}) CHECK(ports_between(sender, neighbour, node_port) == Ports{0, 3});
  CHECK(ports_between(sender, other, false) == Ports{0, 5});
  CHECK(ports_between(sender, other, true) == Ports{0, 5, 10, 13});
  CHECK(ports_between(other, sender, true) == Ports{4, 1, 12, 11});
  CHECK(ports_between(sender, far, false) == Ports{0});
  CHECK(ports_between(sender, far, true) == Ports{0, 10});
}
