#pragma once

// What the files of the matrix product share: one entry per provider. gemm.cpp lists those that are built.

#include "kernels/gemm.hpp"

namespace trainstone::Impl {

/// Whether oneDNN has products of this type for this CPU; else it computes them in fp32.
bool onednn_computes_natively(Storage inputs);
std::uint64_t onednn_gemm_scratch_bytes(GemmShape const& shape);
int onednn_gemm_launches(GemmShape const& shape);
GemmFunction make_onednn_gemm();

/// fp32 only.
GemmFunction make_kokkos_kernels_gemm();

/// Needs no scratch; the only one that also takes k = 0.
void kokkos_gemm(ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c);

/// "(m, n) += (m, k)^T (k, n)" with the numbers, for messages.
std::string to_string(GemmShape const& shape);

} // namespace trainstone::Impl
