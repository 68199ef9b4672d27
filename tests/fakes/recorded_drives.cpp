#include "tests/fakes/recorded_drives.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "core/errors.h"

namespace sluice {
namespace {

class RecordedQueue final : public IoQueue {
 public:
  RecordedQueue(int depth, std::shared_ptr<RecordedDrives> drives) : IoQueue(depth), drives_(std::move(drives)) {}
  void interrupt() override {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    changed_.notify_one();
  }
  std::string describe() const override { return "drives in memory"; }

 private:
  struct Done {
    IoCompletion completion;
    IoOp op = IoOp::kRead;
    size_t drive = 0, request = 0;
  };

  void do_submit(const IoRequest& request) override {
    const auto offset = static_cast<int64_t>(request.offset);
    const size_t drive = drive_of(request.file);
    const size_t bytes = request.op == IoOp::kSync ? 0 : request.bytes;
    DriveImage& image = drives_->images[drive];
    if (request.op == IoOp::kRead) image.read(offset, {request.memory, bytes});
    if (request.op == IoOp::kWrite) image.write(offset, {request.memory, bytes});
    done_.push_back({.completion = {.tag = request.tag, .result = static_cast<int64_t>(bytes)},
                     .op = request.op,
                     .drive = drive,
                     .request = drives_->events.size()});
    if (request.op == IoOp::kRead || drives_->record == RecordedDrives::Record::kNo) return;
    DriveEvent event{.kind = request.op == IoOp::kSync ? DriveEvent::Kind::kSync : DriveEvent::Kind::kWrite,
                     .drive = drive,
                     .offset = offset};
    event.bytes.assign(request.memory, request.memory + bytes);
    drives_->events.push_back(std::move(event));
  }

  void do_flush() override {}

  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    if (wait == Wait::kUntilOne && done_.empty()) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return interrupted_; });
      interrupted_ = false;
    }
    const size_t count = std::min(completions.size(), done_.size());
    for (size_t i = 0; i < count; ++i) {
      const Done& done = done_[i];
      completions[i] = done.completion;
      if (done.op == IoOp::kRead || drives_->record == RecordedDrives::Record::kNo) continue;
      drives_->events.push_back(
          {.kind = done.op == IoOp::kSync ? DriveEvent::Kind::kSyncDone : DriveEvent::Kind::kWriteDone,
           .drive = done.drive,
           .request = done.request});
    }
    done_.erase(done_.begin(), done_.begin() + static_cast<int64_t>(count));
    return count;
  }

  // A queue's files stay open while it lives.
  size_t drive_of(int file) {
    const auto known = files_.find(file);
    if (known != files_.end()) return known->second;
    const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file));
    return files_[file] = drives_->drive_of(path.string());
  }

  std::shared_ptr<RecordedDrives> drives_;
  std::map<int, size_t> files_;
  std::vector<Done> done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool interrupted_ = false;
};

}  // namespace

void DriveImage::read(int64_t offset, std::span<std::byte> into) const {
  SLUICE_CHECK(offset % kSectorBytes == 0 && into.size() % kSectorBytes == 0, "sectors only");
  std::memset(into.data(), 0, into.size());
  const auto first = static_cast<size_t>(offset / kSectorBytes);
  if (first >= sectors_.size()) return;
  const size_t count = std::min(into.size() / kSectorBytes, sectors_.size() - first);
  if (count > 0) std::memcpy(into.data(), sectors_[first].data(), count * kSectorBytes);
}

void DriveImage::write(int64_t offset, std::span<const std::byte> from) {
  SLUICE_CHECK(offset % kSectorBytes == 0 && from.size() % kSectorBytes == 0, "sectors only");
  const auto first = static_cast<size_t>(offset / kSectorBytes);
  const size_t count = from.size() / kSectorBytes;
  if (sectors_.size() < first + count) sectors_.resize(first + count);
  if (marked_) {
    for (size_t i = 0; i < count; ++i) overwritten_.emplace_back(first + i, sectors_[first + i]);
  }
  if (count > 0) std::memcpy(sectors_[first].data(), from.data(), from.size());
}

void DriveImage::mark() {
  marked_ = true;
  overwritten_.clear();
}

void DriveImage::undo() {
  for (size_t i = overwritten_.size(); i-- > 0;) sectors_[overwritten_[i].first] = overwritten_[i].second;
  overwritten_.clear();
}

size_t RecordedDrives::drive_of(const std::string& path) {
  const auto found = std::find(paths.begin(), paths.end(), path);
  const auto drive = static_cast<size_t>(found - paths.begin());
  if (found == paths.end()) {
    paths.push_back(path);
    images.emplace_back();
  }
  return drive;
}

IoQueueFactory recorded_queue_factory(std::shared_ptr<RecordedDrives> drives) {
  return [drives = std::move(drives)](const IoQueueOptions& options) -> std::unique_ptr<IoQueue> {
    return std::make_unique<RecordedQueue>(options.depth, drives);
  };
}

}  // namespace sluice
