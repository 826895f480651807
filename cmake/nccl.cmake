# NVIDIA's NCCL, whose collectives commbench measures beside ours: optional. Included by CUDA builds. Sets TRAINSTONE_NCCL to
# whether it is found, TRAINSTONE_NCCL_TEXT to which one, or to what is missing, and makes the target trainstone_nccl. It is
# searched beside the CUDA toolkit and below CMAKE_PREFIX_PATH, also as Python's package lies there:
# pip install --target PREFIX nvidia-nccl-cu13.

include(${CMAKE_CURRENT_LIST_DIR}/version_in.cmake)
find_package(CUDAToolkit REQUIRED)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include nvidia/nccl/include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${NCCL_INCLUDE_DIR}/.. ${CUDAToolkit_LIBRARY_DIR}
             PATH_SUFFIXES lib lib64 nvidia/nccl/lib)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
trainstone_version_in("${NCCL_INCLUDE_DIR}/nccl.h" NCCL "" nccl_version)

set(TRAINSTONE_NCCL OFF)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  set(TRAINSTONE_NCCL_TEXT "no, NCCL is not found")
elseif(nccl_version VERSION_LESS 2.19 OR NOT nccl_version VERSION_LESS 3)
  set(TRAINSTONE_NCCL_TEXT "no, NCCL is ${nccl_version}: 2.19 or newer is asked for")
else()
  set(TRAINSTONE_NCCL ON)
  set(TRAINSTONE_NCCL_TEXT "${nccl_version}")
  add_library(trainstone_nccl INTERFACE)
  target_include_directories(trainstone_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
  target_link_libraries(trainstone_nccl INTERFACE ${NCCL_LIBRARY} CUDA::cudart)
endif()
