#include "kernels/accumulate.hpp"

#include "core/error.hpp"
#include "support/storage.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using namespace trainstone::test;

TEMPLATE_LIST_TEST_CASE("a sum is added in fp32 and rounded once, a copy is exact", "[accumulate]", StorageTypes) {
  ExecutionSpace const exec;
  Index const count = 20011; // two chunks and a part
  std::vector<TestType> const from = stored<TestType>(random_values(count, 1)),
                              to = stored<TestType>(random_values(count, 2));
  DeviceTensor<TestType> const source(from), sum(to), copy(to);
  accumulate(exec, Write::add, source.vector(), sum.vector());
  accumulate(exec, Write::overwrite, source.vector(), copy.vector());
  std::vector<double> const sums = widened(sum.values()), copies = widened(copy.values());
  for (std::size_t i = 0; i < from.size(); ++i) {
    INFO("element " << i);
    REQUIRE(sums[i] == static_cast<double>(to_float(from_float<TestType>(to_float(from[i]) + to_float(to[i])))));
    REQUIRE(copies[i] == static_cast<double>(to_float(from[i])));
  }
}

TEST_CASE("sums of other lengths or types are refused", "[accumulate]") {
  ExecutionSpace const exec;
  DeviceTensor<float> const three(3, 0.0F), four(4, 0.0F);
  DeviceTensor<bf16> const narrow(3, bf16{});
  CHECK_THROWS_AS(accumulate(exec, Write::add, three.vector(), four.vector()), Error);
  CHECK_THROWS_AS(accumulate(exec, Write::add, three.vector(), narrow.vector()), Error);
}
