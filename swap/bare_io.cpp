#include "swap/bare_io.h"

#include <fcntl.h>
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

namespace sluice {
namespace {

constexpr int64_t kScratchBytes = 64 * kMiB;
constexpr int64_t kMemoryBytes = 16 * kMiB;
constexpr int64_t kMeasuredNs = 200'000'000;  // each way

[[noreturn]] void fail(const char* action, const std::filesystem::path& folder, int error_number) {
  throw IoError({.action = action,
                 .path = (folder / "(scratch file)").string(),
                 .error_number = error_number,
                 .advice = "give a folder with room on a local drive with ext4 or xfs (sluice.nvme)"});
}

}  // namespace

ScratchFile::ScratchFile(const std::filesystem::path& folder, int64_t bytes) : bytes_(bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("creation of the folder", folder, error.value());
  std::string name = (folder / "sluice-scratch-XXXXXX").string();
  file_ = mkostemp(name.data(), O_DIRECT | O_CLOEXEC);
  if (file_ < 0) fail("open", folder, errno);
  unlink(name.c_str());
  int result;
  do {
    result = posix_fallocate(file_, 0, bytes);
  } while (result == EINTR);
  if (result != 0) {
    close(file_);
    fail("allocation", folder, result);
  }
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept : file_(std::exchange(other.file_, -1)), bytes_(other.bytes_) {}

ScratchFile::~ScratchFile() {
  if (file_ >= 0) close(file_);
}

namespace {

// The requests of a run; one range's are numbered on their own.
class BareLoop {
 public:
  BareLoop(IoQueue& queue, const BareRun& run)
      : queue_(queue), run_(run), wanted_(run.bytes / run.block_bytes), progress_(run.ranges.size()) {
    const auto ranges = static_cast<int64_t>(run.ranges.size());
    depth_ = std::min<int64_t>(run.depth, queue.depth() / ranges);
    free_blocks_.resize(
        static_cast<size_t>(std::min(static_cast<int64_t>(run.memory.size()) / run.block_bytes, depth_ * ranges)));
    std::iota(free_blocks_.begin(), free_blocks_.end(), uint64_t{0});
    SLUICE_CHECK(!free_blocks_.empty() && depth_ > 0, "no room for one block");
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
    int64_t started = 0, in_flight = 0;
  };

  void submit() {
    for (size_t range = 0; range < progress_.size(); ++range) {
      Progress& at = progress_[range];
      const int64_t blocks = run_.ranges[range].bytes / run_.block_bytes;
      SLUICE_CHECK(blocks > 0, "a range without one block");
      for (; started_ < wanted_ && at.in_flight < depth_ && !free_blocks_.empty();
           ++started_, ++at.started, ++at.in_flight) {
        const uint64_t block = free_blocks_.back();
        free_blocks_.pop_back();
        const bool reads = run_.op == BareOp::kRead || (run_.op == BareOp::kAlternate && at.started % 2 == 0);
        queue_.submit(
            {.op = reads ? IoOp::kRead : IoOp::kWrite,
             .file = run_.ranges[range].file,
             .memory = run_.memory.data() + static_cast<int64_t>(block) * run_.block_bytes,
             .bytes = static_cast<uint32_t>(run_.block_bytes),
             .offset = static_cast<uint64_t>(run_.ranges[range].first + at.started % blocks * run_.block_bytes),
             .tag = block * progress_.size() + range});
      }
    }
    queue_.flush();
  }

  void finish(const IoCompletion& completion) {
    --progress_[completion.tag % progress_.size()].in_flight;
    free_blocks_.push_back(completion.tag / progress_.size());
    ++ended_;
    if (completion.result == run_.block_bytes) return;
    throw IoError({.action = "bare request",
                   .path = "scratch file",
                   .bytes = run_.block_bytes,
                   .error_number = static_cast<int>(std::max<int64_t>(0, -completion.result)),
                   .advice = "look at the drive's health (dmesg)"});
  }

  IoQueue& queue_;
  const BareRun& run_;
  int64_t wanted_, started_ = 0, ended_ = 0;
  std::vector<Progress> progress_;  // by range
  int64_t depth_ = 0;
  std::vector<uint64_t> free_blocks_;  // of memory, that no request in flight has
};

}  // namespace

BareEnd run_bare(IoQueue& queue, const BareRun& run) { return BareLoop(queue, run).run(); }

DriveSpeed measure_drive(const std::filesystem::path& folder, const StoreOptions& options) {
  const ScratchFile scratch(folder, kScratchBytes);
  const Arena memory(kMemoryBytes);
  IoQueueOptions queue_options = options.queue;
  queue_options.memory = {memory.span()};
  queue_options.log = nullptr;
  const auto queue = options.make_queue(queue_options);
  BareRun run{.op = BareOp::kWrite,
              .ranges = {{.file = scratch.file(), .bytes = kScratchBytes}},
              .bytes = kScratchBytes,
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
