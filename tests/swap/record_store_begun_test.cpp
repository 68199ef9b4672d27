// Creations that were cut off, which may be begun anew, and files of somebody else's, which may not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "tests/fakes/message_of.h"
#include "tests/swap/store_fixture.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class StoreBegun : public StoreOnADrive {
 protected:
  static std::string zeros(int64_t count) { return std::string(static_cast<size_t>(count), '\0'); }
  void put(const std::string& content) const { std::ofstream(file(), std::ios::binary | std::ios::trunc) << content; }
  void expect_left_alone(const std::string& content) {
    put(content);
    EXPECT_THAT(message_of<ConfigError>([&] { open(); }), HasSubstr("is not a store of sluice")) << content.size();
    EXPECT_TRUE(read_whole(file()) == content) << content.size();
  }
};

// All of them begin with zeros or are shorter than a store's headers, as a creation that is cut off leaves no file.
TEST_F(StoreBegun, is_not_what_a_file_of_somebody_else_is_taken_for) {
  const std::string text = "precious\n", swap_area = zeros(4086) + "SWAPSPACE2" + zeros(1 << 20);
  for (const std::string& content : {text, std::string(4095, 'x'), zeros(4096), zeros(512) + std::string(14000, 'x'),
                                     zeros(30000) + std::string(9000, 'x'), zeros(28672) + text, swap_area}) {
    expect_left_alone(content);
  }
  put(zeros(1 << 20));
  EXPECT_EQ(open(), nullptr);
}

// As long as a store may be, and zeros where its headers and superblocks would be.
TEST_F(StoreBegun, is_not_what_a_file_with_data_behind_its_headers_is_taken_for) {
  const std::string data(static_cast<size_t>(kStoreBlockBytes), 'x');
  for (const int64_t blocks_before : {0, 1, 59}) {
    expect_left_alone(zeros(kTablesOffset + blocks_before * kStoreBlockBytes) + data);
  }
  put("");
  std::filesystem::resize_file(file(), 1 << 20);
  change_bytes((1 << 20) - kStoreBlockBytes, std::vector<std::byte>(data.size(), std::byte{'x'}));
  EXPECT_THAT(message_of<ConfigError>([&] { open(); }), HasSubstr("is not a store of sluice")) << "behind a hole";
}

// Sectors of a block are written in any order.
TEST_F(StoreBegun, may_lack_the_first_sector_of_its_header) {
  leave_as_if_killed(create(), std::array{file()});
  change_bytes(kIdentityOffset[0], std::vector<std::byte>(512));
  change_bytes(kIdentityOffset[1], std::vector<std::byte>(static_cast<size_t>(kStoreBlockBytes)));
  EXPECT_EQ(open(), nullptr);
  flip_bit(kIdentityOffset[0] + kStoreBlockBytes - 512);  // the last sector is no store's
  EXPECT_THAT(message_of<ConfigError>([&] { open(); }), HasSubstr("is not a store of sluice"));
}

}  // namespace
}  // namespace sluice
