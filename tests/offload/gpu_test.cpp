// What sysfs says of a card's place, from folders made up here; no GPU is needed.
#include "offload/gpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <locale>

#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

class PciFolders : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const auto path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void write_link(const std::string& folder, const std::string& speed, const std::string& width) {
    write(folder + "/max_link_speed", speed);
    write(folder + "/max_link_width", width);
  }
  void expect_place(const std::string& card, const PciPlace& wanted) {
    const PciPlace place = read_pci_place(folder_.path() / card);
    EXPECT_EQ(place.generation, wanted.generation);
    EXPECT_EQ(place.width, wanted.width);
    EXPECT_EQ(place.numa_node, wanted.numa_node);
  }
  TempFolder folder_;
};

TEST_F(PciFolders, tell_the_link_that_card_and_port_both_can_and_the_node) {
  write_link("port", "16.0 GT/s PCIe", "8");
  write_link("port/card", "32.0 GT/s PCIe", "16");
  write("port/card/numa_node", "1");
  expect_place("port/card", {.generation = 4, .width = 8, .numa_node = 1});
}

TEST_F(PciFolders, are_read_as_the_system_writes_them_whatever_the_locale) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  write_link("card", "2.5 GT/s PCIe", "4");
  expect_place("card", {.generation = 1, .width = 4, .numa_node = -1});
  std::locale::global(before);
}

TEST_F(PciFolders, of_a_card_without_a_port_tell_what_the_card_can) {
  write_link("card", "32.0 GT/s PCIe", "16");
  write("card/numa_node", "-1");
  expect_place("card", {.generation = 5, .width = 16, .numa_node = -1});
}

TEST_F(PciFolders, that_are_not_there_or_say_nothing_known_leave_the_place_unknown) {
  write("card/max_link_speed", "Unknown");
  for (const char* name : {"card", "nothing"}) expect_place(name, {.generation = 0, .width = 0, .numa_node = -1});
}

TEST(Gpus, are_described_in_one_line) {
  const Gpu gpu{.name = "Some GPU",
                .memory_bytes = int64_t{24} << 30,
                .free_bytes = int64_t{23} << 30,
                .compute_capability = 89,
                .pci_address = "0000:01:00.0",
                .place = {.generation = 4, .width = 16, .numa_node = 0}};
  EXPECT_EQ(describe(gpu),
            "Some GPU (compute capability 8.9), 23.0 GiB free of 24.0 GiB, at 0000:01:00.0, PCIe 4.0 x16, NUMA node 0");
  const Gpu somewhere{.name = "Some GPU", .compute_capability = 90, .pci_address = "0000:01:00.0"};
  EXPECT_EQ(describe(somewhere), "Some GPU (compute capability 9.0), 0 B free of 0 B, at 0000:01:00.0");
}

}  // namespace
}  // namespace sluice
