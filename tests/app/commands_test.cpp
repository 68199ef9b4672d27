// plan, generate, checkpoint export and info by the real command.
#include <sys/stat.h>

#include <set>

#include "core/bytes.h"
#include "offload/gpu.h"
#include "tests/app/command_fixture.h"
#include "tests/app/matches.h"
#include "tests/fakes/beside.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using CommandsTest = CommandTest;

TEST_F(CommandsTest, plan_prints_the_table_and_makes_nothing) {
  const Ended ended = sluice({"plan", "@run.json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* words : {"workspace", "device", "host", "nvme", "disk needed", "what a step moves", "chunks:"}) {
    EXPECT_THAT(ended.out, testing::HasSubstr(words));
  }
  EXPECT_FALSE(fs::exists(file("runs")));
}

TEST_F(CommandsTest, plan_as_json_has_the_numbers_of_the_table) {
  const Ended ended = sluice({"plan", "@run.json", "--json", "--set", "sluice.placement.state=nvme"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json plan = json_of(ended.out);
  EXPECT_EQ(plan["budgets"]["device"], 2 << 20);
  EXPECT_EQ(plan["budgets"]["host"], 1 << 20);
  int64_t device = 0;
  for (const Json& row : plan["uses"]) {
    if (row["tier"] == "device") device += row["bytes"].get<int64_t>();
  }
  EXPECT_GT(device, 0);
  EXPECT_LE(device, 2 << 20);
  // State at home on NVMe in bf16: 10 bytes per parameter, padding of partitions aside.
  const int64_t state = plan["homes"]["state"]["nvme"]["bytes"];
  EXPECT_GE(state, plan["parameters"].get<int64_t>() * 10);
  EXPECT_FALSE(plan["homes"]["state"].contains("host"));
  EXPECT_GT(plan["disk_bytes"], plan["parameters"].get<int64_t>() * 24);
  EXPECT_GT(plan["chunk_elements"], 0);
  EXPECT_EQ(plan["model_state_bytes"], 14 * plan["parameters"].get<int64_t>()) << "weights and gradients of 2 bytes";
  EXPECT_EQ(plan["workspace"]["measured"], true);
  EXPECT_FALSE(plan["moves_per_step"].empty());
}

TEST_F(CommandsTest, plan_as_json_counts_each_chunk_once_and_its_rates_follow_from_its_step) {
  const Ended ended = sluice({"plan", "@run.json", "--json", "--machine", "@machine.json", "--set",
                              R"(endurance={"terabytes_written": 0.001, "days": 365})"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json plan = json_of(ended.out), homes = plan["homes"], endurance = plan["endurance"];
  for (const char* group : {"weights", "state", "gradient"}) {
    int64_t chunks = 0;
    for (const Json& home : homes[group]) chunks += home["chunks"].get<int64_t>();
    EXPECT_EQ(chunks, plan["chunks"].get<int64_t>()) << group;
  }
  EXPECT_EQ(homes["gradient"]["host"]["bytes"], homes["weights"]["host"]["bytes"]) << "both are bf16";
  EXPECT_EQ(endurance["undone_bytes"], 0) << "of updates that wait";
  const double steps_per_day = 24 * 3600e3 / plan["prediction"]["step_ms"].get<double>();
  const double per_day = endurance["bytes_per_step"].get<double>() * steps_per_day;
  EXPECT_NEAR(endurance["bytes_per_day"], per_day, per_day / 1e6);
  EXPECT_LT(endurance["lasts_days"], 365);
  EXPECT_EQ(endurance["too_short"], true);
}

TEST_F(CommandsTest, plan_as_json_has_the_commits_that_were_not_taken) {
  leave_homes_to_the_planner();
  const Ended ended = sluice({"plan", "@run.json", "--json", "--machine", "@machine.json", "--set",
                              "sluice.placement.state=host", "--set", "sluice.host_memory=8MiB"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json plan = json_of(ended.out);
  EXPECT_GT(plan["commit_interval"], 1);
  EXPECT_EQ(plan["other_commits"]["commit_interval"], 1);
  EXPECT_GT(plan["other_commits"]["step_ms"], plan["prediction"]["step_ms"]);
}

TEST_F(CommandsTest, plan_as_json_names_no_home_of_gradients_where_none_are_kept) {
  leave_homes_to_the_planner();
  const Ended kept = sluice({"plan", "@run.json", "--json", "--set", "sluice.update=speculative"});
  EXPECT_TRUE(json_of(kept.out)["homes"].contains("gradient"));
  const Ended ended = sluice({"plan", "@run.json", "--json", "--set", "sluice.update=replay"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(json_of(ended.out)["homes"].contains("gradient"));
}

TEST_F(CommandsTest, the_disk_that_plan_asks_for_is_what_training_takes) {
  const Json plan = json_of(sluice({"plan", "@run.json", "--json"}).out);
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  EXPECT_EQ(plan["disk_bytes"], fs::file_size(file("run/sluice-0.swap")));
  const std::string table = sluice({"plan", "@run.json"}).out;
  const std::string words = format_bytes(plan["disk_bytes"].get<int64_t>());
  EXPECT_THAT(table, testing::ContainsRegex("= disk needed +" + words)) << "the rows add up to it";
}

TEST_F(CommandsTest, what_cannot_be_printed_is_an_error) {
  const Ended ended =
      run_process({"sh", "-c", beside_this_program("sluice") + " plan " + file("run.json") + " >/dev/full"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("standard output cannot be written"));
}

TEST_F(CommandsTest, plan_tells_what_a_step_writes_and_for_how_many_the_drive_is_rated) {
  const std::string rating = R"(endurance={"terabytes_written": 0.001, "days": 365})";
  const Ended ended = sluice({"plan", "@run.json", "--json", "--set", rating});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json endurance = json_of(ended.out)["endurance"];
  ASSERT_GT(endurance["bytes_per_step"], 0);
  EXPECT_NEAR(endurance["lasts_steps"].get<double>(), 1e9 / endurance["bytes_per_step"].get<double>(), 1);
  EXPECT_EQ(endurance["drives"].size(), 1u);
  const std::string table = sluice({"plan", "@run.json", "--set", rating}).out;
  EXPECT_THAT(table, testing::HasSubstr("nvme writes"));
  EXPECT_THAT(table, testing::HasSubstr("0.001 TB last"));
}

TEST_F(CommandsTest, two_folders_on_one_drive_wear_it_as_one_does) {
  const std::string rating = R"(endurance={"terabytes_written": 0.001, "days": 365})";
  const std::string both = "sluice.nvme=[\"" + file("a") + "\",\"" + file("b") + "\"]";
  const Ended ended = sluice({"plan", "@run.json", "--json", "--set", rating, "--set", both});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json endurance = json_of(ended.out)["endurance"];
  EXPECT_NEAR(endurance["lasts_steps"].get<double>(), 1e9 / endurance["bytes_per_step"].get<double>(), 1);
  ASSERT_EQ(endurance["drives"].size(), 1u);
  EXPECT_EQ(endurance["drives"][0]["share"], 1);
}

TEST_F(CommandsTest, two_drives_share_what_a_step_writes) {
  const MountedDrive other(MountedDrive::Kind::kMemory, file("other"), 64 * kMiB);
  if (!other.reason().empty()) GTEST_SKIP() << other.reason();
  const std::string both = "sluice.nvme=[\"" + file("a") + "\",\"" + file("other") + "\"]";
  const Ended ended = sluice({"plan", "@run.json", "--json", "--machine", "@machine.json", "--set", both});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json drives = json_of(ended.out)["endurance"]["drives"];
  ASSERT_EQ(drives.size(), 2u);
  for (const Json& drive : drives) EXPECT_EQ(drive["share"], 0.5);
}

TEST_F(CommandsTest, plan_takes_the_room_of_the_store_that_a_run_would_replace_for_free) {
  const int64_t needed =
      json_of(sluice({"plan", "@run.json", "--json", "--machine", "@machine.json"}).out)["disk_bytes"];
  const MountedDrive drive(MountedDrive::Kind::kMemory, file("drive"), round_up(needed * 3 / 2, 4096));
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::string nvme = "sluice.nvme=[\"" + file("drive") + "\"]";
  ASSERT_EQ(train("run", {"--steps", "1", "--set", nvme}).exit_code, 0);
  const Ended ended = sluice({"plan", "@run.json", "--set", nvme});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("no run can be begun")));
}

TEST_F(CommandsTest, training_ends_with_what_it_wrote_and_warns_of_a_drive_that_will_not_last) {
  const Ended plain = train("plain");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.out, testing::HasSubstr("TB a day"));
  EXPECT_THAT(plain.out, testing::Not(testing::HasSubstr("asked for")));
  const Ended worn = train("worn", {"--set", R"(endurance={"terabytes_written": 0.000001, "days": 365})"});
  ASSERT_EQ(worn.exit_code, 0) << worn.err;
  EXPECT_THAT(worn.out, testing::HasSubstr("365 days are asked for"));
  EXPECT_THAT(worn.err, testing::HasSubstr("endurance.days"));
}

TEST_F(CommandsTest, trim_gives_back_a_store_when_told_so_twice) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const Ended asked = sluice({"checkpoint", "trim", "@run"});
  EXPECT_EQ(asked.exit_code, 2);
  EXPECT_THAT(asked.err, testing::HasSubstr("--yes"));
  EXPECT_TRUE(fs::exists(file("run/sluice-0.swap")));
  const Ended ended = sluice({"checkpoint", "trim", "@run", "--yes"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr("given back"));
  EXPECT_FALSE(fs::exists(file("run/sluice-0.swap")));
  EXPECT_THAT(sluice({"checkpoint", "trim", "@run", "--yes"}).err, testing::HasSubstr("no store is there"));
}

TEST_F(CommandsTest, what_a_process_left_that_was_killed_as_it_put_a_file_in_its_place_goes_with_the_next_run) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const std::vector<std::string> own = {"config.json.0a1b2c3d.tmp", "tokens.cache.00000000.tmp"};
  const std::vector<std::string> others = {"config.json.tmp", "notes.0a1b2c3d.tmp", "config.json.0a1b2c3d.tmp.txt"};
  for (const auto& names : {own, others}) {
    for (const std::string& name : names) std::ofstream(file("run/" + name)) << "left";
  }
  ASSERT_EQ(train("run", {"--steps", "2", "--resume"}).exit_code, 0);
  for (const std::string& name : own) EXPECT_FALSE(fs::exists(file("run/" + name))) << name;
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(file("run/" + name))) << name;
}

TEST_F(CommandsTest, trim_removes_nothing_while_a_drive_is_not_mounted) {
  const Json drives = {file("one"), file("two")};
  ASSERT_EQ(train("run", {"--steps", "1", "--set", "sluice.nvme=" + drives.dump()}).exit_code, 0);
  fs::rename(file("two"), file("not mounted"));
  const auto expect_kept = [&] {
    const Ended refused = sluice({"checkpoint", "trim", "@run", "--yes"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.last_error_line(), testing::HasSubstr(file("two/sluice-0.swap") + " is not there"));
    EXPECT_TRUE(fs::exists(file("one/sluice-0.swap")));
  };
  expect_kept();
  fs::create_directory(file("two"));  // where the drive is mounted
  expect_kept();
  fs::remove(file("two"));
  for (const std::vector<std::string>& reading :
       {std::vector<std::string>{"generate", "@run", "--prompt", "line", "--tokens", "2"},
        std::vector<std::string>{"checkpoint", "verify", "@run"},
        std::vector<std::string>{"checkpoint", "export", "@run", "@exported"}}) {
    EXPECT_THAT(sluice(reading).last_error_line(),
                testing::StartsWith("sluice: drive 1 of the store is missing: there is no " +
                                    file("two/sluice-0.swap") + "; is the drive mounted?"));
  }
  fs::rename(file("not mounted"), file("two"));
  const Ended ended = sluice({"checkpoint", "trim", "@run", "--yes"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* drive : {"one", "two"}) EXPECT_THAT(ended.out, testing::HasSubstr(file(drive) + ": "));
}

TEST_F(CommandsTest, an_export_that_fails_leaves_no_folder_of_its_own) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  {
    std::fstream store(file("run/sluice-0.swap"), std::ios::in | std::ios::out | std::ios::binary);
    const auto bytes = static_cast<std::streamoff>(fs::file_size(file("run/sluice-0.swap")));
    store.seekp(bytes / 4);  // headers and tables lie before, and stay
    const std::string other(static_cast<size_t>(bytes - bytes / 4), 'x');
    store.write(other.data(), static_cast<std::streamsize>(other.size()));
  }
  const Ended ended = sluice({"checkpoint", "export", "@run", "@out"});
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_THAT(ended.err, testing::HasSubstr("CRC32C"));
  EXPECT_FALSE(fs::exists(file("out")));
}

TEST_F(CommandsTest, a_trimmed_run_is_not_begun_anew_by_a_resume) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "trim", "@run", "--yes"}).exit_code, 0);
  const Ended resumed = train("run", {"--resume"});
  EXPECT_EQ(resumed.exit_code, 2) << resumed.err;
  EXPECT_THAT(resumed.last_error_line(), testing::HasSubstr("trimmed or removed"));
  EXPECT_THAT(resumed.last_error_line(), testing::HasSubstr("--overwrite"));
  EXPECT_FALSE(fs::exists(file("run/sluice-0.swap")));
  EXPECT_EQ(metrics("run").size(), 3u);
  EXPECT_EQ(train("run", {"--overwrite"}).exit_code, 0);
  EXPECT_EQ(metrics("run").size(), 7u);
}

TEST_F(CommandsTest, a_store_that_lost_its_commits_is_left_as_it_is_by_generate_and_resume) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  const auto bytes = fs::file_size(file("run/sluice-0.swap"));
  fs::resize_file(file("run/sluice-0.swap"), 0);
  fs::resize_file(file("run/sluice-0.swap"), bytes);  // all holes: not even a header
  for (const Ended& ended :
       {sluice({"generate", "@run", "--prompt", "x", "--tokens", "2"}), train("run", {"--resume"})}) {
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("no committed step"));
  }
  struct stat status {};
  ASSERT_EQ(stat(file("run/sluice-0.swap").c_str(), &status), 0);
  EXPECT_EQ(status.st_blocks, 0) << "a new store was made";
  EXPECT_EQ(metrics("run").size(), 3u);
}

