#include "core/push_bytes.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <vector>

using namespace trainstone;

TEST_CASE("pushed bytes arrive, all of them and no others, from and to any address", "[core]") {
  constexpr std::size_t room = 128, streamed = least_streamed_bytes;
  std::byte const untouched{0xee};
  for (std::size_t const bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{4097},
                                  streamed - 1, streamed, streamed + 63, streamed + 65}) {
    std::vector<std::byte> source(bytes + room);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
    for (std::size_t const from : {0, 3}) {
      for (std::size_t const to : {0, 1, 63}) {
        std::vector<std::byte> target(bytes + room, untouched);
        push_bytes(source.data() + from, target.data() + to, bytes);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < target.size(); ++i)
          wrong += target[i] != (i >= to && i < to + bytes ? source[i - to + from] : untouched) ? 1U : 0U;
        INFO(bytes << " bytes from " << from << " to " << to);
        CHECK(wrong == 0);
      }
    }
  }
}
