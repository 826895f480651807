#include "kernels/cast.hpp"

#include "core/error.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <limits>

using namespace trainstone;
using namespace trainstone::test;

namespace {

std::vector<float> difficult_values() {
  std::vector<float> values = random_values(20011, 1, -70000.0, 70000.0); // beyond fp16's range, two chunks and a part
  float const special[] = {0.0F,
                           -0.0F,
                           1e-8F,
                           -3e-7F,
                           1e-40F,
                           65504.0F,
                           65520.0F,
                           std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  std::copy(std::begin(special), std::end(special), values.begin() + 8190);
  return values;
}

template <class To>
void check_round_trip() {
  ExecutionSpace const exec;
  std::vector<float> const values = difficult_values();
  Index const count = static_cast<Index>(values.size());
  DeviceTensor<float> const from(values), back(count, -1.0F);
  DeviceTensor<To> const to(count, To{});
  cast<float, To>(exec, from.vector(), to.vector());
  cast<To, float>(exec, to.vector(), back.vector());
  std::vector<To> const narrow = to.values();
  std::vector<float> const wide = back.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i << ", " << values[i]);
    To const expected = from_float<To>(values[i]);
    REQUIRE(narrow[i].bits == expected.bits);
    float const expected_back = to_float(expected);
    REQUIRE(std::memcmp(&wide[i], &expected_back, sizeof(float)) == 0);
  }
}

} // namespace

TEST_CASE("casts to bf16 and back equal the conversion of every element") { check_round_trip<bf16>(); }

TEST_CASE("casts to fp16 and back equal the conversion of every element") { check_round_trip<fp16>(); }

TEST_CASE("casts between types known at run time equal those between types, and copy between equal ones") {
  ExecutionSpace const exec;
  std::vector<float> const values = difficult_values();
  Index const count = static_cast<Index>(values.size());
  DeviceTensor<float> const from(values), back(count, -1.0F);
  DeviceTensor<bf16> const to(count, bf16{}), copy(count, bf16{});
  DeviceTensor<fp16> const other(count, fp16{});
  cast(exec, ConstStoredVector(from.vector()), StoredVector(to.vector()));
  cast(exec, ConstStoredVector(to.vector()), StoredVector(copy.vector()));
  cast(exec, ConstStoredVector(to.vector()), StoredVector(other.vector()));
  cast(exec, ConstStoredVector(to.vector()), StoredVector(back.vector()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i << ", " << values[i]);
    bf16 const expected = from_float<bf16>(values[i]);
    float const expected_back = to_float(expected);
    REQUIRE(to.values()[i].bits == expected.bits);
    REQUIRE(copy.values()[i].bits == expected.bits);
    REQUIRE(other.values()[i].bits == from_float<fp16>(expected_back).bits);
    REQUIRE(std::memcmp(&back.values()[i], &expected_back, sizeof(float)) == 0);
  }
}

TEST_CASE("parts that begin anywhere are cast as the whole is") {
  ExecutionSpace const exec;
  std::vector<float> const values = random_values(4099, 3);
  Index const count = static_cast<Index>(values.size());
  DeviceTensor<float> const from(values);
  DeviceTensor<bf16> const to(count, bf16{});
  Index begin = 0;
  for (Index const end : {Index{3}, Index{4}, Index{25}, Index{2048}, count}) {
    cast(exec, ConstStoredVector(from.vector()).part(begin, end - begin),
         StoredVector(to.vector()).part(begin, end - begin));
    begin = end;
  }
  for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(to.values()[i].bits == from_float<bf16>(values[i]).bits);
}

TEST_CASE("rounding in place leaves what the storage type would have kept, and fp32 alone") {
  ExecutionSpace const exec;
  std::vector<float> const values = difficult_values();
  for (Storage const storage : {Storage::fp32, Storage::bf16, Storage::fp16}) {
    DeviceTensor<float> const rounded(values);
    round_to(exec, storage, rounded.vector());
    std::vector<float> const found = rounded.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      INFO(to_string(storage) << ", element " << i << ", " << values[i]);
      float const expected = with_storage(storage, [&]<class T>() { return to_float(from_float<T>(values[i])); });
      REQUIRE(std::memcmp(&found[i], &expected, sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a cast refuses other lengths and accepts empty ranges") {
  ExecutionSpace const exec;
  DeviceTensor<float> const three(3, 0.0F), none(0, 0.0F);
  DeviceTensor<bf16> const four(4, bf16{}), empty(0, bf16{});
  CHECK_THROWS_AS((cast<float, bf16>(exec, three.vector(), four.vector())), Error);
  CHECK_NOTHROW((cast<float, bf16>(exec, none.vector(), empty.vector())));
}
