// Attention on tensor cores, played on the host: every lane of every block, with the layouts of fragments as the
// instructions have them.

#include "support/played_attention.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace trainstone;
using namespace trainstone::test;

namespace {

struct PlayWarps {
  using Lane = PlayedLane;

  template <class Kernel>
  void operator()(typename Kernel::Arguments const& arguments, std::span<std::byte> shared, int block) const {
    PlayedBlock(block, Kernel::Tiles::threads, [&](PlayedLane& lane) { Kernel(arguments, lane, shared.data()).run(); });
  }
};

template <class T, int head_size>
std::string differences(Index batch, Index sequence, Index heads, Dropout const& dropout) {
  return played_differences<Cuda::WarpKernels, T, head_size>({batch, sequence, heads, head_size}, dropout, PlayWarps());
}

} // namespace

TEMPLATE_TEST_CASE("attention on tensor cores equals the reference", "[tensor_cores]", bf16, fp16) {
  for (Dropout const& dropout : {Dropout{}, some_dropout}) {
    for (Index const sequence : {1, 63, 130, 200}) {
      INFO("T " << sequence << (dropout.is_on() ? ", dropout" : ""));
      CHECK(differences<TestType, 64>(1, sequence, 2, dropout) == "");
    }
    INFO((dropout.is_on() ? "dropout" : ""));
    CHECK(differences<TestType, 64>(2, 65, 1, dropout) == "");
    CHECK(differences<TestType, 80>(1, 97, 1, dropout) == "");
    CHECK(differences<TestType, 96>(1, 161, 1, dropout) == "");
    CHECK(differences<TestType, 128>(1, 135, 1, dropout) == "");
  }
}

TEMPLATE_TEST_CASE("attention on tensor cores corrects its sums as scores grow from tile to tile", "[tensor_cores]",
                   bf16, fp16) {
  CHECK(played_growth<Cuda::WarpKernels, TestType>(PlayWarps()) == "");
}
