#include "libtorch/tensors.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::testing {
namespace {

TEST(Tensors, are_views_of_the_first_elements_and_of_no_more_than_there_are) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6, 7};
  const TensorView view{reinterpret_cast<std::byte*>(values.data()), 6, DType::kFp32};
  const at::Tensor some = tensor_of(view, {2, 2});
  EXPECT_EQ(some.const_data_ptr(), values.data());
  EXPECT_EQ(some.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(dtype_of(some), DType::kFp32);
  EXPECT_NO_THROW(tensor_of(view, {2, 3}));
  EXPECT_THROW(tensor_of(view, {7}), std::logic_error);
}

TEST(Tensors, of_every_dtype_are_of_it) {
  std::vector<std::byte> values(8);
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    EXPECT_EQ(dtype_of(tensor_at(values.data(), dtype, {2})), dtype);
  }
}

}  // namespace
}  // namespace sluice::testing
