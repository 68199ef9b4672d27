// Event files for TensorBoard.
#include "app/step_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "app/event_file.h"
#include "core/checksum.h"
#include "tests/app/command_fixture.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A message's fields, read as protobuf's wire format says: numbers, or the bytes of what is longer.
struct WireField {
  int number = 0;
  uint64_t bits = 0;
  std::string bytes;
};
std::vector<WireField> fields_of(std::string_view message) {
  std::vector<WireField> fields;
  const auto varint = [&message] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.front());
      message.remove_prefix(1);
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!message.empty()) {
    const uint64_t key = varint();
    WireField field{.number = static_cast<int>(key >> 3), .bits = 0, .bytes = {}};
    const auto take = [&](size_t bytes) {
      field.bytes = message.substr(0, bytes);
      message.remove_prefix(bytes);
      std::memcpy(&field.bits, field.bytes.data(), std::min<size_t>(bytes, 8));
    };
    if ((key & 7) == 0) field.bits = varint();
    if ((key & 7) == 1) take(8);
    if ((key & 7) == 5) take(4);
    if ((key & 7) == 2) {
      const uint64_t size = varint();
      take(size);
    }
    fields.push_back(field);
  }
  return fields;
}

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
  bool begins_again = false;
};
ReadEvent event_of(std::string_view message) {
  ReadEvent event;
  for (const WireField& field : fields_of(message)) {
    if (field.number == 1) event.wall_time = std::bit_cast<double>(field.bits);
    if (field.number == 2) event.step = static_cast<int64_t>(field.bits);
    if (field.number == 3) event.version = field.bytes;
    if (field.number == 7) event.begins_again = field.bytes == std::string("\x08\x01");
    if (field.number != 5) continue;
    for (const WireField& value : fields_of(field.bytes)) {
      const std::vector<WireField> parts = fields_of(value.bytes);
      event.scalars[parts.at(0).bytes] = std::bit_cast<float>(static_cast<uint32_t>(parts.at(1).bits));
    }
  }
  return event;
}

// All of a file's records, whose sums are right.
std::vector<ReadEvent> events_in(const std::string& file) {
  std::vector<ReadEvent> events;
  const auto sum_of = [](std::string_view bytes) {
    const uint32_t crc = crc32c(0, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
  };
  for (size_t at = 0; at < file.size();) {
    uint64_t size = 0;
    uint32_t of_size = 0, of_event = 0;
    std::memcpy(&size, file.data() + at, 8);
    std::memcpy(&of_size, file.data() + at + 8, 4);
    EXPECT_EQ(of_size, sum_of(std::string_view(file).substr(at, 8)));
    const std::string_view event = std::string_view(file).substr(at + 12, size);
    std::memcpy(&of_event, file.data() + at + 12 + size, 4);
    EXPECT_EQ(of_event, sum_of(event));
    events.push_back(event_of(event));
    at += 16 + size;
  }
  return events;
}

class StepEventsTest : public CommandTest {
 protected:
  // In the order in which TensorBoard reads them.
  std::vector<std::string> event_files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(file("logs/demo"))) names.insert(entry.path().filename());
    return {names.begin(), names.end()};
  }
  std::string monitor() const {
    return R"(tensorboard={"enabled": true, "output_path": ")" + file("logs") + R"(", "job_name": "demo"})";
  }
};

TEST_F(StepEventsTest, begin_as_tensorboards_own_files_do) {
  const EventFile events(file("logs/demo"));
  const std::string text = text_in("logs/demo/" + events.path().filename().string());
  EXPECT_EQ(text.substr(0, 13), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09", 13));
  const std::vector<ReadEvent> read = events_in(text);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].version, "brain.Event:2");
  EXPECT_GT(read[0].wall_time, 1.7e9);
}

TEST_F(StepEventsTest, have_every_steps_numbers_and_go_on_with_a_run) {
  ASSERT_EQ(train("run", {"--set", monitor(), "--steps", "3"}).exit_code, 0);
  ASSERT_EQ(event_files().size(), 1u);
  const std::vector<ReadEvent> events = events_in(text_in("logs/demo/" + event_files()[0]));
  const std::vector<Json> lines = metrics("run");
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(events[i].step, static_cast<int64_t>(6 * i));  // samples
    EXPECT_EQ(events[i].scalars.at("Train/Samples/train_loss"), lines[i - 1]["loss"].get<float>());
    EXPECT_EQ(events[i].scalars.at("Train/Samples/lr"), lines[i - 1]["lr"].get<float>());
    EXPECT_EQ(events[i].scalars.at("Train/Samples/grad_norm"), lines[i - 1]["grad_norm"].get<float>());
    EXPECT_FALSE(events[i].scalars.contains("Train/Samples/loss_scale"));
    EXPECT_FALSE(events[i].begins_again);
  }
  const Ended more =
      train("run", {"--set", monitor(), "--set", "tensorboard.job_name=more", "--steps", "4", "--resume"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  const auto second = fs::directory_iterator(file("logs/more"))->path();
  EXPECT_THAT(more.err, HasSubstr("for tensorboard: " + second.string()));
  const std::vector<ReadEvent> later = events_in(text_in("logs/more/" + second.filename().string()));
  ASSERT_EQ(later.size(), 3u);
  EXPECT_TRUE(later[1].begins_again);
  EXPECT_THAT((std::vector{later[1].step, later[2].step}), ElementsAre(24, 24));
}

TEST_F(StepEventsTest, have_the_loss_scale_of_fp16) {
  ASSERT_EQ(train("run", {"--set", monitor(), "--steps", "1", "--set", R"(fp16={"enabled": true, "loss_scale": 8})",
                          "--set", R"(bf16={"enabled": false})"})
                .exit_code,
            0);
  const std::vector<ReadEvent> events = events_in(text_in("logs/demo/" + event_files()[0]));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].scalars.at("Train/Samples/loss_scale"), 8);
}

// The run's own lines have the numbers.
TEST_F(StepEventsTest, on_a_drive_that_is_full_end_with_one_warning_and_not_the_run) {
  const MountedDrive small(MountedDrive::Kind::kMemory, file("logs"), 8192);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  std::string said;
  RunConfig config;
  config.tensorboard = file("logs/demo");
  StepEvents events(config, 0, [&said](LogLevel level, std::string_view words) {
    if (level == LogLevel::kWarning) said += std::string(words) + "\n";
  });
  for (int64_t step = 1; step <= 100; ++step) events.add({.end = {.step = step}});
  EXPECT_THAT(said, testing::MatchesRegex("no more is written for tensorboard: [^\n]*No space left[^\n]*\n"));
}

TEST_F(StepEventsTest, in_a_folder_that_cannot_be_made_are_refused_and_nothing_is_made) {
  std::ofstream(file("logs")) << "a file";
  const Ended ended = train("run", {"--set", monitor(), "--steps", "1"});
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_THAT(ended.err, testing::AllOf(HasSubstr(file("logs/demo")), HasSubstr("tensorboard.output_path")));
  EXPECT_FALSE(fs::exists(file("run")));
}

}  // namespace
}  // namespace sluice
