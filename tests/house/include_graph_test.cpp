#include "tests/house/include_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::house {
namespace {

// A tree in which every header that samples name is there.
std::string includes_report(const std::string& path, const std::string& line) {
  SourceTree tree;
  for (const char* header :
       {"core/bytes.h", "swap/drive.h", "offload/device.h", "cpu_adam/adam.h", "engine/plan.h", "libtorch/process.h",
        "models/gpt2.h", "data/text.h", "configs/config.h", "app/train.h", "tests/fakes/queue.h"}) {
    tree.push_back({header, ""});
  }
  tree.push_back({path, "#pragma once\n" + line + "\n"});
  return report(check_includes(tree));
}

TEST(Includes, that_go_down_the_house_are_fine) {
  EXPECT_EQ(includes_report("engine/step.cpp", "#include \"core/bytes.h\""), "");
  EXPECT_EQ(includes_report("engine/step.cpp", "#include \"cpu_adam/adam.h\""), "");
  EXPECT_EQ(includes_report("models/gpt2.cpp", "#include \"swap/drive.h\""), "");
  EXPECT_EQ(includes_report("app/main.cpp", "#include \"data/text.h\""), "");
  EXPECT_EQ(includes_report("configs/load.cpp", "#include \"engine/plan.h\""), "");
  EXPECT_EQ(includes_report("swap/drive.cpp", "#include \"swap/drive.h\""), "");
  EXPECT_EQ(includes_report("tests/engine/plan_test.cpp", "#include \"engine/plan.h\""), "");
  EXPECT_EQ(includes_report("tests/swap/drive_test.cpp", "#include \"tests/fakes/queue.h\""), "");
}

TEST(Includes, that_go_up_or_sideways_are_reported_with_file_and_line) {
  EXPECT_EQ(includes_report("core/bytes.cpp", "#include \"swap/drive.h\""),
            "core/bytes.cpp:2: includes \"swap/drive.h\", which is not below it in the house\n");
  const std::pair<const char*, const char*> bad[] = {
      {"swap/drive.cpp", "offload/device.h"},     {"offload/device.cpp", "cpu_adam/adam.h"},
      {"cpu_adam/adam.cpp", "swap/drive.h"},      {"engine/step.cpp", "libtorch/process.h"},
      {"engine/step.cpp", "data/text.h"},         {"libtorch/process.cpp", "models/gpt2.h"},
      {"models/gpt2.cpp", "configs/config.h"},    {"data/text.cpp", "engine/plan.h"},
      {"configs/load.cpp", "models/gpt2.h"},      {"models/gpt2.cpp", "app/train.h"},
      {"engine/step.cpp", "tests/fakes/queue.h"}, {"tests/core/bytes_test.cpp", "swap/drive.h"},
  };
  for (const auto& [path, header] : bad) {
    EXPECT_THAT(includes_report(path, "#include \"" + std::string(header) + "\""), testing::HasSubstr("not below"))
        << path << " " << header;
  }
}

TEST(Includes, that_name_no_header_of_the_tree_are_reported) {
  EXPECT_THAT(includes_report("core/bytes.cpp", "#include \"bytes.h\""), testing::HasSubstr("no file of the tree"));
  EXPECT_THAT(includes_report("core/bytes.cpp", "  #  include \"core/gone.h\""), testing::HasSubstr("no file"));
  EXPECT_THAT(includes_report("core/other.cpp", "#include \"core/other.cpp\""), "");  // Highway includes a file again
}

TEST(ThirdParty, is_met_in_its_place_alone) {
  const std::pair<const char*, const char*> good[] = {
      {"swap/io_queue_uring.cpp", "liburing.h"},
      {"core/topology_hwloc.cpp", "hwloc.h"},
      {"core/checksum.cpp", "isa-l/crc.h"},
      {"cpu_adam/update_team_tbb.cpp", "oneapi/tbb/task_arena.h"},
      {"configs/load.cpp", "nlohmann/json.hpp"},
      {"core/bytes.cpp", "fmt/format.h"},
      {"app/main.cpp", "CLI/CLI.hpp"},
      {"models/gpt2.h", "torch/torch.h"},
      {"tests/core/bytes_test.cpp", "gtest/gtest.h"},
      {"core/bytes.cpp", "vector"},
      {"core/arena.cpp", "sys/mman.h"},
  };
  for (const auto& [path, header] : good) {
    EXPECT_EQ(includes_report(path, "#include <" + std::string(header) + ">"), "") << path << " " << header;
  }
  const std::pair<const char*, const char*> bad[] = {
      {"swap/drive.cpp", "liburing.h"},         {"cpu_adam/update_team_std.cpp", "hwloc.h"},
      {"swap/record_store.cpp", "isa-l/crc.h"}, {"engine/step.cpp", "tbb/task_arena.h"},
      {"configs/load.h", "nlohmann/json.hpp"},  {"engine/step.cpp", "nlohmann/json.hpp"},
      {"core/bytes.h", "fmt/format.h"},         {"engine/step.cpp", "spdlog/spdlog.h"},
      {"engine/step.cpp", "torch/torch.h"},     {"app/main.cpp", "ATen/ATen.h"},
      {"core/bytes.cpp", "gtest/gtest.h"},      {"core/bytes.cpp", "cassert"},
      {"core/bytes.cpp", "boost/any.hpp"},      {"data/text.cpp", "sentencepiece_trainer.h"},
  };
  for (const auto& [path, header] : bad) {
    EXPECT_THAT(includes_report(path, "#include <" + std::string(header) + ">"), testing::HasSubstr("place"))
        << path << " " << header;
  }
}

std::string links_report(const std::string& folder, const std::string& text) {
  return report(check_links({{folder + "/CMakeLists.txt", text}}));
}

TEST(Links, that_are_the_edges_are_fine) {
  EXPECT_EQ(links_report("engine", "sluice_library(engine\n SOURCES a.cpp LINK offload cpu_adam\n PRIVATE fmt::fmt)"),
            "");
  EXPECT_EQ(links_report("core", "sluice_library(core SOURCES a.cpp) # LINK swap"), "");
  EXPECT_EQ(links_report("app",
                         "sluice_library(app LINK models data configs bench)\n"
                         "target_link_libraries(sluice PRIVATE sluice_app)"),
            "");
}

TEST(Links, beside_the_edges_and_edges_that_are_missing_are_reported) {
  EXPECT_EQ(links_report("swap", "sluice_library(swap LINK core cpu_adam)"),
            "swap/CMakeLists.txt: links cpu_adam, which is no edge of the house\n");
  EXPECT_EQ(links_report("engine", "sluice_library(engine LINK offload)"),
            "engine/CMakeLists.txt: does not link cpu_adam\n");
  EXPECT_EQ(
      links_report("data", "sluice_library(data LINK core)\ntarget_link_libraries(sluice_data PUBLIC sluice_engine)"),
      "data/CMakeLists.txt: links engine, which is no edge of the house\n");
  EXPECT_EQ(links_report("data", "sluice_library(data LINK core PRIVATE sluice_swap)"),
            "data/CMakeLists.txt: links swap, which is no edge of the house\n");
}

}  // namespace
}  // namespace sluice::house
