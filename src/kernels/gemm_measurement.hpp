#pragma once

// Which provider computes a product fastest on this machine: timings, and the choice that follows from them as names,
// so that it can be kept and sent to other ranks. Promises: what is chosen was right before it was timed; no provider
// is considered that rounds fp32 matrices. Keeps no file and knows no other ranks.

#include "kernels/config.hpp"
#include "kernels/gemm.hpp"

#include <map>
#include <set>
#include <string>

namespace trainstone {

/// The name of the fastest provider of every shape, by to_string(shape).
/// \param[in] exec  fenced around every timing; complete on return
/// \throws Error    if a product is wrong
/// Time: for each shape and provider two turns of 20 ms or four products, whichever is longer, and filling the
/// matrices.
std::map<std::string, std::string> measure_fastest_gemms(ExecutionSpace const& exec, std::set<GemmShape> const& shapes);

/// Those of `shapes` that `fastest` does not name, or names a provider for that this build has not.
std::set<GemmShape> shapes_to_measure(std::set<GemmShape> const& shapes,
                                      std::map<std::string, std::string> const& fastest);

/// What a configuration says: its provider for all products, or, where it is to be measured, the fastest one of each
/// of `shapes` as far as they were measured, and for others what `auto` takes.
/// \throws InputError  if the provider is not built
GemmChoice make_gemm_choice(KernelConfig const& kernels, std::set<GemmShape> const& shapes);

} // namespace trainstone
