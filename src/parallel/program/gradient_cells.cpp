#include "parallel/program/gradient_cells.hpp"

#include <xxhash.h>

#include <array>

namespace trainstone::Impl {

std::uint64_t ContributionSum::number_of(Contribution const& one) {
  std::array const words{one.micro_batch, one.part, one.piece};
  return XXH3_64bits(words.data(), sizeof words);
}

} // namespace trainstone::Impl
