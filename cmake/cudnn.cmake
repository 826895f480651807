# NVIDIA's cuDNN and its C++ front end (headers only), for attention: optional. Included by CUDA builds. Sets TRAINSTONE_CUDNN
# to whether both are found, TRAINSTONE_CUDNN_TEXT to which ones, or to what is missing, and makes the target trainstone_cudnn.
# They are searched beside the CUDA toolkit, as NVIDIA's archives have them, and below CMAKE_PREFIX_PATH, also as Python's
# packages lie there: pip install --target PREFIX nvidia-cudnn-frontend nvidia-cudnn-cu13.

include(${CMAKE_CURRENT_LIST_DIR}/version_in.cmake)
find_package(CUDAToolkit REQUIRED)
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include nvidia/cudnn/include)
# NAMES_PER_DIR: a package of Python's has no libcudnn.so, and is looked for where its headers are all the same.
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${CUDNN_INCLUDE_DIR}/.. ${CUDAToolkit_LIBRARY_DIR}
             PATH_SUFFIXES lib lib64 nvidia/cudnn/lib)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY CUDNN_FRONTEND_INCLUDE_DIR)

trainstone_version_in("${CUDNN_INCLUDE_DIR}/cudnn_version.h" CUDNN "" cudnn_version)
trainstone_version_in("${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" CUDNN_FRONTEND _VERSION frontend_version)

set(TRAINSTONE_CUDNN OFF)
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  set(TRAINSTONE_CUDNN_TEXT "no, cuDNN is not found")
elseif(NOT CUDNN_FRONTEND_INCLUDE_DIR)
  set(TRAINSTONE_CUDNN_TEXT "no, cuDNN ${cudnn_version} is found without its C++ front end")
elseif(cudnn_version VERSION_LESS 9 OR NOT cudnn_version VERSION_LESS 10)
  set(TRAINSTONE_CUDNN_TEXT "no, cuDNN is ${cudnn_version}: 9 is asked for")
elseif(frontend_version VERSION_LESS 1.14)
  set(TRAINSTONE_CUDNN_TEXT "no, its C++ front end is ${frontend_version}: 1.14 or newer is asked for")
else()
  set(TRAINSTONE_CUDNN ON)
  set(TRAINSTONE_CUDNN_TEXT "${cudnn_version}, C++ front end ${frontend_version}")
  add_library(trainstone_cudnn INTERFACE)
  target_include_directories(trainstone_cudnn SYSTEM INTERFACE ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR})
  # The front end calls the run-time compiler and the driver, too.
  target_link_libraries(trainstone_cudnn INTERFACE ${CUDNN_LIBRARY} CUDA::nvrtc CUDA::cuda_driver CUDA::cudart)
endif()
