#include "deck/size_argument.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;

namespace {

constexpr std::uint64_t most = std::uint64_t{1} << 40;

std::uint64_t bytes(std::string_view text) { return read_size_argument(text, most).value_or(0); }

} // namespace

TEST_CASE("sizes are bytes, nccl-tests' powers of 1024, or have SI or binary units", "[size-argument]") {
  CHECK(bytes("1") == 1);
  CHECK(bytes("1000") == 1000);
  CHECK(bytes("80e9") == 80000000000);
  CHECK(bytes("8K") == 8192);
  CHECK(bytes("8k") == 8192);
  CHECK(bytes("3M") == 3 << 20);
  CHECK(bytes("1T") == most);
  CHECK(bytes("8kB") == 8000);
  CHECK(bytes("8 KiB") == 8192);
  CHECK(bytes("80GiB") == std::uint64_t{80} << 30);
  CHECK(bytes("80gb") == 80000000000);
  CHECK(bytes("0.5 TB") == 500000000000);
  CHECK(bytes("1.5K") == 1536);
  CHECK(bytes("7.9B") == 7);
  CHECK(bytes("123456789012") == 123456789012); // all digits
}

TEST_CASE("what is no size, nothing or too much is refused", "[size-argument]") {
  for (char const* text :
       {"", "K", "many", "8X", "8 K B", "8KBs", "-8", "0", "0.5", "0K", "nan", "inf", "1e400", "1025G"}) {
    INFO(text);
    CHECK(!read_size_argument(text, most));
  }
  CHECK(!read_size_argument("9", 8));
  CHECK(size_argument_problem(8).find("1 to 8 bytes") != std::string::npos);
}
