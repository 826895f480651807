// Attention by products of warpgroups, played on the host: with factors where descriptors say, sums that are no numbers
// until they are awaited, and copies and products as late as they may be.

#include "support/played_attention.hpp"
#include "support/played_warpgroup.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fmt/ranges.h>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct PlayWarpgroups {
  using Lane = PlayedWarpgroupLane;
  Timing timing;

  template <class Kernel>
  void operator()(typename Kernel::Arguments const& arguments, std::span<std::byte> shared, int block) const {
    PlayedMemory memory(shared, timing);
    PlayedBlock(block, Kernel::Tiles::threads, [&](PlayedLane& lane) {
      PlayedWarpgroupLane of_group(lane, memory);
      Kernel(arguments, of_group, shared.data()).run();
    });
    memory.check_products();
    CHECK(fmt::format("{}", fmt::join(memory.faults, "; ")) == "");
  }
};

template <class T, int head_size>
std::string differences(Index batch, Index sequence, Index heads, Dropout const& dropout, Timing timing) {
  return played_differences<Cuda::WarpgroupKernels, T, head_size>({batch, sequence, heads, head_size}, dropout,
                                                                  PlayWarpgroups{timing});
}

} // namespace

TEMPLATE_TEST_CASE("attention by products of warpgroups equals the reference", "[wgmma]", bf16, fp16) {
  for (Timing const timing : {Timing::late_copies, Timing::late_products})
    for (Dropout const& dropout : {Dropout{}, some_dropout}) {
      INFO((timing == Timing::late_copies ? "late copies" : "late products") << (dropout.is_on() ? ", dropout" : ""));
      for (Index const sequence : {1, 63, 200}) {
        INFO("T " << sequence);
        CHECK(differences<TestType, 64>(1, sequence, 1, dropout, timing) == "");
      }
      CHECK(differences<TestType, 64>(2, 65, 2, dropout, timing) == "");
      CHECK(differences<TestType, 80>(1, 97, 1, dropout, timing) == "");
      CHECK(differences<TestType, 96>(1, 161, 1, dropout, timing) == "");
      CHECK(differences<TestType, 128>(1, 135, 1, dropout, timing) == "");
    }
}

TEMPLATE_TEST_CASE("attention by products of warpgroups corrects its sums as scores grow from tile to tile", "[wgmma]",
                   bf16, fp16) {
  CHECK(played_growth<Cuda::WarpgroupKernels, TestType>(PlayWarpgroups{Timing::late_products}) == "");
}
