#include "swap/bare_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <deque>
#include <numeric>
#include <thread>
#include <utility>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/machine_advice.h"
#include "core/median.h"
#include "core/signal_handlers.h"
#include "swap/drive.h"
#include "swap/drive_folders.h"

namespace sluice {
namespace {

constexpr int64_t kMostScratchBytes = 64 * kMiB, kLeastScratchBytes = 4 * kMiB;
constexpr int64_t kMemoryBytes = 16 * kMiB;
constexpr int64_t kShareUnitBytes = 4096;  // requests are aligned to it
constexpr int kMeasuredRounds = 3;
constexpr int64_t kMeasuredNs = 70'000'000;  // each way, in each round

std::string advice_for(int error_number, const std::filesystem::path& folder, int64_t needed, const StoreWords& words) {
  switch (error_number) {
    case EROFS:
    case EACCES:
    case EPERM:
      return fmt::format("make the drive and the folder writable, or give another folder{}", words.folders);
    case ENOSPC: {
      const int64_t free = free_drive_bytes({&folder, 1});
      return fmt::format(
          "{} bytes ({}) are needed, {} bytes ({}) are free in {}: make room, or give a folder on a larger drive{}{}",
          needed, format_bytes(needed), free, format_bytes(free), words.name_of_folder(folder).string(), words.folders,
          words.less_room);
    }
    case EFBIG:
      return fmt::format("{}{}", advice_of_machine(error_number), words.less_room);
    case EINVAL:
    case EOPNOTSUPP:
      return fmt::format("give a folder on a local drive with ext4 or xfs{}", words.folders);
    default:
      return advice_of_machine(error_number);
  }
}

// Nothing stays behind however the process ends; where the file system knows only files with names, short of SIGKILL in
// the moment for which this one has one. -1: errno says why not.
int open_without_name(const std::filesystem::path& folder) {
  constexpr int kFlags = O_DIRECT | O_CLOEXEC;
  const int nameless = open(folder.c_str(), O_TMPFILE | O_RDWR | kFlags, 0600);
  if (nameless >= 0) return nameless;
  const SignalsHeld held;
  std::string name = (folder / "sluice-scratch-XXXXXX").string();
  const int file = mkostemp(name.data(), kFlags);
  const int error_number = errno;
  // Where there is no direct I/O the file is made before that is refused.
  if (file >= 0 || error_number == EINVAL) unlink(name.c_str());
  errno = error_number;
  return file;
}

}  // namespace

ScratchFile::ScratchFile(const std::filesystem::path& folder, int64_t bytes, const StoreWords& words)
    : bytes_(bytes), path_(words.name_of_folder(folder) / "(scratch file)") {
  const auto fail = [&](const char* action, int error_number) {
    throw IoError({.action = action,
                   .path = path_.string(),
                   .bytes = bytes_,
                   .error_number = error_number,
                   .advice = advice_for(error_number, folder, bytes, words)});
  };
  if (bytes > most_file_bytes()) fail("allocation", EFBIG);
  file_ = open_without_name(existing_part(folder));
  if (file_ < 0) fail("open", errno);
  if (direct_io_alignment(file_) == 0) {
    close(file_);
    fail("direct I/O", EOPNOTSUPP);
  }
  int result;
  do {
    result = posix_fallocate(file_, 0, bytes);
  } while (result == EINTR);
  if (result != 0) {
    close(file_);
    fail("allocation", result);
  }
}

int64_t scratch_bytes_in(std::span<const std::filesystem::path> folders, int64_t most_bytes) {
  int64_t bytes = std::min(most_bytes, most_file_bytes());
  for (const std::filesystem::path& folder : folders) {
    bytes = std::min(bytes, free_drive_bytes({&folder, 1}) / (2 * count_beside(folder, folders)));
  }
  return bytes / kMiB * kMiB;
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)), bytes_(other.bytes_), path_(std::move(other.path_)) {}

ScratchFile::~ScratchFile() {
  if (file_ >= 0) close(file_);
}

