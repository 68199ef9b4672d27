// Numbers of every step in a file that TensorBoard reads: TFRecords (tensorflow/core/lib/io/record_writer.h) of Event
// messages (tensorflow/core/util/event.proto, framework/summary.proto) in protobuf's wire format.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

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
  void write(const std::string& event);
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace sluice
