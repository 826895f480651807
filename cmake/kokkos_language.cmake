# What a Kokkos that was built with CUDA asks of us: files that see its headers are compiled as CMake's language CUDA. Sets
# TRAINSTONE_CUDA. With any other Kokkos the functions do nothing, and everything is C++.

set(TRAINSTONE_CUDA OFF)
if(Kokkos_ENABLE_CUDA)
  if(NOT Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE)
    message(FATAL_ERROR "The Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR} wants nvcc_wrapper for a compiler. "
                        "Trainstone takes one built with Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE=ON.")
  endif()
  set(TRAINSTONE_CUDA ON)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${Kokkos_CUDA_ARCHITECTURES})
  endif()
  # One run-time library in the program: Kokkos links the shared one, and a CUDA-aware MPI looks for it there.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
endif()

# Folders of src/ and tests/ whose files see no header of Kokkos (ci/check-layers holds those of src/ to it, and the headers
# of plans that they read): plain C++ for any Kokkos, which compiles several times faster and spares nvcc the parsers of decks
# and JSON.
set(TRAINSTONE_FOLDERS_WITHOUT_KOKKOS comm/schedule comm/algorithms comm/simulation comm/prediction products/plan parallel/plan
    parallel/pipeline parallel/program deck result report lectures advice)

# All sources of `target` but those of these folders are compiled in the language of Kokkos; so are the files after it, tests
# in these folders that need Kokkos themselves.
function(trainstone_use_language_of_kokkos target)
  if(NOT TRAINSTONE_CUDA)
    return()
  endif()
  list(JOIN TRAINSTONE_FOLDERS_WITHOUT_KOKKOS "|" folders)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^(${folders})/")
  set_source_files_properties(${sources} ${ARGN} PROPERTIES LANGUAGE CUDA)
endfunction()

# Hands the arguments, options of g++, through nvcc, and adds nvcc's own.
function(trainstone_nvcc_options target)
  list(REMOVE_ITEM ARGN -Wpedantic) # nvcc's intermediate C++ is full of extensions
  list(JOIN ARGN "," host_options)
  # 20011-20015: a kernel calls a function of the host; 20178: it reads `this` of the host. Errors in every build.
  # 177: nothing uses this; said of what only the other half of the program uses. g++ finds what nobody uses.
  # 445: a template parameter cannot be deduced; said of the function pointer that []<class T>() {} converts to.
  set(options -Xcompiler=${host_options} -diag-error=20011,20012,20013,20014,20015,20178 -diag-suppress=177,445)
  if(TRAINSTONE_WERROR)
    list(APPEND options -Werror=all-warnings)
  endif()
  target_compile_features(${target} INTERFACE cuda_std_20)
  target_compile_options(${target} INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${options}>")
endfunction()