namespace {

// The requests of a run. Every range has its own share of the bytes, of the queue and of the memory: a slow drive takes
// nothing from a fast one, and none waits for a block that another has.
class BareLoop {
 public:
  BareLoop(IoQueue& queue, const BareRun& run) : queue_(queue), run_(run), progress_(run.ranges.size()) {
    SLUICE_CHECK(!run.ranges.empty(), "a run without a range");
    SLUICE_CHECK(run.block_bytes > 0, "a run of requests of no bytes");
    SLUICE_CHECK(queue.in_flight() == 0, "a run beside requests of others");
    const auto ranges = static_cast<int64_t>(run.ranges.size());
    const int64_t blocks = static_cast<int64_t>(run.memory.size()) / run.block_bytes;
    depth_ = std::min({int64_t{run.depth}, queue.depth() / ranges, blocks / ranges});
    SLUICE_CHECK(depth_ > 0, "no room for a block of each range");
    in_turn_ = std::max<int64_t>(1, std::min(kTurnBytes / run.block_bytes, depth_ / 2));
    blocks_ = blocks / ranges;
    block_bytes_.resize(static_cast<size_t>(ranges * blocks_));
    for (int64_t range = 0; range < ranges; ++range) {
      std::deque<int64_t>& free_blocks = progress_[static_cast<size_t>(range)].free_blocks;
      free_blocks.resize(static_cast<size_t>(blocks_));
      std::iota(free_blocks.begin(), free_blocks.end(), range * blocks_);
      if (run.op != BareOp::kAlternate) continue;
      const int64_t middle = run.ranges[static_cast<size_t>(range)].bytes / 2;
      progress_[static_cast<size_t>(range)].written_from = middle / run.block_bytes * run.block_bytes;
    }
    divide();
  }

  // What is in flight when something fails may still move bytes: the memory is the caller's again only after it.
  BareEnd run() {
    try {
      return run_to_end();
    } catch (...) {
      wait_for_all();
      throw;
    }
  }

 private:
  static constexpr int64_t kTurnBytes = 128 * kKiB;  // of one direction

  struct Progress {
    int64_t share_bytes = 0, started_bytes = 0;
    int64_t requests = 0;                     // started
    int64_t read_from = 0, written_from = 0;  // the next request, in the range
    int64_t in_flight = 0, ended_ns = 0;
    std::deque<int64_t> free_blocks;  // of memory, that no request in flight has: the one that rested longest first
  };

  BareEnd run_to_end() {
    const int64_t begin_ns = run_.clock();
    std::array<IoCompletion, 64> done;
    for (submit(); ended_bytes_ < started_bytes_; submit()) {
      const size_t count = queue_.poll(done, Wait::kUntilOne);
      const int64_t now = run_.clock();
      for (size_t i = 0; i < count; ++i) finish(done[i], now);
      if (now - begin_ns > run_.limit_ns) stop();
    }
    BareEnd end{.bytes = ended_bytes_, .ns = run_.clock() - begin_ns};
    for (const Progress& at : progress_) {
      end.range_gb_per_s.push_back(BareEnd{.bytes = at.started_bytes, .ns = at.ended_ns - begin_ns}.gb_per_s());
    }
    return end;
  }

  // A queue that fails for a moment is asked again; what it reports is known to be lost.
  void wait_for_all() {
    std::array<IoCompletion, 64> lost;
    while (queue_.in_flight() > 0) {
      try {
        queue_.flush();
        queue_.poll(lost, Wait::kUntilOne);
      } catch (const IoError&) {
        std::this_thread::yield();
      }
    }
  }

  // By where the ranges would end if they lay one behind the other: no byte is lost to rounding.
  void divide() {
    double range_bytes = 0, before = 0;
    for (const BareRange& range : run_.ranges) range_bytes += static_cast<double>(range.bytes);
    const int64_t units = run_.bytes / kShareUnitBytes;
    int64_t given = 0;
    for (size_t range = 0; range < progress_.size(); ++range) {
      before += static_cast<double>(run_.ranges[range].bytes);
      const int64_t end = std::llround(static_cast<double>(units) * (before / range_bytes));
      progress_[range].share_bytes = (end - given) * kShareUnitBytes;
      given = end;
    }
  }

  void stop() {
    for (Progress& at : progress_) at.share_bytes = at.started_bytes;
  }

  // A request of each range in turn, as long as one can start.
  void submit() {
    for (bool any = true; any;) {
      any = false;
      for (size_t range = 0; range < progress_.size(); ++range) {
        Progress& at = progress_[range];
        if (at.in_flight == depth_ || at.started_bytes == at.share_bytes) continue;
        submit_one(run_.ranges[range], at);
        any = true;
      }
    }
    queue_.flush();
  }

