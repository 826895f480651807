#pragma once

// Matrices of whole numbers whose product is known without multiplying them: each is the product of two thin ones of
// hashed digits. Owns the values. Promises: every element is exact in 16 bits, and every sum in fp32 for the sizes that
// are allowed; blocks differ, so one that lies elsewhere, is missing or comes twice gives another product. Pure.

#include "products/plan/product.hpp"

#include <array>

namespace trainstone {

class ExactMatrices {
public:
  static constexpr Index rank = 3;                    ///< of both matrices
  static constexpr Index most_inner = Index{1} << 20; ///< sums stay below 2^24

  /// \throws InputError if k exceeds most_inner
  explicit ExactMatrices(ProductSize const& size);

  /// An element of A or B: whole, from -3 to 3; 0 beyond the extents, where algorithms pad.
  float value(Operand operand, Index row, Index column) const;
  /// The element of C that is right. Work: 9 multiplications.
  float product(Index row, Index column) const;

private:
  ProductSize m_size;
  std::array<std::array<Index, rank>, rank> m_inner{}; ///< the product of the two thin matrices in the middle
};

} // namespace trainstone