TEST_F(CommandsTest, generate_continues_a_prompt_the_same_way_for_the_same_seed_and_draws_each_token_anew) {
  ASSERT_EQ(train("run").exit_code, 0);
  const std::vector<std::string> command = {"generate", "@run", "--prompt", "line 1", "--tokens", "20", "--seed"};
  const auto with_seed = [&](const std::string& seed) {
    std::vector<std::string> all = command;
    all.push_back(seed);
    const Ended ended = sluice(all);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.out.rfind("line 1", 0), 0u);
    return ended.out;
  };
  const std::string first = with_seed("1");
  EXPECT_EQ(with_seed("1"), first);
  EXPECT_NE(with_seed("2"), first);
  // Where every token is as likely as any other.
  const Ended any = sluice({"generate", "@run", "--prompt", "", "--tokens", "20", "--temperature", "1e9"});
  EXPECT_GT((std::set<char>(any.out.begin(), any.out.end())).size(), 5u) << any.out;
}

TEST_F(CommandsTest, a_wrong_option_leads_to_the_help_of_its_command) {
  const auto words_of = [&](const std::vector<std::string>& arguments) { return sluice(arguments).last_error_line(); };
  EXPECT_THAT(words_of({"bench", "step", "@run.json", "--rounds", "0"}),
              testing::HasSubstr("(see sluice bench step --help)"));
  EXPECT_THAT(words_of({"plan", "@run.json", "one.more"}), testing::HasSubstr("(see sluice plan --help)"));
  EXPECT_THAT(words_of({"train", "@run.json", "--steps", "5", "--steps", "6"}),
              testing::HasSubstr("--steps is given 2 times: give it once (see sluice train --help)"));
}

