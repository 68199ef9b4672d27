// `sluice bench copy`: what it prints for programs, and what it refuses. Figures are not judged here.
#include "offload/gpu.h"
#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class BenchCopy : public CommandTest {
 protected:
  Ended copy(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"bench", "copy", "--size", "64MiB", "--rounds", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return sluice(arguments);
  }
  static void expect_figure(const Json& figure) {
    const double rate = figure["gb_per_s"], ceiling = figure["ceiling_gb_per_s"];
    EXPECT_GT(rate, 0);
    EXPECT_GT(ceiling, 0);
    EXPECT_NEAR(figure["percent_of_ceiling"], 100 * rate / ceiling, 1e-6);
  }
  static void expect_rows(const Json& json) {
    EXPECT_EQ(json["copies"].size(), 4u) << "four copies of 16 MiB do not fit into half of 64 MiB";
    int64_t before = 0;
    for (const Json& row : json["copies"]) {
      for (const char* figure : {"upload", "download", "both"}) expect_figure(row[figure]);
      EXPECT_GT(row["bytes"].get<int64_t>(), before);
      before = row["bytes"];
    }
  }
};

TEST_F(BenchCopy, prints_every_direction_by_size_on_the_host_twin) {
  const Ended ended = copy({"--device", "cpu", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json json = json_of(ended.out);
  EXPECT_THAT(json["device"].get<std::string>(), HasSubstr("device_host"));
  expect_rows(json);
  EXPECT_FALSE(json.contains("nvme_to_device"));
}

TEST_F(BenchCopy, measures_the_whole_way_from_a_drive_against_the_slower_part_and_leaves_nothing_behind) {
  std::filesystem::create_directory(file("drive"));
  const Ended ended = copy({"--device", "cpu", "--path", file("drive"), "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json whole = json_of(ended.out)["nvme_to_device"];
  expect_figure(whole);
  EXPECT_EQ(whole["ceiling_gb_per_s"],
            std::min(whole["read_gb_per_s"].get<double>(), whole["upload_gb_per_s"].get<double>()));
  EXPECT_TRUE(std::filesystem::is_empty(file("drive")));
}

TEST_F(BenchCopy, prints_lines_for_people_and_takes_the_folders_away_that_it_made) {
  const Ended ended = copy({"--path", file("not/there/yet")});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(file("not/there/yet") + " was not there"));
  EXPECT_FALSE(std::filesystem::exists(file("not")));
  for (const char* words : {"upload", "download", "both", "64.0 KiB", "4.0 MiB", "NVMe to device"})
    EXPECT_THAT(ended.out, HasSubstr(words));
}

TEST_F(BenchCopy, measures_a_gpu_asked_for_by_name) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << "no GPU: " << why_no_gpu();
  const Ended ended = copy({"--device", "cuda", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json json = json_of(ended.out);
  EXPECT_THAT(json["device"].get<std::string>(), HasSubstr("device_cuda"));
  expect_rows(json);
}

TEST_F(BenchCopy, refuses_a_gpu_that_is_not_there_and_sizes_that_say_nothing) {
  for (const auto& [option, value] :
       std::map<std::string, std::string>{{"--size", "1MiB"}, {"--device", "tpu"}, {"--rounds", "0"}}) {
    const Ended ended = copy({option, value});
    EXPECT_EQ(ended.exit_code, 2) << option;
    EXPECT_THAT(ended.err, HasSubstr(option));
  }
  if (why_no_gpu().empty()) return;
  const Ended ended = copy({"--device", "cuda"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr(why_no_gpu()));
}

}  // namespace
}  // namespace sluice
