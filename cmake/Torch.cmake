# LibTorch as an imported target of our own, `sluice_torch`, from the torch Python package in SLUICE_TORCH_DIR (empty: the
# virtual environment of this checkout). find_package(Torch) is left alone: it fails where a CUDA toolkit is absent.
include_guard(GLOBAL)
if(NOT SLUICE_TORCH_DIR)
  file(GLOB SLUICE_TORCH_FOUND ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(SLUICE_TORCH_FOUND)
    list(GET SLUICE_TORCH_FOUND 0 SLUICE_TORCH_DIR)
  endif()
endif()
if(NOT EXISTS "${SLUICE_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No LibTorch in SLUICE_TORCH_DIR='${SLUICE_TORCH_DIR}': give the folder of the torch Python package "
                      "(-DSLUICE_TORCH_DIR=.../site-packages/torch), let ./run build install one, or build without it "
                      "(-DSLUICE_LIBTORCH=OFF).")
endif()

cmake_path(ABSOLUTE_PATH SLUICE_TORCH_DIR NORMALIZE OUTPUT_VARIABLE SLUICE_TORCH_ROOT)
add_library(sluice_torch INTERFACE)
# After the system's folders: the package brings copies of libraries (fmt among them) that must not hide the system's own.
target_compile_options(sluice_torch INTERFACE "SHELL:-idirafter ${SLUICE_TORCH_ROOT}/include"
                                              "SHELL:-idirafter ${SLUICE_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_libraries(sluice_torch INTERFACE ${SLUICE_TORCH_ROOT}/lib/libtorch_cpu.so
                                             ${SLUICE_TORCH_ROOT}/lib/libc10.so)
target_link_options(sluice_torch INTERFACE "LINKER:-rpath,${SLUICE_TORCH_ROOT}/lib" "LINKER:-rpath-link,${SLUICE_TORCH_ROOT}/lib")

# `sluice_torch_cuda`: the same with LibTorch's CUDA libraries, where this build has a CUDA side and the package has them.
if(SLUICE_HAS_CUDA AND EXISTS ${SLUICE_TORCH_ROOT}/lib/libtorch_cuda.so)
  add_library(sluice_torch_cuda INTERFACE)
  target_include_directories(sluice_torch_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(sluice_torch_cuda INTERFACE sluice_torch ${SLUICE_TORCH_ROOT}/lib/libtorch_cuda.so
                                                    ${SLUICE_TORCH_ROOT}/lib/libc10_cuda.so)
elseif(SLUICE_HAS_CUDA)
  message(STATUS "LibTorch has no CUDA libraries: it will compute on the CPU alone")
endif()
