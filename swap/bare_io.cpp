#include "swap/bare_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <utility>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/errors.h"
#include "swap/drive_folders.h"

namespace sluice {
namespace {

constexpr int64_t kMostScratchBytes = 64 * kMiB, kLeastScratchBytes = 4 * kMiB;
constexpr int64_t kMemoryBytes = 16 * kMiB;
constexpr int64_t kMeasuredNs = 200'000'000;  // each way

}  // namespace

ScratchFile::ScratchFile(const std::filesystem::path& folder, int64_t bytes)
    : bytes_(bytes), path_(folder / "(scratch file)") {
  const auto fail = [this](const char* action, int error_number) {
    throw IoError({.action = action,
                   .path = path_.string(),
                   .bytes = bytes_,
                   .error_number = error_number,
                   .advice = "give a folder with room on a local drive with ext4 or xfs (sluice.nvme)"});
  };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("creation of the folder", error.value());
  std::string name = (folder / "sluice-scratch-XXXXXX").string();
  file_ = mkostemp(name.data(), O_DIRECT | O_CLOEXEC);
  const int error_number = errno;
  // Where there is no direct I/O the file is made before that is refused.
  if (file_ >= 0 || error_number == EINVAL) unlink(name.c_str());
  if (file_ < 0) fail("open", error_number);
  int result;
  do {
    result = posix_fallocate(file_, 0, bytes);
  } while (result == EINTR);
  if (result != 0) {
    close(file_);
    fail("allocation", result);
  }
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)), bytes_(other.bytes_), path_(std::move(other.path_)) {}

ScratchFile::~ScratchFile() {
  if (file_ >= 0) close(file_);
}

namespace {

// The requests of a run. Every range has its own share of the queue and of the memory: a slow drive takes nothing from
// a fast one, and none waits for a block that another has.
class BareLoop {
 public:
  BareLoop(IoQueue& queue, const BareRun& run)
      : queue_(queue), run_(run), wanted_(run.bytes / run.block_bytes), progress_(run.ranges.size()) {
    SLUICE_CHECK(!run.ranges.empty(), "a run without a range");
    const auto ranges = static_cast<int64_t>(run.ranges.size());
    const int64_t blocks = static_cast<int64_t>(run.memory.size()) / run.block_bytes;
    depth_ = std::min({int64_t{run.depth}, queue.depth() / ranges, blocks / ranges});
    SLUICE_CHECK(depth_ > 0, "no room for a block of each range");
    for (int64_t range = 0; range < ranges; ++range) {
      std::vector<int64_t>& free_blocks = progress_[static_cast<size_t>(range)].free_blocks;
      free_blocks.resize(static_cast<size_t>(depth_));
      std::iota(free_blocks.begin(), free_blocks.end(), range * depth_);
    }
  }

  BareEnd run() {
    const int64_t begin_ns = now_ns();
    std::array<IoCompletion, 64> done;
    while (ended_ < wanted_) {
      submit();
      const size_t count = queue_.poll(done, Wait::kUntilOne);
      for (size_t i = 0; i < count; ++i) finish(done[i]);
      if (now_ns() - begin_ns > run_.limit_ns) wanted_ = started_;
    }
    return {.bytes = ended_ * run_.block_bytes, .ns = now_ns() - begin_ns};
  }

 private:
  struct Progress {
    int64_t started = 0;
    std::vector<int64_t> free_blocks;  // of memory, that no request in flight has
  };

  // A request of each range in turn, so that the last ones too are spread over all.
  void submit() {
    for (bool any = true; any;) {
      any = false;
      for (size_t range = 0; range < progress_.size() && started_ < wanted_; ++range) {
        if (progress_[range].free_blocks.empty()) continue;
        submit_one(run_.ranges[range], progress_[range]);
        any = true;
      }
    }
    queue_.flush();
  }

  void submit_one(const BareRange& range, Progress& at) {
    const int64_t blocks = range.bytes / run_.block_bytes;
    SLUICE_CHECK(blocks > 0, "a range without one block");
    const int64_t block = at.free_blocks.back();
    at.free_blocks.pop_back();
    const bool reads = run_.op == BareOp::kRead || (run_.op == BareOp::kAlternate && at.started % 2 == 0);
    queue_.submit({.op = reads ? IoOp::kRead : IoOp::kWrite,
                   .file = range.file,
                   .memory = run_.memory.data() + block * run_.block_bytes,
                   .bytes = static_cast<uint32_t>(run_.block_bytes),
                   .offset = static_cast<uint64_t>(range.first + at.started % blocks * run_.block_bytes),
                   .tag = static_cast<uint64_t>(block)});
    ++at.started;
    ++started_;
  }

  void finish(const IoCompletion& completion) {
    const auto block = static_cast<int64_t>(completion.tag);
    const auto range = static_cast<size_t>(block / depth_);
    progress_[range].free_blocks.push_back(block);
    ++ended_;
    check_whole(completion, run_.block_bytes, run_.ranges[range].path);
  }

  IoQueue& queue_;
  const BareRun& run_;
  int64_t wanted_, started_ = 0, ended_ = 0;
  std::vector<Progress> progress_;  // by range
  int64_t depth_ = 0;               // of each range
};

}  // namespace

void check_whole(const IoCompletion& completion, int64_t bytes, const std::filesystem::path& path) {
  if (completion.result == bytes) return;
  const bool is_short = completion.result >= 0;
  throw IoError({.action = "bare request",
                 .path = path.string(),
                 .bytes = bytes,
                 .error_number = is_short ? 0 : static_cast<int>(-completion.result),
                 .reason = is_short ? fmt::format("{} bytes moved", completion.result) : "",
                 .advice = "look at the drive's health (dmesg)"});
}

BareEnd run_bare(IoQueue& queue, const BareRun& run) { return BareLoop(queue, run).run(); }

std::optional<DriveSpeed> measure_drive(const std::filesystem::path& folder, const StoreOptions& options) {
  const int64_t scratch_bytes = std::min(kMostScratchBytes, free_drive_bytes({&folder, 1}) / 2 / kMiB * kMiB);
  if (scratch_bytes < kLeastScratchBytes) return std::nullopt;
  const ScratchFile scratch(folder, scratch_bytes);
  const Arena memory(kMemoryBytes);
  IoQueueOptions queue_options = options.queue;
  queue_options.memory = {memory.span()};
  queue_options.log = nullptr;
  const auto queue = options.make_queue(queue_options);
  BareRun run{.op = BareOp::kWrite,
              .ranges = {scratch.whole()},
              .bytes = scratch_bytes,
              .depth = queue->depth(),
              .memory = memory.span()};
  run_bare(*queue, run);  // the first write of a block costs more than the next ones
  run.bytes = INT64_MAX;
  run.limit_ns = kMeasuredNs;
  DriveSpeed speed;
  speed.write_gb_per_s = run_bare(*queue, run).gb_per_s();
  run.op = BareOp::kRead;
  speed.read_gb_per_s = run_bare(*queue, run).gb_per_s();
  return speed;
}

}  // namespace sluice
