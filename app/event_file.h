// Numbers of every step in a file that TensorBoard reads: TFRecords (tensorflow/core/lib/io/record_writer.h) of Event
// messages (tensorflow/core/util/event.proto, framework/summary.proto) in protobuf's wire format.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

constexpr const char* kEventsAdvice = "name another folder with tensorboard.output_path";

struct EventScalar {
  std::string_view tag;
  double value = 0;  // as fp32 there
};

// Not thread-safe. TensorBoard reads all files of a folder as one run.
class EventFile {
 public:
  // A new file in a folder that is made if it is not there. Throws IoError.
  explicit EventFile(const std::filesystem::path& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // What the folder's other files have of this step and later ones is to be forgotten. Throws IoError, as add() does.
  void begin_again_at(int64_t step);
  // With the system when it returns; nothing is synced.
  void add(int64_t step, std::span<const EventScalar> scalars);
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Opened {
    std::filesystem::path path;
    int file = -1;
  };
  static Opened open_new(const std::filesystem::path& folder);
  explicit EventFile(Opened opened) : path_(std::move(opened.path)), file_(opened.file) {}
  void write(const std::string& event);
  const std::filesystem::path path_;
  const int file_;
};

}  // namespace sluice
