// How devices reduce and copy, played where kernels run.

#include "comm/execution/reduce.hpp"
#include "core/error.hpp"
#include "support/reduced_blocks.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <span>
#include <vector>

using namespace trainstone;
using namespace trainstone::test;

TEMPLATE_TEST_CASE("a device's way to combine gives the bits of the host's, for any number of parts", "[comm][reduce]",
                   ALL_TYPES) {
  ExecutionSpace const exec;
  constexpr Index n = 37;
  for (std::size_t const count : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 64, 100, 127, 128}) {
    auto const value = [](std::size_t part, std::size_t i) {
      auto const number = static_cast<double>((part * 37 + i * 11) % 97);
      return stored<TestType>(static_cast<Wide<TestType>>(number / (is_floating<TestType> ? 7 : 1)));
    };
    std::size_t const targets = count % 2 == 0 ? 1 : count; // of the device's
    Blocks<TestType> const parts(count, n, value), results(1 + targets, n);
    std::vector<TestType*> to;
    for (std::size_t target = 1; target <= targets; ++target) to.push_back(results.begin(target));
    for (Operation const operation : operations) {
      INFO(count << " parts, " << to_string(operation));
      combine<TestType>(exec, operation, parts.sources(), n, std::array{results.begin(0)});
      Impl::combine_by_element<TestType>(exec, operation, parts.sources(), n, to);
      exec.fence("trainstone::test: the host compares");
      auto const values = results.values();
      for (std::size_t target = 1; target <= targets; ++target) CHECK(different_bits(values[target], values[0]) == "");
    }
  }
  std::vector<float> part(1);
  std::vector<float const*> const many(static_cast<std::size_t>(most_device_parts) + 1, part.data());
  std::vector<float*> const one{part.data()}, as_many(many.size(), part.data());
  CHECK_THROWS_AS(Impl::combine_by_element<float>(exec, Operation::sum, many, 1, one), Error);
  CHECK_THROWS_AS(Impl::combine_by_element<float>(exec, Operation::sum, std::span(many).first(1), 1, as_many), Error);
}

TEMPLATE_TEST_CASE("what a device combines and copies sixteen bytes at a time has the same bits", "[comm][reduce]",
                   ALL_TYPES) {
  ExecutionSpace const exec;
  constexpr std::size_t stride = 64;
  for (std::size_t const count : {1, 2, 3, 4, 7, 8, 9, 16})
    for (std::size_t const n : {0, 1, 3, 16, 37, 64}) {
      std::vector<TestType> values;
      for (std::size_t i = 0; i < (count + 2) * stride; ++i) values.push_back(input<TestType>(i / stride, i % stride));
      test::DeviceTensor<TestType> const memory(values);
      auto const row = [&](std::size_t number) { return memory.vector().data() + number * stride; };
      std::vector<TestType const*> parts;
      std::vector<TestType*> targets;
      for (std::size_t part = 0; part < count; ++part) {
        parts.push_back(row(part));
        targets.push_back(row(part));
      }
      combine<TestType>(exec, Operation::sum, parts, static_cast<Index>(n), std::array{row(count)});
      Impl::combine_by_element<TestType>(exec, Operation::sum, parts, static_cast<Index>(n), targets);
      Impl::copy_by_element<TestType>(exec, row(0), static_cast<Index>(n), row(count + 1));
      exec.fence("trainstone::test: the host compares");
      std::vector<TestType> const found = memory.values();
      for (std::size_t i = 0; i < found.size(); ++i)
        values[i] = i % stride < n ? found[count * stride + i % stride] : values[i];
      INFO(count << " parts, " << n << " elements");
      CHECK(different_bits(found, values) == "");
    }
}
