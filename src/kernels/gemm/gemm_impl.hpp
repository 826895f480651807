#pragma once

// What the files of the matrix product share: one entry per provider. gemm.cpp lists those that are built.

#include "kernels/gemm/gemm.hpp"

namespace trainstone::Impl {

/// Whether oneDNN has fast products of this type for this CPU.
bool onednn_computes_natively(Storage inputs);
std::uint64_t onednn_gemm_scratch_bytes(GemmShape const& shape);
std::string onednn_version();
GemmFunction make_onednn_gemm();

std::uint64_t cublaslt_gemm_scratch_bytes(GemmShape const& shape);
/// Whether the shape's epilogue, if it has one, is left to cuBLASLt.
bool cublaslt_fuses(GemmShape const& shape);
/// The algorithms of the library's heuristic, up to eight, the one that it prefers first.
int cublaslt_gemm_variants(GemmShape const& shape);
int cublaslt_tf32_gemm_variants(GemmShape const& shape);
std::string cublaslt_version();
GemmFunction make_cublaslt_gemm();
/// The same, but products of fp32 matrices are computed in tf32.
GemmFunction make_cublaslt_tf32_gemm();

/// fp32 only.
GemmFunction make_blas_gemm();
/// fp32 only.
GemmFunction make_kokkos_kernels_gemm();

/// Needs no scratch; the only one that also takes k = 0.
void kokkos_gemm(ExecutionSpace const& exec, GemmShape const& shape, void const* a, void const* b, void* c);

/// The shape with all matrices in fp32.
GemmShape in_fp32(GemmShape shape);
/// The scratch in bytes that fp32 copies of the shape's 16-bit matrices take.
std::uint64_t conversion_bytes(GemmShape const& shape);
/// The kernels that make them, and C of the fp32 one.
int conversion_launches(GemmShape const& shape);
/// The product of 16-bit matrices by a function that computes it in fp32; what is left of the scratch is that one's.
void compute_converted(ExecutionSpace const& exec, GemmFunction const& in_fp32_by, GemmShape const& shape, int variant,
                       void const* a, void const* b, void* c, Vector<std::byte> scratch);

/// Throws Error unless what the epilogue reads and writes fits to the product.
void require_epilogue(GemmShape const& shape, Epilogue const& epilogue);
/// The parts of an epilogue that are kernels of their own: before the product, which writes into `pre` if there is a
/// GELU behind it, and after it.
void begin_epilogue(ExecutionSpace const& exec, GemmShape const& shape, ConstStoredMatrix a, Epilogue const& epilogue);
void end_epilogue(ExecutionSpace const& exec, trainstone::StoredMatrix c, Epilogue const& epilogue);

} // namespace trainstone::Impl
