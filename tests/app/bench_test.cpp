// `sluice bench`: what a benchmark prints for programs, and what it refuses. Figures are not judged here.
#include "offload/gpu.h"
#include "tests/app/command_fixture.h"
#include "tests/app/matches.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST_F(CommandTest, bench_adam_prints_one_json_object_with_rows_for_the_checksums) {
  const Ended ended = sluice({"bench", "adam", "--elements", "70001", "--threads", "2", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto json = ordered_json_of(ended.out);
  std::vector<std::string> keys = {"ns_per_param", "gb_per_s", "ceiling_gb_per_s", "percent_of_ceiling",
                                   "isa",          "threads",  "elements"};
  EXPECT_EQ(keys_of(json["with_checksum"]), keys);
  EXPECT_EQ(keys_of(json["verified"]), keys);
  keys.insert(keys.end(), {"with_checksum", "verified"});
  EXPECT_EQ(keys_of(json), keys);
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["elements"], 70001);
  for (const Json& row : {Json(json), Json(json["with_checksum"]), Json(json["verified"])}) {
    const double ns = row["ns_per_param"], gb_per_s = row["gb_per_s"], ceiling = row["ceiling_gb_per_s"];
    EXPECT_NEAR(gb_per_s * ns, 26, 1e-6);  // bytes of a parameter in bf16
    EXPECT_NEAR(row["percent_of_ceiling"], 100 * gb_per_s / ceiling, 1e-6);
  }
  EXPECT_NE(json["with_checksum"], json["verified"]) << "each is measured";
}

TEST_F(CommandTest, bench_adam_runs_the_instructions_and_the_precision_that_are_asked_for) {
  for (const auto& [precision, bytes] : std::map<std::string, double>{{"fp16", 28}, {"fp32", 28}}) {
    const Ended ended =
        sluice({"bench", "adam", "--elements", "8192", "--isa", "scalar", "--precision", precision, "--json"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const Json json = json_of(ended.out);
    EXPECT_EQ(json["isa"], "scalar");
    EXPECT_NEAR(json["gb_per_s"].get<double>() * json["ns_per_param"].get<double>(), bytes, 1e-6);
  }
}

TEST_F(CommandTest, bench_words_are_taken_in_any_case_and_others_refused_with_those_that_are_allowed) {
  const Ended upper =
      sluice({"bench", "adam", "--elements", "4096", "--precision", "FP16", "--isa", "Scalar", "--json"});
  ASSERT_EQ(upper.exit_code, 0) << upper.err;
  EXPECT_EQ(json_of(upper.out)["isa"], "scalar");
  struct Refused {
    const char *command, *option, *allowed;
  };
  for (const Refused& each :
       {Refused{"adam", "--precision", "bf16,fp16,fp32"}, Refused{"adam", "--moments", "bf16,fp32"},
        Refused{"copy", "--device", "auto,cpu,cuda"}, Refused{"adam", "--device", "auto,cpu,cuda"}}) {
    const Ended ended = sluice({"bench", each.command, each.option, "bf17"});
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_THAT(ended.err, AllOf(HasSubstr("bf17"), HasSubstr(each.allowed))) << each.option;
  }
  for (const char* command : {"adam", "copy", "io"}) {
    const Ended help = sluice({"bench", command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    const auto printable = [](unsigned char c) { return c == '\n' || c >= ' '; };
    EXPECT_TRUE(std::ranges::all_of(help.out, printable)) << command;
  }
}

TEST_F(CommandTest, bench_adam_shows_people_what_lies_around_the_pass) {
  const Ended ended = sluice({"bench", "adam", "--elements", "300000"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* words :
       {"ns per parameter", "% of the ceiling", "update and checksum", "add_gradient", "close_gradient",
        "in cache, 2 MiB", "4 KiB pages", "chunks of many sizes", "pass the caches by"}) {
    EXPECT_THAT(ended.out, HasSubstr(words));
  }
  const auto share =
      matches_of("in cache, 2 MiB +([0-9.]+) ns .* alone ([0-9.]+) \\(([0-9]+) % of that bound", ended.out);
  ASSERT_EQ(share.size(), 1u) << ended.out;
  EXPECT_NEAR(std::stod(share[0][3]), 100 * std::stod(share[0][2]) / std::stod(share[0][1]), 2);
  const auto updates = matches_of("  (update|verified too) +(.*)", ended.out);
  ASSERT_GE(updates.size(), 2u) << ended.out;
  EXPECT_NE(updates.front()[2], updates.back()[2]);
}

TEST_F(CommandTest, bench_adam_on_a_device_shows_its_kernels_beside_a_copy_within_its_memory) {
  const Ended ended = sluice({"bench", "adam", "--device", "cpu", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json json = json_of(ended.out);
  EXPECT_THAT(json["device"].get<std::string>(), HasSubstr("device_host"));
  for (const char* kernel : {"update", "add_gradient", "close_gradient"}) {
    const double gb_per_s = json[kernel]["gb_per_s"];
    EXPECT_GT(gb_per_s, 0);
    EXPECT_NEAR(json[kernel]["percent_of_ceiling"], 100 * gb_per_s / json["ceiling_gb_per_s"].get<double>(), 1e-6);
  }
  EXPECT_NE(json["add_gradient"], json["close_gradient"]) << "each is measured";
  const Ended table = sluice({"bench", "adam", "--device", "auto", "--precision", "fp32"});
  EXPECT_THAT(table.out, testing::AllOf(HasSubstr("update"), HasSubstr("fp32"), HasSubstr("% of the ceiling")));
  const Ended halves = sluice({"bench", "adam", "--device", "cpu", "--moments", "bf16"});
  EXPECT_THAT(halves.out, HasSubstr("moments bf16"));
  for (const auto& [of_the_host, value] :
       std::map<std::string, std::string>{{"--elements", "8192"}, {"--threads", "1"}, {"--isa", "scalar"}}) {
    const Ended refused = sluice({"bench", "adam", "--device", "cpu", of_the_host, value});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.last_error_line(), HasSubstr(of_the_host + " excludes --device"));
  }
}

TEST_F(CommandTest, bench_adam_on_a_gpu_that_is_not_there_says_why) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "a GPU answers here";
  const Ended ended = sluice({"bench", "adam", "--device", "cuda"});
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_THAT(ended.last_error_line(), HasSubstr(why_no_gpu()));
}

TEST_F(CommandTest, bench_adam_refuses_what_this_machine_does_not_have) {
  Ended ended = sluice({"bench", "adam", "--isa", "abacus"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, testing::AllOf(HasSubstr("abacus"), HasSubstr("scalar")));
  ended = sluice({"bench", "adam", "--elements", "7"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, testing::ContainsRegex("--elements.*7.*4096"));
  for (const char* elements : {"100000000000000", "9223372036854775807"}) {
    ended = sluice({"bench", "adam", "--elements", elements});
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err, testing::AllOf(HasSubstr(elements), HasSubstr("of the memory that is available")));
  }
}

}  // namespace
}  // namespace sluice
