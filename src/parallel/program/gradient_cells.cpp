#include "parallel/program/gradient_cells.hpp"

namespace trainstone::Impl {

/// SplitMix64 (Fast Splittable Pseudorandom Number Generators, OOPSLA 2014), twice.
std::uint64_t ContributionSum::number_of(Contribution const& one) {
  auto const mixed = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  };
  return mixed(mixed(static_cast<std::uint64_t>(one.micro_batch)) + static_cast<std::uint64_t>(one.unit));
}

} // namespace trainstone::Impl