TEST_F(CommandsTest, a_run_is_read_with_other_budgets_than_it_was_trained_with) {
  ASSERT_EQ(train("run").exit_code, 0);
  const std::vector<std::string> generate = {"generate", "@run", "--prompt", "line", "--tokens", "3"};
  const std::vector<std::string> into = {"checkpoint", "export", "@run"};
  const auto ends = [&](std::vector<std::string> command, const std::string& last, const std::string& budget) {
    if (!last.empty()) command.push_back(last);
    command.insert(command.end(), {"--set", "sluice.device_memory=" + budget});
    return sluice(command);
  };
  const Ended whole = sluice(generate), other = ends(generate, "", "3MiB");
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(other.out, whole.out);
  EXPECT_EQ(ends(into, "@model", "3MiB").exit_code, 0);
  for (const Ended& ended : {ends(generate, "", "4KiB"), ends(into, "@none", "4KiB")}) {
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err, testing::HasSubstr("sluice.device_memory 4096"));
  }
  std::vector<std::string> other_heads = generate;
  other_heads.insert(other_heads.end(), {"--set", "model.n_head=6"});  // of the same shapes
  EXPECT_EQ(sluice(other_heads).exit_code, 2);
  EXPECT_THAT(sluice(other_heads).err, testing::HasSubstr("--set model.n_head=6: "));
}

