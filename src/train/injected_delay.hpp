#pragma once

// Delays that a deck injects (faults.delay, faults.slow), so that tests can slow down computing or communication, on
// one rank or on all: results must not change. They are called at the delay point and the kernel end of
// core/launch.hpp.

#include "core/error.hpp"
#include "core/hook.hpp"
#include "train/plan/config.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainstone {

/// The places of delays. "kernel" is every kernel outside of collectives. "checkpoint" is every megabyte of a
/// checkpoint, and its completion. The others are moments inside of collectives, before a step of this name: see
/// Execution's delay points and its kernels.
inline constexpr std::array<std::string_view, 10> delay_places{"kernel",  "checkpoint", "start", "send",   "receive",
                                                               "barrier", "wait",       "copy",  "reduce", "combine"};

/// Kernels that can be slowed down by a share of their own time. The label of such a kernel begins with this name,
/// after "trainstone::".
inline constexpr std::array<std::string_view, 18> slow_kernels{"accumulate",
                                                               "attention",
                                                               "bias",
                                                               "bias_gelu",
                                                               "cast",
                                                               "cross_entropy",
                                                               "cudnn_attention",
                                                               "dropout",
                                                               "embedding",
                                                               "flash_attention",
                                                               "gelu",
                                                               "gemm",
                                                               "layernorm",
                                                               "norm",
                                                               "optimizer",
                                                               "residual",
                                                               "tensor_attention",
                                                               "wgmma_attention"};

/// Whether the label is that kernel's: "gemm" of "trainstone::gemm[oneDNN]" and of no other.
bool is_kernel(std::string_view label, std::string_view kernel);

/// The problem of the delays without regard to the rank, if there is one.
std::optional<ConfigProblem> find_delay_problem(FaultConfig const& faults);
/// The problem of the delays' rank, if there is one.
std::optional<ConfigProblem> find_delay_problem(FaultConfig const& faults, std::int64_t ranks);

/// While it lives, this rank waits as the deck says; not at all if the deck says nothing or names another rank. A
/// slowed kernel keeps its thread busy for the rest of its time.
class InjectedDelay {
public:
  InjectedDelay(FaultConfig const& faults, std::int64_t rank);
  InjectedDelay(InjectedDelay const&) = delete;
  InjectedDelay& operator=(InjectedDelay const&) = delete;

private:
  std::optional<Hook<void(char const* label)>::Scoped> m_delay;
  std::optional<Hook<void(char const* label, double seconds)>::Scoped> m_slow;
};

} // namespace trainstone
