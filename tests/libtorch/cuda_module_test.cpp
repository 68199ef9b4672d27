// LibTorch's CUDA side: loaded for real, whether a GPU answers or not. A program of its own: what loads it should not
// have computed before.
#include "libtorch/cuda_module.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "libtorch/compute_device.h"
#include "libtorch/visit_memory.h"
#include "offload/gpu.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

template <class Call>
std::string error_of(Call call) {
  return message_or<DeviceError>("", call);
}

TEST(CudaModule, loads_without_a_driver_or_says_what_is_missing) {
  if (SLUICE_IS_SANITIZED) GTEST_SKIP() << "a sanitizer would judge LibTorch's and NVIDIA's own libraries";
  const std::string error = error_of([] { cuda_module(); });
  if (SLUICE_HAS_CUDA_MODULE) {
    EXPECT_EQ(error, "");
    EXPECT_EQ(cuda_module().why_not().empty(), why_no_gpu().empty());
  } else {
    EXPECT_NE(error.find("libsluice_torch_cuda.so is not there"), std::string::npos) << error;
  }
}

TEST(CudaModule, refuses_a_configuration_of_cublas_that_is_not_deterministic) {
  const std::string error = error_of([] { set_blas_configuration(); });
  EXPECT_EQ(error, "");
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0", 1);
  EXPECT_NE(error_of([] { set_blas_configuration(); }).find("CUBLAS_WORKSPACE_CONFIG is \":0:0\""), std::string::npos);
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
}

TEST(ComputeDevice, is_the_cpu_where_that_is_wanted) {
  EXPECT_EQ(choose_device(DeviceKind::kHost, {}), DeviceKind::kHost);
}

TEST(ComputeDevice, is_the_cpu_with_a_reason_or_refused_where_no_gpu_answers) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "a GPU answers here";
  std::vector<std::string> lines;
  EXPECT_EQ(choose_device(DeviceKind::kAuto, [&](LogLevel, std::string_view line) { lines.emplace_back(line); }),
            DeviceKind::kHost);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "computing on the CPU: " + why_no_gpu());
  EXPECT_EQ(error_of([] { choose_device(DeviceKind::kCuda, {}); }),
            "--device cuda (sluice.device): " + why_no_gpu() + "; or compute on the CPU (--device cpu)");
}

TEST(ComputeDevice, is_the_gpu_where_one_answers) {
  if (const std::string missing = why_no_gpu_compute(); !missing.empty()) GTEST_SKIP() << "no GPU: " << missing;
  EXPECT_EQ(choose_device(DeviceKind::kAuto, {}), DeviceKind::kCuda);
  EXPECT_EQ(choose_device(DeviceKind::kCuda, {}), DeviceKind::kCuda);
}

TEST(MemoryOfTheGpu, is_the_workspace_of_the_visit_and_of_nobody_else) {
  const Arena arena(kMiB);
  VisitMemory memory(arena.span(), nullptr);
  EXPECT_NE(error_of([] { take_for_visit(100); }).find("100 bytes of the GPU outside of a visit"), std::string::npos);
  {
    const VisitScope visit(memory);
    std::byte* const block = take_for_visit(100);
    EXPECT_EQ(block, arena.at(0));
    EXPECT_NE(error_of([] { take_for_visit(kMiB); }).find("the device's workspace is full"), std::string::npos);
    give_back_of_visit(block);
    EXPECT_EQ(take_for_visit(200), block);
    give_back_of_visit(block);
  }
  EXPECT_EQ(memory.high_water_bytes(), 256);
}

}  // namespace
}  // namespace sluice::testing
