// What sysfs says of a card's place, from folders made up here; no GPU is needed.
#include "offload/gpu.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

class PciFolders : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const auto path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  TempFolder folder_;
};

TEST_F(PciFolders, tell_the_link_that_card_and_port_both_can_and_the_node) {
  write("port/max_link_speed", "16.0 GT/s PCIe");
  write("port/max_link_width", "8");
  write("port/card/max_link_speed", "32.0 GT/s PCIe");
  write("port/card/max_link_width", "16");
  write("port/card/numa_node", "1");
  const PciPlace place = read_pci_place(folder_.path() / "port/card");
  EXPECT_EQ(place.generation, 4);
  EXPECT_EQ(place.width, 8);
  EXPECT_EQ(place.numa_node, 1);
}

TEST_F(PciFolders, of_a_card_without_a_port_tell_what_the_card_can) {
  write("card/max_link_speed", "32.0 GT/s PCIe");
  write("card/max_link_width", "16");
  write("card/numa_node", "-1");
  const PciPlace place = read_pci_place(folder_.path() / "card");
  EXPECT_EQ(place.generation, 5);
  EXPECT_EQ(place.width, 16);
  EXPECT_EQ(place.numa_node, -1);
}

TEST_F(PciFolders, that_are_not_there_or_say_nothing_known_leave_the_place_unknown) {
  write("card/max_link_speed", "Unknown");
  for (const char* name : {"card", "nothing"}) {
    const PciPlace place = read_pci_place(folder_.path() / name);
    EXPECT_EQ(place.generation, 0);
    EXPECT_EQ(place.width, 0);
    EXPECT_EQ(place.numa_node, -1);
  }
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
}

}  // namespace
}  // namespace sluice
