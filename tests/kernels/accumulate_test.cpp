#include "kernels/accumulate.hpp"

#include "core/error.hpp"
#include "support/storage.hpp"
#include "support/views.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

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

TEMPLATE_LIST_TEST_CASE("parts that begin anywhere have the sums of the whole", "[accumulate]", StorageTypes) {
  ExecutionSpace const exec;
  Index const count = 4099;
  std::vector<TestType> const from = stored<TestType>(random_values(count, 1)),
                              to = stored<TestType>(random_values(count, 2));
  DeviceTensor<TestType> const source(from), whole(to), cut(to), target(count, TestType{});
  accumulate(exec, Write::add, source.vector(), whole.vector());
  Index begin = 0;
  for (Index const end : {Index{3}, Index{8}, Index{25}, Index{2048}, count}) {
    ConstStoredVector const terms = ConstStoredVector(source.vector()).part(begin, end - begin);
    accumulate(exec, Write::add, terms, StoredVector(cut.vector()).part(begin, end - begin));
    accumulate(exec, Write::overwrite, terms, StoredVector(target.vector()).part(begin, end - begin));
    begin = end;
  }
  CHECK(widened(cut.values()) == widened(whole.values()));
  CHECK(widened(target.values()) == widened(from));
  accumulate(exec, Write::overwrite, ConstStoredVector(source.vector()).part(1, count - 1),
             StoredVector(target.vector()).part(0, count - 1)); // of another alignment
  std::vector<double> const moved = widened(target.values()), expected = widened(from);
  CHECK(std::equal(expected.begin() + 1, expected.end(), moved.begin()));
}

TEST_CASE("sums of other lengths or types are refused", "[accumulate]") {
  ExecutionSpace const exec;
  DeviceTensor<float> const three(3, 0.0F), four(4, 0.0F);
  DeviceTensor<bf16> const narrow(3, bf16{});
  CHECK_THROWS_AS(accumulate(exec, Write::add, three.vector(), four.vector()), Error);
  CHECK_THROWS_AS(accumulate(exec, Write::add, three.vector(), narrow.vector()), Error);
}
