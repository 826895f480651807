#pragma once

// The reference's matrix product for models that are too large for plain loops: fp64, in blocks that stay in caches, on
// one thread. Owns no memory between calls and knows no library. Promises: what reference::gemm computes with the
// second factor transposed, to within fp64 rounding.

#include "kernels/reference/reference.hpp"

namespace trainstone::reference {

/// C[i, j] = sum over p of A[i, p] B[j, p]: rows times rows.                           reference: reference::gemm
/// \param[in]  m, n, k   rows of A, rows of B, columns of both
/// \param[in]  a (m, k)  row i begins at a + i * a_stride     \param[in] b (n, k)  likewise
/// \param[out] c (m, n)  likewise; overwritten, overlaps neither
/// Work: 2 m n k FLOP.
void product_of_rows(Index m, Index n, Index k, double const* a, Index a_stride, double const* b, Index b_stride,
                     double* c, Index c_stride);

} // namespace trainstone::reference
