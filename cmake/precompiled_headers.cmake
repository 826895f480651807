# Headers of other projects that most files of a target include are compiled once per target. Headers of this project
# never belong here: a change of one would recompile everything, and a missing include would go unnoticed.

# ccache caches such files with CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime (ci/env sets it).
option(TRAINSTONE_PRECOMPILE "compile headers of other projects once" ON)

set(TRAINSTONE_STANDARD_HEADERS <algorithm> <chrono> <cstdint> <functional> <map> <memory> <numeric> <optional> <ranges> <span>
                                <string> <string_view> <vector>)

set(TRAINSTONE_KOKKOS_HEADERS <Kokkos_Core.hpp> <fmt/format.h> ${TRAINSTONE_STANDARD_HEADERS})

# \param ARGN  the headers, or REUSE_FROM and a target with the same options
function(trainstone_precompile target)
  if(NOT TRAINSTONE_PRECOMPILE)
    return()
  endif()
  # g++ cannot compile the headers of a Kokkos that was built with CUDA. Targets that reuse headers reuse these.
  if(TRAINSTONE_CUDA AND "${ARGN}" MATCHES "Kokkos_Core|REUSE_FROM")
    return()
  endif()
  if(ARGV1 STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # ccache looks for what the precompiled header has in the preprocessed text
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()
