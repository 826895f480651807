// How devices go over flat vectors, on whatever kernels run: hosts have another way, which the tests of the kernels
// see.

#include "kernels/common/flat.hpp"
#include "support/instances.hpp"
#include "support/views.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using namespace trainstone::test;

namespace {

/// sums += terms, rounded to 16 bits, and how often an element was computed, and in which width.
struct Addition {
  static constexpr int packet = Impl::packet_of<bf16, float>;
  bf16 const* terms;
  float* sums;
  bf16* rounded;
  int* times;
  int* widths;

  bool is_aligned() const { return Impl::aligned_for(packet, terms, sums, rounded); }

  template <int n>
  KOKKOS_INLINE_FUNCTION void operator()(Index i, Impl::Width<n>) const {
    auto const term = Impl::load_floats<n>(terms + i);
    auto sum = Impl::load_floats<n>(sums + i);
    for (int j = 0; j < n; ++j) {
      sum[j] += term[j];
      ++times[i + j];
      widths[i + j] = n;
    }
    Impl::store_floats<n>(sums + i, sum);
    Impl::store_floats<n>(rounded + i, sum);
  }
};

struct Sums {
  std::vector<float> sums;
  std::vector<std::uint16_t> rounded;
  bool operator==(Sums const&) const = default;
};

/// Elements [begin, begin + count) of vectors that begin where packets may.
template <class Chunks>
Sums add(ExecutionSpace const& exec, Index begin, Index count, int expected_width) {
  std::vector<bf16> const terms = stored<bf16>(random_values(begin + count, 5));
  DeviceTensor<bf16> const from(terms), rounded(begin + count + 9, bf16{7});
  DeviceTensor<float> const sums(random_values(begin + count + 9, 6));
  DeviceTensor<int> const times(begin + count + 9, 0), widths(begin + count + 9, 0);
  Addition const addition{from.vector().data() + begin, sums.vector().data() + begin, rounded.vector().data() + begin,
                          times.vector().data() + begin, widths.vector().data() + begin};
  Impl::launch_flat<Chunks>({.label = "trainstone::test::flat"}, exec, count, addition);
  std::vector<int> const computed = times.values(), in_width = widths.values();
  for (Index i = 0; i < begin + count + 9; ++i) {
    INFO("element " << i << " of " << count << " from " << begin);
    REQUIRE(computed[static_cast<std::size_t>(i)] == (i >= begin && i < begin + count ? 1 : 0));
  }
  CHECK((count == 0 || in_width[static_cast<std::size_t>(begin)] == expected_width));
  Sums result{sums.values(), {}};
  for (bf16 const value : rounded.values()) result.rounded.push_back(value.bits);
  return result;
}

} // namespace

TEST_CASE("devices compute every element once, in packets and alone, with the bits of hosts", "[flat]") {
  ExecutionSpace const exec;
  constexpr int packet = Addition::packet;
  static_assert(packet == 4 && Impl::packet_of<bf16> == 8 && Impl::packet_of<float> == 4);
  Index const chunk = Impl::DeviceChunks::elements<Addition>;
  for (Index const begin : {0, 1, 2, 3, 4, 8})
    for (Index const count : {Index{0}, Index{1}, Index{3}, Index{4}, Index{5}, Index{257}, chunk - 1, chunk, chunk + 1,
                              3 * chunk + 7, Index{20011}}) {
      int const width = begin % packet == 0 && count >= packet ? packet : 1;
      Sums const expected = add<Impl::HostChunks>(exec, begin, count, 1);
      CHECK(add<Impl::DeviceChunks>(exec, begin, count, width) == expected);
      CHECK(add<Impl::DeviceChunks>(smaller_instance(), begin, count, width) == expected);
    }
}

TEST_CASE("a part of a chunk that begins between packets has packets behind its first elements", "[flat]") {
  ExecutionSpace const exec;
  DeviceTensor<bf16> const terms(stored<bf16>(random_values(64, 1))), rounded(64, bf16{});
  DeviceTensor<float> const sums(64, 0.0F);
  DeviceTensor<int> const times(64, 0), widths(64, 0);
  Addition const addition{terms.vector().data(), sums.vector().data(), rounded.vector().data(), times.vector().data(),
                          widths.vector().data()};
  Kokkos::parallel_for(
      "trainstone::test::part_of_chunk", Impl::DeviceChunks::policy<Addition>(exec, 1),
      KOKKOS_LAMBDA(Impl::Team const& team) { Impl::DeviceChunks::run(team, 3, 30, true, addition); });
  std::vector<int> const found = widths.values();
  for (std::size_t i = 0; i < 64; ++i) {
    INFO("element " << i);
    int const width = i < 3 || i >= 30 ? 0 : i < 4 || i >= 28 ? 1 : 4;
    CHECK(found[i] == width);
    CHECK(times.values()[i] == (width == 0 ? 0 : 1));
  }
}