TEST_F(CommandsTest, generating_changes_nothing_of_the_run) {
  ASSERT_EQ(train("whole").exit_code, 0);
  ASSERT_EQ(train("parts", {"--steps", "3"}).exit_code, 0);
  ASSERT_EQ(sluice({"generate", "@parts", "--prompt", "line", "--tokens", "3"}).exit_code, 0);
  ASSERT_EQ(train("parts", {"--resume"}).exit_code, 0);
  EXPECT_EQ(numbers(metrics("parts")), numbers(metrics("whole")));
}

TEST_F(CommandsTest, an_export_opened_in_transformers_continues_a_prompt_as_generate_does) {
  if (!has_transformers()) GTEST_SKIP() << SLUICE_PYTHON << " has no transformers";
  leave_homes_to_the_planner();
  ASSERT_EQ(train("run", {"--steps", "30", "--set", "bf16.enabled=false"}).exit_code, 0);
  export_and_continue();
}

TEST_F(CommandsTest, weights_of_two_bytes_are_exported_as_they_are_and_their_masters_in_fp32) {
  if (!has_transformers()) GTEST_SKIP() << SLUICE_PYTHON << " has no transformers";
  for (const auto& [key, dtype] : {std::pair("bf16", "bfloat16"), std::pair("fp16", "float16")}) {
    const std::string run = file(key), out = run + "_out", master = run + "_master";
    const std::string enabled = std::string(key) + R"(={"enabled": true})";
    ASSERT_EQ(train(key, {"--steps", "2", "--set", "bf16.enabled=false", "--set", enabled}).exit_code, 0);
    ASSERT_EQ(sluice({"checkpoint", "export", run, out}).exit_code, 0);
    ASSERT_EQ(sluice({"checkpoint", "export", run, master, "--fp32"}).exit_code, 0);
    const Ended compared = run_process({SLUICE_PYTHON, SLUICE_COMPARE, out, master, dtype});
    EXPECT_EQ(compared.exit_code, 0) << compared.err;
  }
}

