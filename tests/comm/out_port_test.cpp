#include "comm/schedule/out_port.hpp"

#include <catch2/catch_test_macros.hpp>

#include <thread>
#include <vector>

using namespace trainstone;
using namespace std::chrono_literals;

TEST_CASE("a message takes latency and its bytes, behind those that were sent before", "[network]") {
  OutPort port({.latency = 50e-6, .seconds_per_byte = 1e-9});
  OutPort::Time const start(7s);
  CHECK(port.send(start, 1000) == start + 51us);
  CHECK(port.send(start, 0) == start + 101us);        // queued
  CHECK(port.send(start + 90us, 0) == start + 151us); // posted while the second is in the port
  CHECK(port.send(start + 400us, 2000) == start + 452us);
  CHECK(port.send(start + 452us, 0) == start + 502us);
}

TEST_CASE("times are rounded up to the clock's ticks", "[network]") {
  OutPort port({.latency = 0, .seconds_per_byte = 0.4e-9});
  OutPort::Time const start(7s);
  CHECK(port.send(start, 1) == start + 1ns);
  CHECK(port.send(start, 0) == start + 1ns);
}

TEST_CASE("a network is slow by latency or by bytes", "[network]") {
  CHECK_FALSE(EmulatedNetwork{}.is_slow());
  CHECK(EmulatedNetwork{.latency = 1e-9}.is_slow());
  CHECK(EmulatedNetwork{.seconds_per_byte = 1e-12}.is_slow());
}

TEST_CASE("threads that send at the same time queue, too", "[network]") {
  OutPort port({.latency = 1e-6});
  OutPort::Time const start(7s);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) port.send(start, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(port.send(start, 0) == start + 4001us);
}
