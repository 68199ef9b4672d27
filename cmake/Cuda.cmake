# The CUDA side of offload/. Only building it needs the toolkit: the runtime is linked statically (its symbols are
# hidden, so LibTorch keeps using its own; both work on the GPU's primary context), and without a driver the binary
# starts and says so. SLUICE_HAS_CUDA tells the rest of the build.
set(SLUICE_CUDA AUTO CACHE STRING "The device on a GPU: AUTO builds it where nvcc is, ON insists on it, OFF leaves it out")
set_property(CACHE SLUICE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SLUICE_HAS_CUDA OFF)
if(NOT SLUICE_CUDA)
  return()
endif()

find_program(SLUICE_NVCC nvcc PATHS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin DOC "The CUDA compiler")
if(SLUICE_NVCC)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  set(ENV{CUDACXX} ${SLUICE_NVCC})
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
      set(missing "${SLUICE_NVCC} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, and 12.8 is the oldest that will do")
    elseif(NOT cuda_std_20 IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
      set(missing "CMake ${CMAKE_VERSION} does not know how CUDA ${CMAKE_CUDA_COMPILER_VERSION} compiles C++20: take a newer one")
    else()
      set(SLUICE_HAS_CUDA ON)
      find_package(CUDAToolkit REQUIRED)
    endif()
  else()
    set(missing "${SLUICE_NVCC} compiles nothing here (see CMakeFiles/CMakeConfigureLog.yaml)")
  endif()
else()
  set(missing "there is no nvcc in PATH or /usr/local/cuda/bin")
endif()
if(SLUICE_HAS_CUDA)
  message(STATUS "CUDA side: built by ${SLUICE_NVCC}, CUDA ${CMAKE_CUDA_COMPILER_VERSION}")
elseif(SLUICE_CUDA STREQUAL "AUTO")
  message(STATUS "CUDA side: left out, ${missing}")
else()
  message(FATAL_ERROR "SLUICE_CUDA is ${SLUICE_CUDA}, and ${missing}: install the CUDA toolkit, or configure with "
                      "-DSLUICE_CUDA=AUTO or OFF")
endif()

# sluice_cuda_sources(TARGET …): device code for the GPUs of 2020 and later (the last one's for those to come as well).
# The arithmetic is IEEE's, with no contraction: ARCHITECTURE.md, "Numerics".
function(sluice_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY None
                                             CUDA_ARCHITECTURES "80-real;89-real;90-real;100-real;120")
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-ftz=false;-prec-div=true;-prec-sqrt=true;--expt-relaxed-constexpr;-Xcompiler=-Wall$<COMMA>-Wextra>")
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
endfunction()
