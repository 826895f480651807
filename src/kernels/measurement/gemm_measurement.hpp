#pragma once

// Finds the fastest provider of a product on this machine. Owns the timings and the choice. The choice consists of
// names, so that it can be kept and sent to other ranks. Promises: a chosen provider gave a right result before it was
// timed; providers that round fp32 matrices are not considered. Keeps no file and knows no other ranks.

#include "core/views.hpp"
#include "kernels/gemm/gemm_shape.hpp"

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

/// The shapes that `fastest` does not name, or for which it names a provider that this build does not have.
std::set<GemmShape> shapes_to_measure(std::set<GemmShape> const& shapes,
                                      std::map<std::string, std::string> const& fastest);

/// The fastest provider of each of `shapes` that `fastest` names, and the provider of `auto` for other shapes.
/// \throws InputError  if a provider is not built
GemmChoice make_gemm_choice(std::map<std::string, std::string> const& fastest, std::set<GemmShape> const& shapes);

} // namespace trainstone