TEST_F(CommandsTest, an_export_is_a_model_to_start_from) {
  ASSERT_EQ(train("run").exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@out"}).exit_code, 0);
  std::ofstream(file("more.json")) << R"({"model": {"path": ")" << file("out") << R"("},
    "data": {"sequence_length": 33}, "train_micro_batch_size_per_gpu": 6, "bf16": {"enabled": true},
    "sluice": {"device": "cpu", "device_memory": "2MiB", "host_memory": "1MiB", "compute_threads": 1,
               "update_threads": 1}})";
  const Ended ended = sluice({"train", "@more.json", "--data", "@text.txt", "--steps", "1", "--out", "@more"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_LT(metrics("more")[0]["loss"], metrics("run")[1]["loss"]);
  // The weights are in the store now.
  fs::remove_all(file("out"));
  EXPECT_EQ(sluice({"generate", "@more", "--prompt", "line", "--tokens", "2"}).exit_code, 0);
}

TEST_F(CommandsTest, info_says_what_is_picked_here_and_why) {
  const Ended ended = sluice({"info"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* words :
       {"I/O queue", "device_", "topology", "adam_", "CPU", "memory", "memlock", "nofile", "LibTorch 2.", "fmt "}) {
    EXPECT_THAT(ended.out, testing::HasSubstr(words));
  }
  const auto budgets = matches_of("memory +(.*) available; default budgets: device (.*), host (.*)", ended.out);
  ASSERT_EQ(budgets.size(), 1u) << ended.out;
  const auto bytes = [&](size_t group) { return static_cast<double>(parse_bytes(budgets[0][group])); };
  EXPECT_NEAR(bytes(3) / bytes(1), 0.5, 0.05);
  if (!why_no_gpu().empty()) {
    EXPECT_NEAR(bytes(2) / bytes(1), 0.2, 0.05);
  }
}

TEST_F(CommandsTest, info_says_how_to_raise_limits_that_hold_it_back) {
  const auto info = [](const std::string& limits) {
    return run_process({"sh", "-c", limits + " && exec " + beside_this_program("sluice") + " info"}).out;
  };
  const std::string low = info("ulimit -l 64 && ulimit -n 256");
  EXPECT_THAT(low, testing::ContainsRegex("memlock +64.0 KiB\n +to raise it.*`\\* - memlock unlimited`\n"));
  EXPECT_THAT(low, testing::ContainsRegex("nofile +256\n +to raise it.*`\\* - nofile 1024`\n"));
  EXPECT_THAT(info("ulimit -n 1024"), testing::Not(testing::HasSubstr("- nofile")));
}

TEST_F(CommandsTest, help_names_every_command) {
  const Ended ended = sluice({"--help"});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* command : {"train", "plan", "generate", "checkpoint", "info"}) {
    EXPECT_THAT(ended.out, testing::HasSubstr(command));
  }
}

TEST_F(CommandsTest, a_trace_asked_of_what_trains_no_step_is_refused) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  for (std::vector<std::string> command :
       {std::vector<std::string>{"generate", "@run", "--prompt", "line", "--tokens", "2"},
        std::vector<std::string>{"checkpoint", "export", "@run", "@out"},
        std::vector<std::string>{"tune", "@run.json"}}) {
    command.insert(command.end(), {"--set", "sluice.trace=\"" + file("trace.json") + "\""});
    const Ended ended = sluice(command);
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("this command writes no trace"));
  }
  EXPECT_FALSE(fs::exists(file("out")));
}