  void submit_one(const BareRange& range, Progress& at) {
    const int64_t bytes = std::min({run_.block_bytes, range.bytes, at.share_bytes - at.started_bytes});
    SLUICE_CHECK(bytes > 0, "an empty range");
    const bool reads = run_.op == BareOp::kRead || (run_.op == BareOp::kAlternate && at.requests / in_turn_ % 2 == 0);
    int64_t& from = reads ? at.read_from : at.written_from;
    if (from + bytes > range.bytes) from = 0;
    const int64_t block = at.free_blocks.front();
    at.free_blocks.pop_front();
    ++at.in_flight;
    block_bytes_[static_cast<size_t>(block)] = bytes;
    queue_.submit({.op = reads ? IoOp::kRead : IoOp::kWrite,
                   .file = range.file,
                   .memory = run_.memory.data() + block * run_.block_bytes,
                   .bytes = static_cast<uint32_t>(bytes),
                   .offset = static_cast<uint64_t>(range.first + from),
                   .tag = static_cast<uint64_t>(block)});
    ++at.requests;
    from += bytes;
    at.started_bytes += bytes;
    started_bytes_ += bytes;
  }

  void finish(const IoCompletion& completion, int64_t now) {
    const auto block = static_cast<int64_t>(completion.tag);
    const auto range = static_cast<size_t>(block / blocks_);
    const int64_t bytes = block_bytes_[static_cast<size_t>(block)];
    progress_[range].free_blocks.push_back(block);
    --progress_[range].in_flight;
    progress_[range].ended_ns = now;
    ended_bytes_ += bytes;
    check_whole(completion, bytes, run_.ranges[range].path);
  }

  IoQueue& queue_;
  const BareRun& run_;
  int64_t started_bytes_ = 0, ended_bytes_ = 0;
  std::vector<Progress> progress_;    // by range
  std::vector<int64_t> block_bytes_;  // of the request that has the block
  int64_t depth_ = 0, blocks_ = 0;    // of each range
  int64_t in_turn_ = 1;               // requests of one direction
};

class MeasuredDrive {
 public:
  MeasuredDrive(const std::filesystem::path& folder, int64_t scratch_bytes, const StoreWords& words)
      : scratch_(folder, scratch_bytes, words) {}
  void add_round(IoQueue& queue, std::span<std::byte> memory, const Clock& clock) {
    BareRun run{.op = BareOp::kWrite,
                .ranges = {scratch_.whole()},
                .bytes = scratch_.whole().bytes,
                .depth = queue.depth(),
                .memory = memory,
                .clock = clock};
    if (write_.empty()) run_bare(queue, run);  // the first write of a block costs more than the next ones
    run.bytes = INT64_MAX;
    run.limit_ns = kMeasuredNs;
    write_.push_back(run_bare(queue, run).gb_per_s());
    run.op = BareOp::kRead;
    read_.push_back(run_bare(queue, run).gb_per_s());
  }
  DriveSpeed speed() const { return {.read_gb_per_s = median(read_), .write_gb_per_s = median(write_)}; }

 private:
  ScratchFile scratch_;
  std::vector<double> read_, write_;
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

std::vector<std::optional<DriveSpeed>> measure_drives(const StoreOptions& options, const Clock& clock) {
  const Arena memory(kMemoryBytes);
  std::vector<std::optional<MeasuredDrive>> drives;
  for (const std::filesystem::path& folder : options.folders()) {
    const int64_t scratch_bytes = scratch_bytes_in({&folder, 1}, kMostScratchBytes);
    drives.emplace_back();
    if (scratch_bytes >= kLeastScratchBytes) drives.back().emplace(folder, scratch_bytes, *options.words);
  }
  IoQueueOptions queue_options = options.queue_for(1);
  queue_options.memory = {memory.span()};
  queue_options.log = nullptr;
  for (int round = 0; round < kMeasuredRounds; ++round) {
    for (std::optional<MeasuredDrive>& drive : drives) {
      if (!drive) continue;
      const auto queue = options.make_queue(queue_options);
      drive->add_round(*queue, memory.span(), clock);
    }
  }
  std::vector<std::optional<DriveSpeed>> speeds;
  for (const std::optional<MeasuredDrive>& drive : drives) {
    speeds.push_back(drive ? std::optional(drive->speed()) : std::nullopt);
  }
  return speeds;
}

}  // namespace sluice
