// A machine's file: what is read, what is refused by name, what is kept between runs.
#include "app/machine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "app/speeds.h"
#include "core/errors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/set_variable.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

const MachineSpeeds kSpeeds{.read_gb_per_s = 2.5,
                            .write_gb_per_s = 1.25,
                            .mixed_gb_per_s = 2,
                            .upload_gb_per_s = 12,
                            .download_gb_per_s = 11,
                            .update_ns_per_element = 0.45,
                            .summed_ns_per_element = 0.5,
                            .out_of_place_ns_per_element = 0.75,
                            .checksum_gb_per_s = 20,
                            .close_gb_per_s = 5,
                            .commit_ms = 0.3,
                            .update_threads = 3,
                            .cores = 4};

class MachineFile : public testing::Test {
 protected:
  std::string error_of(const std::string& text) const {
    std::ofstream(path_) << text;
    return message_or<ConfigError>("", [this] { read_machine(path_); });
  }
  std::string with(const std::string& from, const std::string& to) const {
    std::string text = machine_text(kSpeeds, "{}");
    return text.replace(text.find(from), from.size(), to);
  }
  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "machine.json";
};

TEST_F(MachineFile, gives_back_what_was_written) {
  EXPECT_EQ(error_of(machine_text(kSpeeds, R"({"cpu": "any"})")), "");
  const MachineSpeeds read = read_machine(path_);
  for (const MachineField& field : machine_fields()) EXPECT_EQ(read.*field.value, kSpeeds.*field.value) << field.name;
  EXPECT_EQ(read.update_threads, 3);
}

TEST_F(MachineFile, may_leave_out_what_takes_no_time) { EXPECT_EQ(error_of(with("\"hop_us\": 0.0,", "")), ""); }

TEST_F(MachineFile, that_is_wrong_is_refused_with_its_name_and_the_keys) {
  using testing::AllOf, testing::HasSubstr;
  for (const auto& [text, key] :
       {std::pair(with("\"read_gb_per_s\": 2.5,", ""), "read_gb_per_s is missing: "),
        std::pair(with("\"read_gb_per_s\": 2.5", "\"read_gb_per_s\": 0"), "read_gb_per_s"),
        std::pair(with("\"read_gb_per_s\": 2.5", "\"read_gb_per_s\": \"fast\""), "read_gb_per_s"),
        std::pair(with("\"read_gb_per_s\": 2.5", "\"read_gb_per_s\": 1e300"),
                  "read_gb_per_s is 1e+300: allowed is up to"),
        std::pair(with("\"read_gb_per_s\": 2.5", "\"read_gb_per_s\": 1e-300"),
                  "read_gb_per_s is 1e-300: allowed is up to"),
        std::pair(with("\"update_threads\": 3", "\"update_threads\": 0"), "update_threads"),
        std::pair(with("\"compute_cores\": 0.0", "\"compute_cores\": 4.5"), "compute_cores is 4.5"),
        std::pair(with("\"copy_cores\": 0.0", "\"copy_cores\": 5"), "copy_cores is 5: allowed is up to its cores, 4"),
        std::pair(with("\"read_gb_per_s\": 2.5", "\"read_gb_per_s\": 0.1"), "mixed_gb_per_s is"),
        std::pair(with("\"hop_us\"", "\"hop_ms\""), "\"hop_ms\" is no speed of a machine; did you mean \"hop_us\"?"),
        std::pair(with("\"hop_us\"", "\"colour\""), "\"colour\" is no speed of a machine: allowed are "),
        std::pair(with("\"hop_us\"", "\"colour\""), "read_gb_per_s, write_gb_per_s, "),
        std::pair(
            std::string(R"({"model": {"type": "gpt2"}, "train_batch_size": 8})"),
            "this is the configuration of a run (it has \"model\"), not a machine's speeds: give a file with those"),
        std::pair(std::string(R"({"bf16": {}, "sluice": {}})"), "the configuration of a run (it has \"sluice\")"),
        std::pair(std::string(R"({"steps_per_print": 1, "train_batch_size": 8})"),
                  "the configuration of a run (it has \"train_batch_size\")"),
        std::pair(std::string(R"({"read_gb_per_s": 1, "cores": 2})"), "write_gb_per_s, mixed_gb_per_s, "),
        std::pair(with("\"read_gb_per_s\": 2.5", "\"read_gb_per_s\": 2.5, \"read_gb_per_s\": 9"),
                  "read_gb_per_s\" is given twice"),
        std::pair(std::string("[]"), "JSON object")}) {
    EXPECT_THAT(error_of(text), AllOf(HasSubstr(path_.string()), HasSubstr(key)));
  }
}

