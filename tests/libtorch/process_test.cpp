#include "libtorch/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/errors.h"
#include "core/topology.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

TEST(Process, is_set_once_and_another_value_is_refused) {
  EXPECT_THROW(set_process({.compute_threads = -1}), ConfigError);
  EXPECT_EQ(set_process({.compute_threads = 2}).compute_threads, 2);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(compute_threads(), 2);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
  EXPECT_NO_THROW(set_process({.compute_threads = 2}));
  try {
    set_process({.compute_threads = 1});
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("sluice.compute_threads is 1, but this process already computes with 2"),
              std::string::npos);
  }
  const int cores = usable_cores(*make_topology());
  const std::string of_cores = "sluice.compute_threads is " + std::to_string(cores);
  EXPECT_EQ(message_or<ConfigError>(of_cores, [] { set_process({}); }).find(of_cores), 0u);
  EXPECT_EQ(libtorch_version().substr(0, 2), "2.");
  EXPECT_NE(describe_libtorch().find("2 compute threads"), std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
