# Helpers of every folder's CMakeLists.txt: one library a folder, the edges of the house written once.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)  # the sloppiness is what it asks for where headers are precompiled
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${SLUICE_CCACHE})
endif()
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

# Numerics: no contraction and no fast-math anywhere (numerics in ARCHITECTURE.md).
# All of this is for C++: what .cu files need stands in Cuda.cmake.
function(sluice_cxx_options)
  foreach(option ${ARGN})
    string(REPLACE "," "$<COMMA>" option "${option}")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${option}>")
  endforeach()
endfunction()
sluice_cxx_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno -fno-trapping-math)
set(SLUICE_IS_SANITIZED 0)  # for generator expressions, which SLUICE_SANITIZE's comma would split
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  sluice_cxx_options(-fpch-preprocess)  # for ccache: in its preprocessed text a precompiled header is a line
  if(CMAKE_UNITY_BUILD)
    sluice_cxx_options(-Wno-subobject-linkage)  # it takes a .cpp that is joined to others for a header
  endif()
endif()
if(SLUICE_SANITIZE)
  set(SLUICE_IS_SANITIZED 1)
  # Instrumented code makes GCC 12 see uninitialised bytes in the standard library's own objects.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    sluice_cxx_options(-Wno-maybe-uninitialized)
  endif()
  sluice_cxx_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
endif()

if(SLUICE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "SLUICE_FUZZ needs clang: configure with --preset fuzz, or -DCMAKE_CXX_COMPILER=clang++")
  endif()
  sluice_cxx_options(-fsanitize=fuzzer-no-link)
endif()

# sluice_library(NAME SOURCES … LINK <folders below> PRIVATE <third-party targets> [PRECOMPILE <their large headers>]
#                [PLANS])
# PLANS: searches for plans are most of what tests under AddressSanitizer take, and a fifth shorter with -O2.
function(sluice_library name)
  cmake_parse_arguments(ARG "PLANS" "" "SOURCES;LINK;PRIVATE;PRECOMPILE" ${ARGN})
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  target_include_directories(sluice_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  foreach(below ${ARG_LINK})
    target_link_libraries(sluice_${name} PUBLIC sluice_${below})
  endforeach()
  target_link_libraries(sluice_${name} PRIVATE ${ARG_PRIVATE} Threads::Threads)
  target_precompile_headers(sluice_${name} PRIVATE ${ARG_PRECOMPILE})
  if(ARG_PLANS AND SLUICE_SANITIZE MATCHES address)
    target_compile_options(sluice_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O2>)
  endif()
endfunction()

# sluice_test(NAME SOURCES … LINK <folders> [PRIVATE <third-party targets>] [TIMEOUT seconds] [WHOLE] [THREADLESS]
#             [OPTIMIZED])
# One GoogleTest program. Each of its suites is a CTest test of its own, for the start of a program under a sanitizer
# costs more than most cases; with WHOLE the program is one CTest test, for programs that prepare something for all.
# THREADLESS: long, and without threads of its own: ThreadSanitizer has nothing to find there and builds none of it.
# OPTIMIZED: its own sources have long loops. Of the others to compile them with optimization takes longer than it spares.
find_package(GTest REQUIRED)
set(SLUICE_UNOPTIMIZED $<$<COMPILE_LANGUAGE:CXX>:-O0>)
set(SLUICE_OPTIMIZED $<$<COMPILE_LANGUAGE:CXX>:-O1>)
# GoogleTest's headers, precompiled once for the test programs that are compiled as they are.
file(CONFIGURE OUTPUT test_headers.cpp CONTENT "")
add_library(sluice_test_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cpp)
target_link_libraries(sluice_test_headers PRIVATE GTest::gmock GTest::gtest Threads::Threads)
target_compile_options(sluice_test_headers PRIVATE ${SLUICE_UNOPTIMIZED})
target_precompile_headers(sluice_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
# For tests that drive a Python reference.
if(SLUICE_TORCH_DIR)
  set(SLUICE_PYTHON_HINTS ${SLUICE_TORCH_DIR}/../../../../bin)
endif()
find_program(SLUICE_PYTHON NAMES python3 HINTS ${SLUICE_PYTHON_HINTS} ${PROJECT_SOURCE_DIR}/.venv/bin
             DOC "The Python that has torch, transformers, safetensors and numpy" REQUIRED)
# Threads of LibTorch that wait sleep: several tests run beside each other, and each has as many threads as there are
# cores.
set(SLUICE_TEST_ENVIRONMENT OMP_WAIT_POLICY=passive)
set(SLUICE_TEST_OPTIONS)
# Says in a run over several builds which one a test belongs to.
if(SLUICE_SANITIZE MATCHES address)
  list(APPEND SLUICE_TEST_OPTIONS -fno-sanitize=undefined)  # half of the time; all that they test has it
  set(SLUICE_TEST_PREFIX asan.)
  list(APPEND SLUICE_TEST_ENVIRONMENT
       # 8 calls of 30, for to unwind them takes a fifth of a search for plans; the last 8 MiB that were freed are
       # watched, not 256, which no cache holds: a quarter of it.
       ASAN_OPTIONS=malloc_context_size=8:quarantine_size_mb=8
       LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/leaks.supp:print_suppressions=0)
elseif(SLUICE_SANITIZE MATCHES thread)
  set(SLUICE_TEST_PREFIX tsan.)
  list(APPEND SLUICE_TEST_ENVIRONMENT TSAN_OPTIONS=halt_on_error=1)
endif()
function(sluice_test name)
  cmake_parse_arguments(ARG "WHOLE;THREADLESS;OPTIMIZED" "TIMEOUT" "SOURCES;LINK;PRIVATE" ${ARGN})
  if(ARG_THREADLESS AND SLUICE_SANITIZE MATCHES thread)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 2400)  # of a suite: only what hangs reaches it
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  foreach(folder ${ARG_LINK})
    target_link_libraries(${name} PRIVATE sluice_${folder})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE} GTest::gmock GTest::gtest GTest::gtest_main Threads::Threads)
  if(ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${SLUICE_OPTIMIZED})
  else()
    target_compile_options(${name} PRIVATE ${SLUICE_UNOPTIMIZED})
    target_precompile_headers(${name} REUSE_FROM sluice_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON)  # a file of its own parses the same headers each time
  target_compile_options(${name} PRIVATE ${SLUICE_TEST_OPTIONS})
  target_compile_definitions(${name} PRIVATE SLUICE_IS_SANITIZED=${SLUICE_IS_SANITIZED})  # 1: a sample will do
  if(ARG_WHOLE)
    add_test(NAME ${SLUICE_TEST_PREFIX}${name} COMMAND ${name})
    set_tests_properties(${SLUICE_TEST_PREFIX}${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
                         ENVIRONMENT "${SLUICE_TEST_ENVIRONMENT}")
    return()
  endif()
  set(suites ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  add_custom_command(TARGET ${name} POST_BUILD BYPRODUCTS ${suites} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${name}> -DOUT=${suites}
                             -DPREFIX=${SLUICE_TEST_PREFIX}${name}. -DTIMEOUT=${ARG_TIMEOUT}
                             "-DENVIRONMENT=${SLUICE_TEST_ENVIRONMENT}"
                             -P ${PROJECT_SOURCE_DIR}/cmake/ListSuites.cmake)
  file(CONFIGURE OUTPUT ${name}_tests.cmake CONTENT [[
if(EXISTS "@suites@")
  include("@suites@")
else()
  add_test(@name@_is_not_built @name@_is_not_built)
endif()
]] @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_tests.cmake)
endfunction()