TEST_F(MachineFile, has_a_whole_number_of_update_threads_and_any_of_cores) {
  for (const char* threads : {"0", "-1", "1.9", "1025", "3000000000", "1e300", "\"2\""}) {
    EXPECT_THAT(error_of(with("\"update_threads\": 3", std::string("\"update_threads\": ") + threads)),
                testing::HasSubstr(std::string("update_threads is ") + (threads[1] == 'e' ? "1e+300" : threads)));
  }
  EXPECT_EQ(error_of(with("\"update_threads\": 3", "\"update_threads\": 1024.0")), "");
  EXPECT_EQ(read_machine(path_).update_threads, 1024);
  EXPECT_EQ(error_of(with("\"cores\": 4.0", "\"cores\": 1.5")), "");  // a quota's
  EXPECT_EQ(read_machine(path_).cores, 1.5);
}

TEST_F(MachineFile, may_say_how_many_drives_there_are) {
  EXPECT_EQ(error_of(machine_text(kSpeeds, "{}")), "");
  EXPECT_EQ(read_machine(path_).drives, 0);
  EXPECT_EQ(error_of(with("\"update_threads\": 3", "\"update_threads\": 3, \"drives\": 8")), "");
  EXPECT_EQ(read_machine(path_).drives, 8);
  EXPECT_EQ(error_of(machine_text(read_machine(path_), "{}")), "");
  EXPECT_EQ(read_machine(path_).drives, 8);
  EXPECT_THAT(error_of(with("\"update_threads\": 3", "\"update_threads\": 3, \"drives\": 1.5")),
              testing::HasSubstr("drives is 1.5: allowed is a whole number"));
}

TEST_F(MachineFile, measured_before_is_found_by_what_it_was_measured_for) {
  const MachineCache cache(folder_.path() / "cache");
  const std::string key = R"({"cpu":"a"})", other = R"({"cpu":"b"})";
  EXPECT_FALSE(cache.find(key));
  ASSERT_TRUE(cache.keep(key, kSpeeds));
  EXPECT_EQ(cache.find(key).value().speeds.read_gb_per_s, 2.5);
  EXPECT_LT(cache.find(key).value().age, std::chrono::hours(1));
  const auto kept_at = std::filesystem::last_write_time(cache.file(key));
  std::filesystem::last_write_time(cache.file(key), kept_at - std::chrono::hours(5));
  EXPECT_GE(cache.find(key).value().age, std::chrono::hours(5));
  EXPECT_FALSE(cache.find(other));
  std::filesystem::copy_file(cache.file(key), cache.file(other));  // two keys with one name
  EXPECT_FALSE(cache.find(other));
  std::ofstream(cache.file(key)) << "{";
  EXPECT_FALSE(cache.find(key));
  std::filesystem::remove(cache.file(key));
  std::filesystem::create_symlink("/proc/self/mem", cache.file(key));  // opens, and cannot be read
  EXPECT_FALSE(cache.find(key));
}

TEST_F(MachineFile, is_kept_in_the_users_cache_and_not_where_the_command_happens_to_run) {
  const SetVariable home("HOME", folder_.path());
  for (const auto& [cache, kept_in] : {std::pair(std::string("cache"), folder_.path() / ".cache"),
                                       std::pair((folder_.path() / "mine").string(), folder_.path() / "mine")}) {
    const SetVariable cache_home("XDG_CACHE_HOME", cache);
    EXPECT_EQ(MachineCache().file("{}").parent_path(), kept_in / "sluice") << cache;
  }
}

TEST(WithDrives, has_the_speeds_of_as_many_drives_as_are_asked_for) {
  MachineSpeeds machine = kSpeeds;
  EXPECT_EQ(with_drives(machine, 4).read_gb_per_s, 2.5) << "of a machine whose drives nobody counted";
  machine.drives = 2;
  const MachineSpeeds four = with_drives(machine, 4);
  EXPECT_EQ(four.read_gb_per_s, 5);
  EXPECT_EQ(four.drives, 4);
  EXPECT_EQ(with_drives(four, 2).read_gb_per_s, 2.5);
}

TEST_F(MachineFile, is_not_kept_where_there_is_no_place_for_it) {
  std::ofstream(path_) << "a file, no folder";
  EXPECT_FALSE(MachineCache(path_).keep("{}", kSpeeds));
  EXPECT_FALSE(MachineCache(std::filesystem::path()).keep("{}", kSpeeds));
}

}  // namespace
}  // namespace sluice
