#include "core/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "core/errors.h"
#include "tests/fakes/file_size_limit.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

class Trace : public testing::Test {
 protected:
  std::string path() const { return (folder_.path() / "trace.json").string(); }
  std::string text() const {
    std::ifstream file(path());
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }
  TempFolder folder_;
};

TEST_F(Trace, names_rows_and_counts_in_microseconds) {
  TraceWriter trace(path());
  trace.name_row(2, "nvme read");
  trace.event(2, {"swap_in h.0", "state"}, 1500, 4750);
  trace.close();
  EXPECT_EQ(text(),
            "{\"traceEvents\":[\n"
            R"({"name":"thread_name","ph":"M","pid":1,"tid":20001,"args":{"name":"nvme read"}},)"
            "\n"
            R"({"name":"swap_in h.0","cat":"state","ph":"X","pid":1,"tid":20001,"ts":1.500,"dur":3.250})"
            "\n]}\n");
}

TEST_F(Trace, says_during_which_step_where_that_is_told) {
  TraceWriter trace(path());
  trace.name_row(0, "read");
  trace.event(0, {"swap_in h.0", "state", 12}, 0, 1000);
  trace.close();
  EXPECT_THAT(text(), testing::HasSubstr(R"("dur":1.000,"args":{"during_step":12}})"));
}

// As of a run that is killed before its first step ends.
TEST_F(Trace, is_whole_and_empty_before_the_first_flush) {
  TraceWriter trace(path());
  trace.name_row(0, "read");
  EXPECT_EQ(text(), "{\"traceEvents\":[\n\n]}\n");
  trace.flush();
  EXPECT_THAT(text(), testing::HasSubstr("thread_name"));
}

TEST_F(Trace, has_a_thread_for_each_event_that_a_row_has_at_once) {
  TraceWriter trace(path());
  trace.name_row(1, "read");
  trace.event(1, {"a", "as"}, 1000, 4000);
  trace.event(1, {"b", "bs"}, 2000, 3000);
  trace.event(1, {"c", "cs"}, 3000, 5000);
  trace.event(1, {"d", "ds"}, 4000, 6000);
  trace.close();
  EXPECT_THAT(text(), testing::HasSubstr(R"("tid":10002,"args":{"name":"read 2"}})"));
  for (const char* event :
       {R"("a","cat":"as","ph":"X","pid":1,"tid":10001,)", R"("b","cat":"bs","ph":"X","pid":1,"tid":10002,)",
        R"("c","cat":"cs","ph":"X","pid":1,"tid":10002,)", R"("d","cat":"ds","ph":"X","pid":1,"tid":10001,)"}) {
    EXPECT_THAT(text(), testing::HasSubstr(event));
  }
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("read 3")));
}

TEST_F(Trace, keeps_nanoseconds_far_from_the_origin) {
  {
    TraceWriter trace(path());
    trace.event(0, {"update", "updates"}, 86'400'000'000'123, 86'400'000'000'124);
  }
  EXPECT_THAT(text(), testing::HasSubstr(R"("ts":86400000000.123,"dur":0.001)"));
}

TEST_F(Trace, is_whole_after_close_even_without_events) {
  TraceWriter trace(path());
  trace.name_row(0, "read");
  trace.close();
  EXPECT_THAT(text(), testing::AllOf(testing::StartsWith("{\"traceEvents\":[\n"), testing::EndsWith("\n]}\n")));
}

// As of a run that is killed between steps: every flush ends the JSON, and what follows goes over that end.
TEST_F(Trace, is_whole_after_every_flush) {
  TraceWriter trace(path());
  trace.event(0, {"a", "state"}, 1, 2);
  trace.flush();
  const std::string one = text();
  EXPECT_THAT(one, testing::EndsWith("}\n]}\n"));
  trace.flush();
  EXPECT_EQ(text(), one);
  trace.event(0, {"b", "state"}, 2, 3);
  EXPECT_EQ(text(), one);
  trace.flush();
  EXPECT_THAT(text(), testing::AllOf(testing::StartsWith(one.substr(0, one.size() - 4) + ",\n{\"name\":\"b\""),
                                     testing::EndsWith("}\n]}\n")));
}

