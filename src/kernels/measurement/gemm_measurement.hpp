#pragma once

// Finds the fastest method of a product on this machine: which provider, and which of its variants. Owns the timings
// and the choice. The choice consists of names, so that it can be kept and sent to other ranks. Promises: a chosen
// method gave a right result before it was timed; providers that round fp32 matrices are not considered. Keeps no file
// and knows no other ranks.

#include "core/views.hpp"
#include "kernels/gemm/gemm_shape.hpp"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trainstone {

/// What is tried for `shape`: all variants of all built providers that do not round fp32.
std::vector<GemmMethod> gemm_candidates(GemmShape const& shape);

/// FLOPs per second of a method, measured.
using GemmRate = std::function<double(GemmMethod const&, GemmShape const&)>;

/// Calls `rate` for every candidate, there and back: who else uses the machine for a while slows down all of them.
/// \return the first of those whose better rate is the highest
GemmMethod fastest_gemm(std::vector<GemmMethod> const& candidates, GemmShape const& shape, GemmRate const& rate);

/// The name of the fastest method of every shape, by to_string(shape).
/// \param[in] exec  fenced around every timing; complete on return
/// \throws Error    if a product is wrong
/// Time: for each shape and candidate two turns of 20 ms or four products, whichever is longer, and filling the
/// matrices.
std::map<std::string, std::string> measure_fastest_gemms(ExecutionSpace const& exec, std::set<GemmShape> const& shapes);

/// The shapes that `fastest` does not name, or for which it names no candidate: a provider that this build does not
/// have, or a variant that the library does not have here.
std::set<GemmShape> shapes_to_measure(std::set<GemmShape> const& shapes,
                                      std::map<std::string, std::string> const& fastest);

/// The fastest method of each of `shapes` that `fastest` names, and the provider of `auto` for other shapes.
/// \throws InputError  if a name is that of no method, or a provider is not built
GemmChoice make_gemm_choice(std::map<std::string, std::string> const& fastest, std::set<GemmShape> const& shapes);

} // namespace trainstone
