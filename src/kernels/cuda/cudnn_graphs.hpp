#pragma once

// cuDNN's graphs of causal attention: one per pass, extents and type, built by the first call that asks for it and
// kept. Knows neither Views nor Kokkos, so that nvcc is spared cuDNN's C++ front end, and no header of CUDA. May be
// used by several threads: they start their calls one after the other.

#include "core/index.hpp"
#include "core/storage.hpp"

#include <compare>
#include <cstdint>
#include <memory>

struct CUstream_st; // what a cudaStream_t points to

namespace trainstone::Cuda {

/// What a graph is built for: qkv (B T, 3 C), out and d_out (B T, C), log_sum_exp (B NH T) and d_qkv (B T, 3 C), where
/// T is at least 1 and C is NH HS.
struct CudnnCall {
  Index batch, sequence, heads, head_size;
  Storage storage; ///< bf16 or fp16

  auto operator<=>(CudnnCall const&) const = default;
};

/// Of a device. Forward writes out and log_sum_exp; backward reads them, and writes d_qkv. Tensors of 16 bits begin at
/// multiples of 16 bytes.
struct CudnnMemory {
  void *qkv, *out, *log_sum_exp, *d_out, *d_qkv, *workspace;
};

class CudnnGraph;

/// A handle of cuDNN's on the current device, with its graphs.
class CudnnGraphs {
public:
  /// \throws Error   if cuDNN has no handle for the device
  CudnnGraphs();
  CudnnGraphs(CudnnGraphs const&) = delete;
  CudnnGraphs& operator=(CudnnGraphs const&) = delete;
  ~CudnnGraphs();

  /// Lives as long as this. The first call of some extents takes seconds: cuDNN compiles.
  /// \throws Error   if cuDNN has no graph for it (message says why), or one that needs a larger workspace than
  ///         `workspace_bytes` (message names both)
  CudnnGraph const& forward(CudnnCall const& call, std::uint64_t workspace_bytes);
  CudnnGraph const& backward(CudnnCall const& call, std::uint64_t workspace_bytes);

  /// Enqueues it on the stream.
  /// \throws Error   if cuDNN refuses
  void run(CudnnGraph const& graph, CudnnMemory const& memory, CUstream_st* stream);

private:
  struct State;
  std::unique_ptr<State> m_state;
};

} // namespace trainstone::Cuda
