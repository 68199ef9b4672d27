// Drives in memory that remember their traffic: each write and sync as it was issued and as its completion was told.
// One image for each file that a store's queues meet, found by the file's path; the file itself only lends its size and
// its lock. Everything completes at once.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "swap/io_queue.h"
#include "tests/fakes/sector.h"

namespace sluice {

// The content of a file: zero where nothing was written. Can be taken back to a mark.
class DriveImage {
 public:
  // Offsets and sizes are multiples of a sector.
  void read(int64_t offset, std::span<std::byte> into) const;
  void write(int64_t offset, std::span<const std::byte> from);
  // undo() takes back all writes since the last mark().
  void mark();
  void undo();

 private:
  using Sector = std::array<std::byte, kSectorBytes>;
  std::vector<Sector> sectors_;
  std::vector<std::pair<size_t, Sector>> overwritten_;
  bool marked_ = false;
};

struct DriveEvent {
  enum class Kind : uint8_t { kWrite, kWriteDone, kSync, kSyncDone };
  Kind kind = Kind::kWrite;
  size_t drive = 0;
  size_t request = 0;  // of a completion: the event that issued it
  int64_t offset = 0;
  std::vector<std::byte> bytes{};
};

struct RecordedDrives {
  size_t drive_of(const std::string& path);  // made where it is not there yet

  std::vector<std::string> paths;
  std::vector<DriveImage> images;
  std::vector<DriveEvent> events;
  enum class Record : uint8_t { kNo, kYes } record = Record::kYes;
};

IoQueueFactory recorded_queue_factory(std::shared_ptr<RecordedDrives> drives);

}  // namespace sluice