TEST_F(CommandsTest, generate_and_export_leave_the_trace_of_the_training_alone) {
  ASSERT_EQ(train("run", {"--steps", "2", "--trace", file("hops.json")}).exit_code, 0);
  const auto size = fs::file_size(file("hops.json"));
  ASSERT_GT(size, 1000u);
  ASSERT_EQ(sluice({"generate", "@run", "--prompt", "line", "--tokens", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@out"}).exit_code, 0);
  EXPECT_EQ(fs::file_size(file("hops.json")), size);
}

TEST_F(CommandsTest, a_continuation_may_be_longer_than_what_the_model_sees) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const auto generate = [&](const std::string& prompt, const std::string& tokens) {
    const Ended ended = sluice({"generate", "@run", "--prompt", prompt, "--tokens", tokens, "--temperature", "0"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  EXPECT_GT(generate("line", "40").size(), 40u);
  // The model sees 33 tokens, and a byte is one.
  const std::string seen = "the last thirty-three bytes count";
  ASSERT_EQ(seen.size(), 33u);
  EXPECT_EQ(generate("other " + seen, "1").substr(6), generate(seen, "1"));
}

TEST_F(CommandsTest, plan_tells_how_many_steps_a_crash_may_lose) {
  const Ended ended = sluice({"plan", "@run.json", "--set", "sluice.commit_interval=3"});
  EXPECT_THAT(ended.out, testing::HasSubstr("commit every 3 steps: a crash loses at most 4 steps"));
}

}  // namespace
}  // namespace sluice
