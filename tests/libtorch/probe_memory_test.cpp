#include "libtorch/probe_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "core/bytes.h"

namespace sluice::testing {
namespace {

TEST(ProbeMemories, of_the_host_are_zero_again_when_they_are_given_back) {
  ProbeMemory memory(DeviceKind::kHost, kMiB);
  ASSERT_EQ(std::ssize(memory.span()), kMiB);
  memory.span()[5000] = std::byte{1};
  memory.give_back();
  EXPECT_EQ(memory.span()[5000], std::byte{0});
  EXPECT_EQ(memory.stream(), nullptr);
}

TEST(ProbeMemories, leave_no_addresses_in_use) {
  std::byte* address = nullptr;
  unsigned char resident = 0;
  {
    const ZeroMemory memory(4096);
    address = memory.span().data();
    EXPECT_EQ(mincore(address, 4096, &resident), 0);
  }
  EXPECT_EQ(mincore(address, 4096, &resident), -1);
}

}  // namespace
}  // namespace sluice::testing
