// The CUDA kernels' own code, run on the host block after block in any order, against the host's kernels by bits.
// Closing: close_kernel_test.cpp.
#include "offload/device_kernels.h"

#include <gtest/gtest.h>

#include "tests/offload/gradient_values.h"
#include "tests/offload/host_block.h"

namespace sluice {
namespace {

using kernels::AddWork;
using kernels::kTileElements;

template <DType kType>
void add_by_kernel(const AddWork& work) {
  launch((work.elements + kTileElements - 1) / kTileElements, 5,
         [&](const HostBlock& block) { kernels::add_tile<kType>(block, work); });
}
void add_by_kernel(DType dtype, const AddWork& work) {
  if (dtype == DType::kBf16) add_by_kernel<DType::kBf16>(work);
  if (dtype == DType::kFp16) add_by_kernel<DType::kFp16>(work);
  if (dtype == DType::kFp32) add_by_kernel<DType::kFp32>(work);
}

TEST(DeviceKernels, add_contributions_with_the_bits_of_the_host_at_every_size_and_offset) {
  for (const DType dtype : kEveryDType) {
    for (const int64_t elements : every_size()) {
      const int64_t offset = elements % 7;
      const std::vector<std::byte> gradient =
          stored_as(dtype, make_values(elements + offset, Values::kEdges, 1 + static_cast<uint64_t>(elements)));
      const std::byte* from = gradient.data() + offset * bytes_of(dtype);
      std::vector<float> found = make_values(elements + 1, Values::kEdges, 2), expected = found;
      for (const Contribution which : {Contribution::kLater, Contribution::kFirst, Contribution::kLater}) {
        add_by_kernel(dtype, {.open = found.data(), .gradient = from, .elements = elements, .which = which});
        add_gradient(expected.data(), {from, dtype, elements}, which);
      }
      ASSERT_TRUE(same_values(bytes_in(found), bytes_in(expected), DType::kFp32, elements + 1))
          << name_of(dtype) << ", " << elements;
    }
  }
}

}  // namespace
}  // namespace sluice
