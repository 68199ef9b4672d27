// `sluice bench io`: what it prints for programs, that its sweep can be used, and that it leaves nothing behind; a run
// on two drives. Figures are not judged here.
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <future>
#include <string>
#include <thread>

#include "core/bytes.h"
#include "tests/app/command_fixture.h"
#include "tests/app/matches.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BenchIo : public CommandTest {
 protected:
  // Of 16 MiB.
  static std::vector<std::string> io_arguments(std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "io", "--path", "@drive", "--size", "16MiB"});
    return more;
  }
  Ended io(const std::vector<std::string>& more) const { return sluice(io_arguments(more)); }
  static Json figures_of(const Ended& ended) {
    Json json = json_of(ended.out);
    json.erase("queue");
    return json;
  }
};

TEST_F(BenchIo, prints_three_directions_with_their_keys_and_leaves_nothing_behind) {
  for (const std::string pattern : {"sequential", "chunks", "mixed"}) {
    const Ended ended = io({"--rounds", "1", "--pattern", pattern, "--block", "128KiB", "--depth", "8", "--json"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const auto json = ordered_json_of(ended.out);
    EXPECT_THAT(json["queue"].get<std::string>(), HasSubstr("depth 8")) << ended.out;
    std::vector<std::string> names;
    for (const auto& [name, figure] : json.items()) {
      if (name == "queue") continue;
      names.push_back(name);
      std::vector<std::string> keys;
      for (const auto& [key, value] : figure.items()) {
        keys.push_back(key);
        EXPECT_GT(value.get<double>(), 0) << pattern << ", " << name << ", " << key;
      }
      EXPECT_THAT(keys, testing::ElementsAre("gb_per_s", "ceiling_gb_per_s", "percent_of_ceiling", "cpu_ms_per_gb",
                                             "p50_us", "p99_us"));
      const double gb_per_s = figure["gb_per_s"], ceiling = figure["ceiling_gb_per_s"];
      EXPECT_NE(gb_per_s, ceiling) << "each is measured";
      EXPECT_NEAR(figure["percent_of_ceiling"], 100 * gb_per_s / ceiling, 1e-6);
      EXPECT_LT(figure["p50_us"], figure["p99_us"]) << "of hundreds of requests";
    }
    EXPECT_THAT(names, testing::ElementsAre("read", "write", "mixed"));
    EXPECT_EQ(json["read"]["gb_per_s"] == json["write"]["gb_per_s"], pattern == "mixed") << "both at once";
    EXPECT_NE(json["read"], json["write"]) << pattern;
    EXPECT_NE(json["write"], json["mixed"]) << pattern;
  }
  EXPECT_FALSE(fs::exists(file("drive"))) << "it was not there before";
}

TEST_F(BenchIo, measures_every_backend_with_and_without_checksums_on_several_drives) {
  const std::string both = file("a") + "," + file("b");
  for (const std::string backend : {"threads", "auto"}) {
    const Ended ended = sluice({"bench", "io", "--path", both, "--size", "16MiB", "--rounds", "1", "--backend", backend,
                                "--verify", "off", "--throttle", "0,0.5"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    for (const char* words : {"read", "write", "mixed", "split over 2 drives as", "checksums off"})
      EXPECT_THAT(ended.out, HasSubstr(words));
    const auto rows = matches_of("  (read|write|mixed) +([0-9.]+ GB/s .*)", ended.out);
    ASSERT_EQ(rows.size(), 3u) << ended.out;
    for (const size_t row : {0u, 1u, 2u}) EXPECT_NE(rows[row][2], rows[(row + 1) % 3][2]) << "each is measured";
  }
  // Next to nothing lies on a drive a hundred times slower.
  const Ended uneven =
      sluice({"bench", "io", "--path", both, "--size", "16MiB", "--rounds", "1", "--throttle", "0,0.01"});
  EXPECT_EQ(uneven.exit_code, 0) << uneven.err;
  EXPECT_FALSE(fs::exists(file("a")) || fs::exists(file("b"))) << "they were not there before";
}

TEST_F(BenchIo, says_why_threads_move_the_bytes_where_io_uring_cannot_be_had) {
  Ended text, json;
  std::thread([&] {
    forbid({.number = SYS_io_uring_setup, .error_number = EPERM});
    text = sluice_program(io_arguments({"--rounds", "1"}));
    json = sluice_program(io_arguments({"--rounds", "1", "--json"}));
  }).join();
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.err, HasSubstr("io_uring cannot be had here"));
  EXPECT_THAT(text.out, HasSubstr("threads"));
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(json_of(json.out)["queue"].get<std::string>(), HasSubstr("threads"));
}

TEST_F(BenchIo, on_a_drive_that_fails_speaks_of_its_own_options_and_of_no_store) {
  Ended ended;
  std::thread([&] {
    forbid({.number = SYS_fallocate, .error_number = ENOSPC});
    ended = sluice_program(io_arguments({"--rounds", "1"}));
  }).join();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(
      ended.last_error_line(),
      testing::AllOf(HasSubstr("a file of its own in " + file("drive")), HasSubstr("No space left"),
                     HasSubstr("--path"), testing::Not(HasSubstr("--out")), testing::Not(HasSubstr("sluice-bench-"))));
}

TEST_F(BenchIo, in_a_folder_that_was_not_there_says_so_and_takes_it_away_again) {
  const std::string here = file("mistyped");
  const auto measure = [&](const std::string& folder) {
    return sluice({"bench", "io", "--path", folder, "--size", "16MiB", "--rounds", "1"});
  };
  const Ended ended = measure(here + "/nvme");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(here + "/nvme was not there"));
  EXPECT_FALSE(fs::exists(here));
  fs::create_directories(here);
  EXPECT_THAT(measure(here).err, testing::Not(HasSubstr("was not there")));
  EXPECT_TRUE(fs::is_empty(here));
}

// No disk is as slow as these. Where others keep this one busy, a pass may wait for them: a ceiling that is wrong is so
// every time.
TEST_F(BenchIo, the_ceiling_of_drives_of_unequal_speed_is_what_both_give) {
  Ended ended;
  double most_percent = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    ended = sluice({"bench", "io", "--path", file("a") + "," + file("b"), "--size", "32MiB", "--rounds", "7",
                    "--verify", "off", "--throttle", "0.4,0.04", "--json"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    most_percent = 0;
    const Json figures = figures_of(ended);
    for (const auto& [name, figure] : figures.items())
      most_percent = std::max(most_percent, figure["percent_of_ceiling"].get<double>());
    if (most_percent < 150) break;
  }
  EXPECT_LT(most_percent, 150) << ended.out;
}

TEST_F(BenchIo, throttles_a_folder_however_it_is_spelled) {
  fs::create_directory(file("drive"));
  fs::create_directory_symlink(file("drive"), file("link"));
  for (const std::string& spelled : {file("drive/"), file("link"), file("./link/")}) {
    const Ended ended = sluice({"bench", "io", "--path", spelled, "--size", "16MiB", "--rounds", "1", "--verify", "off",
                                "--throttle", "0.2", "--json"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const Json figures = figures_of(ended);
    for (const auto& [name, figure] : figures.items())
      EXPECT_LT(figure["gb_per_s"].get<double>(), 0.21) << spelled << ", " << name;
  }
}

TEST_F(BenchIo, throttles_a_folder_inside_of_another_as_its_own_drive) {
  const Ended ended = sluice({"bench", "io", "--path", file("drive") + "," + file("drive/inner"), "--size", "16MiB",
                              "--rounds", "1", "--throttle", "0.02,0.2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto weights = matches_of("2 drives as ([0-9]+) : ([0-9]+)", ended.out);
  ASSERT_EQ(weights.size(), 1u) << ended.out;
  // Ten to one; as measured on a busy machine. Were they throttled as one drive, they would have the same.
  EXPECT_LT(3 * std::stoi(weights[0][1]), std::stoi(weights[0][2])) << ended.out;
}

// Weighing these two would take minutes.
TEST_F(BenchIo, ends_at_once_when_it_is_interrupted_and_leaves_nothing_behind) {
  for (const auto& [signal, number] :
       {std::pair<std::string, int>("INT", SIGINT), {"TERM", SIGTERM}, {"PIPE", SIGPIPE}, {"KILL", SIGKILL}}) {
    const Ended ended = sluice_signalled(
        signal, {"bench", "io", "--path", file("a") + "," + file("b"), "--size", "16MiB", "--throttle", "0.001,0.001"});
    EXPECT_EQ(ended.exit_code, 128 + number) << signal << ended.err;  // as a shell tells it
    EXPECT_THAT(ended.err, HasSubstr(file("b") + " was not there"));
    for (const char* folder : {"a", "b"}) {
      EXPECT_EQ(fs::exists(file(folder)), signal == "KILL");
      EXPECT_TRUE(!fs::exists(file(folder)) || fs::is_empty(file(folder)));
      fs::remove(file(folder));
    }
  }
}

TEST_F(BenchIo, several_at_once_in_one_folder_do_not_meet) {
  std::vector<std::future<Ended>> runs;
  for (int i = 0; i < 4; ++i)
    runs.push_back(std::async(std::launch::async, [this] {
      return sluice_program(io_arguments({"--rounds", "1", "--json"}));
    }));
  for (std::future<Ended>& run : runs) {
    const Ended ended = run.get();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  // Whoever made it leaves it where another is still at work in it.
  EXPECT_TRUE(!fs::exists(file("drive")) || fs::is_empty(file("drive")));
}

TEST_F(BenchIo, measures_records_smaller_than_a_request) {
  const std::vector<std::vector<std::string>> sizes = {
      {"--block", "64MiB"}, {"--block", "8MiB"}, {"--record", "64KiB"}, {"--record", "64KiB", "--block", "64MiB"}};
  for (std::vector<std::string> arguments : sizes) {
    arguments.insert(arguments.end(), {"--rounds", "1"});
    const Ended ended = io(arguments);
    EXPECT_EQ(ended.exit_code, 0) << testing::PrintToString(arguments) << "\n" << ended.err;
  }
  const std::string both = file("a") + "," + file("b");
  const Ended ended = sluice({"bench", "io", "--path", both, "--size", "16MiB", "--block", "64MiB", "--rounds", "1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

TEST_F(BenchIo, warns_of_records_that_are_smaller_than_asked_for_and_of_the_default_says_nothing) {
  const std::string warned = "the largest are of";
  const Ended asked = io({"--rounds", "1", "--record", "16MiB"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_THAT(asked.err, HasSubstr("--record is 16MiB: with --size 16MiB " + warned));
  EXPECT_THAT(io({"--rounds", "1", "--record", "64KiB"}).err, Not(HasSubstr(warned)));
  EXPECT_THAT(io({"--rounds", "1"}).err, Not(HasSubstr(warned)));
}

// All of them are as fast then: the first stays.
TEST_F(BenchIo, a_sweep_of_a_throttled_drive_is_no_faster_and_stars_what_its_configuration_has) {
  const Ended ended = sluice(
      {"bench", "io", "--path", "@drive", "--size", "16MiB", "--sweep", "--backend", "threads", "--throttle", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto trials = matches_of("reads ([0-9.]+), writes ([0-9.]+) GB/s", ended.out);
  EXPECT_GE(trials.size(), 20u);
  for (const auto& trial : trials) {
    EXPECT_LT(std::stod(trial[1]), 1.05) << ended.out;
    EXPECT_LT(std::stod(trial[2]), 1.05) << ended.out;
  }
  const auto starred = matches_of("\\* threads, blocks of ([^,]+), depth ([0-9]+):", ended.out);
  ASSERT_EQ(starred.size(), 1u) << ended.out;
  const Json chosen = json_of(ended.out.substr(ended.out.find('{')))["sluice"];
  EXPECT_EQ(format_bytes(chosen["io_block"]), starred[0][1]);
  EXPECT_EQ(chosen["io_depth"], std::stoi(starred[0][2]));
}

TEST_F(BenchIo, a_sweep_prints_settings_that_training_takes) {
  const Ended swept =
      sluice({"bench", "io", "--path", "@swept", "--size", "16MiB", "--sweep", "--json", "--backend", "threads"});
  ASSERT_EQ(swept.exit_code, 0) << swept.err;
  EXPECT_FALSE(fs::exists(file("swept"))) << "it was not there before";
  const Json found = json_of(swept.out);
  EXPECT_GE(found["sweep"].size(), 20u);
  for (const Json& trial : found["sweep"]) {  // what has no room is not tried: it would be the same as another
    const int64_t in_flight = trial["block"].get<int64_t>() * trial["depth"].get<int64_t>();
    EXPECT_LE(in_flight, int64_t{64} << 20) << trial;
    EXPECT_NE(trial["read_gb_per_s"], trial["write_gb_per_s"]);
  }
  const auto both_gb_per_s = [](const Json& trial) {
    return 2 / (1 / trial["read_gb_per_s"].get<double>() + 1 / trial["write_gb_per_s"].get<double>());
  };
  const Json& chosen = found["sluice"];
  EXPECT_EQ(chosen["io_backend"], "threads");
  const auto best = std::ranges::find_if(found["sweep"], [&](const Json& trial) {
    return trial["block"] == chosen["io_block"] && trial["depth"] == chosen["io_depth"];
  });
  ASSERT_NE(best, found["sweep"].end()) << chosen;
  for (const Json& trial : found["sweep"])
    EXPECT_LE(both_gb_per_s(trial), 1.05 * both_gb_per_s(*best)) << "by more than 5 % another would do better";
  Json config = json_in("run.json");
  config["sluice"].update(found["sluice"]);
  std::ofstream(file("run.json")) << config;
  const Ended ended = train("run", {"--steps", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(file("swept/sluice-0.swap")));
}

TEST_F(BenchIo, refuses_what_it_cannot_measure) {
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{{"--block", "5000"},
                                                                                      {"--block", "68157440"},
                                                                                      {"--record", "65535"},
                                                                                      {"--record", "1073741825"},
                                                                                      {"--pattern", "zigzag"},
                                                                                      {"--backend", "libaio"},
                                                                                      {"--depth", "0"},
                                                                                      {"--throttle", "nan"},
                                                                                      {"--throttle", "inf"},
                                                                                      {"--throttle", "-1"},
                                                                                      {"--throttle", "1e-9"}}) {
    const Ended ended = io({option, value});
    EXPECT_EQ(ended.exit_code, 2) << option << " " << value;
    EXPECT_THAT(ended.err, HasSubstr(option));
  }
  const Ended small = sluice({"bench", "io", "--path", "@drive", "--size", "16777215"});
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.last_error_line(), HasSubstr("--size is 16777215: allowed are 16MiB and more"));
  const Ended deep =
      sluice({"bench", "io", "--path", file("a") + "," + file("b"), "--size", "16MiB", "--depth", "2049"});
  EXPECT_EQ(deep.exit_code, 2);
  EXPECT_THAT(deep.last_error_line(), HasSubstr("--depth is 2049: allowed are up to 4096 for all drives together"));
  std::string many = file("drive");
  for (int i = 0; i < 16; ++i) many += "," + file(std::to_string(i));
  const Ended seventeen = sluice({"bench", "io", "--path", many, "--size", "16MiB"});
  EXPECT_EQ(seventeen.exit_code, 2);
  EXPECT_THAT(seventeen.last_error_line(), HasSubstr("--path names more than 16 folders"));
  const Ended throttled = io({"--throttle", "1,1"});
  EXPECT_EQ(throttled.exit_code, 2);
  EXPECT_THAT(throttled.last_error_line(), HasSubstr("--throttle takes one number for each folder of --path"));
  for (const char* path : {"", ",", "@drive,", "@drive,,@drive"}) {
    const Ended nameless = sluice({"bench", "io", "--path", path, "--size", "16MiB"});
    EXPECT_EQ(nameless.exit_code, 2);
    EXPECT_THAT(nameless.last_error_line(), HasSubstr("--path: a folder has no name"));
  }
}

TEST_F(BenchIo, refuses_more_than_the_drive_has_room_for_before_it_makes_anything) {
  for (const char* size : {"4000TiB", "9223372036854775807"}) {
    const Ended ended = sluice({"bench", "io", "--path", "@drive", "--size", size});
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.last_error_line(), testing::AllOf(HasSubstr("--size"), HasSubstr("are free in")));
    EXPECT_FALSE(fs::exists(file("drive")));
  }
}

TEST_F(BenchIo, takes_twice_its_size_and_refuses_what_is_free_but_once) {
  const MountedDrive small(MountedDrive::Kind::kMemory, file("small"), 40 * kMiB);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  const Ended ended = sluice({"bench", "io", "--path", "@small", "--size", "24MiB"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), HasSubstr("twice that is taken, and 40.0 MiB (41943040 bytes) are free"));
}

TEST_F(BenchIo, fills_a_drive_with_too_little_room_as_training_does_and_says_so) {
  const MountedDrive small(MountedDrive::Kind::kMemory, file("small"), 16 * kMiB);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  const std::string both = file("small") + "," + file("large");
  std::ofstream(file("small/sluice-0.swap")) << std::string(4 * kMiB, 'x');  // is somebody's, and stays
  const Ended ended =
      sluice({"bench", "io", "--path", both, "--size", "32MiB", "--rounds", "1", "--throttle", "0.2,0.2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(fs::file_size(file("small/sluice-0.swap")), 4u * kMiB);
  EXPECT_THAT(ended.err, HasSubstr("too little room in " + file("small")));
}

TEST_F(BenchIo, a_sweep_without_room_says_so_before_it_makes_anything_and_a_smaller_size_helps) {
  const MountedDrive small(MountedDrive::Kind::kMemory, file("small"), 48 * kMiB);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  const auto sweep = [&](const std::string& folders, const char* size) {
    return sluice({"bench", "io", "--path", folders, "--size", size, "--sweep", "--backend", "threads", "--json"});
  };
  const std::string one = file("small/a"), two = one + "," + file("small/b");
  const auto expect_refused = [&](const Ended& ended, const char* needed) {
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.last_error_line(), AllOf(HasSubstr("--sweep"), HasSubstr(needed), HasSubstr("make room")));
    EXPECT_TRUE(fs::is_empty(file("small")));
    return ended.last_error_line();
  };
  const std::string large =
      expect_refused(sweep(one, "4GiB"), "512.0 MiB of that file system, and 48.0 MiB (50331648 bytes) are free");
  EXPECT_THAT(large, HasSubstr("smaller --size"));
  expect_refused(sweep(one, "400MiB"), "100.0 MiB of that file system");
  for (const auto& [size, needed] : {std::pair("4GiB", "1.0 GiB"), {"16MiB", "64.0 MiB"}}) {
    EXPECT_THAT(expect_refused(sweep(two, size), needed), testing::Not(HasSubstr("smaller --size"))) << "none would do";
  }
  EXPECT_EQ(sweep(one, "16MiB").exit_code, 0);
}

TEST_F(BenchIo, a_sweep_refuses_a_folder_that_its_configuration_could_not_name_before_it_measures) {
  const std::string folder = file("drive\xff");
  const Ended swept = sluice({"bench", "io", "--path", folder, "--size", "16MiB", "--sweep"});
  EXPECT_EQ(swept.exit_code, 2);
  EXPECT_THAT(swept.last_error_line(), AllOf(HasSubstr("--path"), HasSubstr("is not UTF-8"), HasSubstr("a link")));
  EXPECT_FALSE(fs::exists(folder));
  const Ended measured = sluice({"bench", "io", "--path", folder, "--size", "16MiB", "--rounds", "1", "--json"});
  EXPECT_EQ(measured.exit_code, 0) << "no output of it names the folder";
}

TEST_F(BenchIo, refuses_one_folder_named_twice) {
  fs::create_directory(file("drive"));
  fs::create_directory_symlink(file("drive"), file("link"));
  for (const std::string& again : {file("drive"), file("./drive/"), file("link")}) {
    for (const char* task : {"--json", "--sweep"}) {
      const Ended ended = sluice({"bench", "io", "--path", file("drive") + "," + again, task});
      EXPECT_EQ(ended.exit_code, 2) << again;
      EXPECT_THAT(ended.last_error_line(), HasSubstr("one folder")) << again;
    }
  }
}

TEST_F(BenchIo, a_sweep_refuses_what_it_tries_itself_or_does_not_look_at) {
  for (const auto& [option, value] : std::map<std::string, std::string>{{"--block", "1MiB"},
                                                                        {"--depth", "8"},
                                                                        {"--pattern", "mixed"},
                                                                        {"--verify", "off"},
                                                                        {"--record", "1MiB"},
                                                                        {"--rounds", "1"}}) {
    const Ended ended = io({"--sweep", option, value});
    EXPECT_EQ(ended.exit_code, 2) << option;
    EXPECT_THAT(ended.err, testing::AllOf(HasSubstr("--sweep"), HasSubstr(option)));
  }
}

TEST_F(BenchIo, training_on_two_drives_gives_the_numbers_of_one_and_needs_both_to_go_on) {
  const Ended one = train("one", {"--steps", "3"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.err, HasSubstr("I/O, the best of"));
  const std::string both = "sluice.nvme=[\"" + file("a") + "\",\"" + file("b") + "\"]";
  Ended two = train("two", {"--steps", "2", "--set", both});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  fs::rename(file("b/sluice-0.swap"), file("b/away"));
  two = train("two", {"--steps", "3", "--set", both, "--resume"});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_THAT(two.err, HasSubstr("drive 1 of the store is missing"));
  fs::rename(file("b/away"), file("b/sluice-0.swap"));
  fs::rename(file("a/sluice-0.swap"), file("a/away"));
  two = train("two", {"--steps", "3", "--set", both, "--resume"});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_THAT(two.err, HasSubstr("drive 0 of the store is missing"));
  fs::rename(file("a/away"), file("a/sluice-0.swap"));
  two = train("two", {"--steps", "3", "--set", both, "--resume"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(numbers(metrics("two")), numbers(metrics("one")));
}

}  // namespace
}  // namespace sluice