TEST_F(Trace, that_has_no_more_room_keeps_what_was_whole) {
  TraceWriter trace(path());
  trace.event(0, {"a", "state"}, 1, 2);
  trace.flush();
  const std::string whole = text();
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  {
    const FileSizeLimit limit(std::ssize(whole) + 20);
    trace.event(0, {"b", "state"}, 2, 3);
    trace.flush();
    EXPECT_EQ(text(), whole);
    EXPECT_THROW(trace.close(), IoError);
  }
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(text(), whole);
}

TEST_F(Trace, into_a_pipe_ends_once) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  std::string read;
  std::jthread reader([&] { read = text(); });
  {
    TraceWriter trace(path());
    trace.event(0, {"a", "state"}, 1, 2);
    trace.flush();
    trace.event(0, {"b", "state"}, 2, 3);
  }
  reader.join();
  EXPECT_THAT(read, testing::AllOf(testing::StartsWith("{\"traceEvents\":[\n"), testing::EndsWith("}\n]}\n")));
  EXPECT_EQ(read.find("]}"), read.rfind("]}"));
}

// As of a run that is refused before it begins.
TEST_F(Trace, in_which_nothing_was_named_leaves_the_one_before_as_it_was) {
  { TraceWriter trace(path()); }
  EXPECT_EQ(text(), "");
  TraceWriter(path()).event(0, {"update", "updates"}, 1, 2);
  const std::string before = text();
  { TraceWriter trace(path()); }
  EXPECT_EQ(text(), before);
}

TEST_F(Trace, that_comes_to_no_event_is_gone_with_its_writer_and_leaves_the_one_before) {
  const auto name_a_row = [this] { TraceWriter(path()).name_row(0, "read"); };
  name_a_row();
  EXPECT_FALSE(std::filesystem::exists(path()));
  {
    TraceWriter trace(path());
    trace.name_row(0, "read");
    trace.event(0, {"kept", "state"}, 0, 1000);
  }
  const std::string before = text();
  EXPECT_THAT(before, testing::HasSubstr("kept"));
  name_a_row();
  EXPECT_EQ(text(), before);
}

TEST_F(Trace, in_which_nothing_was_named_leaves_no_new_file) {
  { TraceWriter trace(path()); }
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(Trace, escapes_names) {
  {
    TraceWriter trace(path());
    trace.name_row(0, "a\"b\\c\n");
    trace.event(0, {"d", "state"}, 1, 2);
  }
  EXPECT_THAT(text(), testing::HasSubstr(R"(a\"b\\c\u000a)"));
}

TEST_F(Trace, in_a_folder_that_is_not_there_is_refused_with_the_path) {
  try {
    TraceWriter trace("/nowhere/trace.json");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.details().path, "/nowhere/trace.json");
    EXPECT_EQ(error.details().error_number, ENOENT);
  }
}

TEST_F(Trace, replaces_a_trace_and_nothing_else) {
  for (const std::string before : {"", "{\"traceEvents\":[\n{}\n]}\n"}) {
    std::ofstream(path()) << before;
    TraceWriter(path()).event(0, {"update", "updates"}, 1, 2);
    EXPECT_THAT(text(), testing::HasSubstr("update"));
  }
  for (const std::string before : {"{\"model\": {}}", "{"}) {
    std::ofstream(path()) << before;
    EXPECT_THROW(TraceWriter{path()}, ConfigError);
    EXPECT_EQ(text(), before);
  }
}

TEST_F(Trace, on_a_full_drive_warns_once_and_says_so_when_it_is_closed) {
  std::vector<std::string> warnings;
  TraceWriter trace("/dev/full", [&](LogLevel level, const std::string& message) {
    EXPECT_EQ(level, LogLevel::kWarning);
    warnings.push_back(message);
  });
  for (int i = 0; i < 1000; ++i) trace.event(0, {"update", "updates"}, i, i + 1);
  EXPECT_THAT(warnings, testing::IsEmpty());
  for (int i = 1000; i < 1002; ++i) {
    trace.flush();
    EXPECT_THAT(warnings, testing::ElementsAre(testing::AllOf(testing::HasSubstr("/dev/full"),
                                                              testing::HasSubstr("No space left on device"))));
    trace.event(0, {"update", "updates"}, i, i + 1);
  }
  try {
    trace.close();
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.details().error_number, ENOSPC);
    EXPECT_EQ(error.details().path, "/dev/full");
  }
  EXPECT_NO_THROW(trace.close());
}

}  // namespace
}  // namespace sluice
