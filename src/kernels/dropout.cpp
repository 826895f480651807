#include "kernels/dropout_impl.hpp"

#include "core/error.hpp"
#include "kernels/common/instantiate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainstone {

namespace Impl {

DropoutRows::DropoutRows(Dropout const& dropout, Index positions, Index heads)
    : seed(dropout.seed),
      first_sample(dropout.first_sample),
      site(dropout.site),
      threshold(0),
      scale(static_cast<float>(1 / (1 - dropout.rate))),
      first_head(dropout.first_head),
      first_position(dropout.first_position),
      first_feature(dropout.first_feature) {
  TRAINSTONE_REQUIRE(dropout.rate >= 0 && dropout.rate < 1, "a dropout rate of {} is not in [0, 1)", dropout.rate);
  TRAINSTONE_REQUIRE(dropout.first_sample < std::uint64_t{1} << 44, "dropout knows 2^44 samples, not number {}",
                     dropout.first_sample);
  TRAINSTONE_REQUIRE(dropout.site < 1U << 24, "dropout knows 2^24 sites, not number {}", dropout.site);
  if (dropout.is_on()) {
    Index const end = first_position + positions;
    TRAINSTONE_REQUIRE(first_position >= 0 && end <= 1 << 20, "dropout knows 2^20 positions, not {}", end);
    TRAINSTONE_REQUIRE(first_feature >= 0, "dropout has no feature {}", first_feature);
    TRAINSTONE_REQUIRE(first_head + heads <= 1 << 14, "dropout knows 2^14 heads, not {}", first_head + heads);
  }
  constexpr double words = 0x1p32;
  threshold = static_cast<std::uint32_t>(std::min(std::round(dropout.rate * words), words - 1));
}

} // namespace Impl

#define TRAINSTONE_INSTANTIATE(T)                                                                                      \
  template void dropout_forward<T>(ExecutionSpace const&, Dropout const&, Index, Vector<T const>, Matrix<T>,           \
                                   Matrix<MaskByte>);                                                                  \
  template void dropout_backward<T>(ExecutionSpace const&, Dropout const&, Index, Matrix<MaskByte const>,              \
                                    Matrix<T const>, Matrix<T>);
TRAINSTONE_FOR_EACH_STORAGE(TRAINSTONE_INSTANTIATE)

} // namespace trainstone
