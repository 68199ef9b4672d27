#include "swap/bare_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

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

ScratchFile::~ScratchFile() { close(file_); }

BareEnd run_bare(IoQueue& queue, const BareRun& run) {
  const int64_t file_blocks = run.file_bytes / run.block_bytes;
  const int64_t slots = static_cast<int64_t>(run.memory.size()) / run.block_bytes;
  const int depth = static_cast<int>(std::min<int64_t>({run.depth, queue.depth(), slots}));
  SLUICE_CHECK(file_blocks > 0 && depth > 0, "no room for one block");
  std::array<IoCompletion, 64> done;
  const int64_t begin_ns = now_ns();
  int64_t wanted = run.bytes / run.block_bytes, started = 0, ended = 0;
  // Slots of memory may be shared by requests in flight that end out of order: the bytes are nobody's.
  while (ended < wanted) {
    for (; started < wanted && started - ended < depth; ++started) {
      queue.submit({.op = run.op,
                    .file = run.file,
                    .memory = run.memory.data() + started % slots * run.block_bytes,
                    .bytes = static_cast<uint32_t>(run.block_bytes),
                    .offset = static_cast<uint64_t>(run.first + started % file_blocks * run.block_bytes)});
    }
    queue.flush();
    const size_t count = queue.poll(done, Wait::kUntilOne);
    for (size_t i = 0; i < count; ++i) {
      if (done[i].result == run.block_bytes) continue;
      throw IoError({.action = run.op == IoOp::kRead ? "read" : "write",
                     .path = "scratch file",
                     .bytes = run.block_bytes,
                     .error_number = static_cast<int>(std::max<int64_t>(0, -done[i].result)),
                     .advice = "look at the drive's health (dmesg)"});
    }
    ended += static_cast<int64_t>(count);
    if (now_ns() - begin_ns > run.limit_ns) wanted = started;
  }
  return {.bytes = ended * run.block_bytes, .ns = now_ns() - begin_ns};
}

DriveSpeed measure_drive(const std::filesystem::path& folder, const StoreOptions& options) {
  const ScratchFile scratch(folder, kScratchBytes);
  const Arena memory(kMemoryBytes);
  IoQueueOptions queue_options = options.queue;
  queue_options.memory = {memory.span()};
  queue_options.log = nullptr;
  const auto queue = options.make_queue(queue_options);
  BareRun run{.op = IoOp::kWrite,
              .file = scratch.file(),
              .file_bytes = kScratchBytes,
              .bytes = kScratchBytes,
              .depth = queue->depth(),
              .memory = memory.span()};
  run_bare(*queue, run);  // the first write of a block costs more than the next ones
  run.bytes = INT64_MAX;
  run.limit_ns = kMeasuredNs;
  DriveSpeed speed;
  speed.write_gb_per_s = run_bare(*queue, run).gb_per_s();
  run.op = IoOp::kRead;
  speed.read_gb_per_s = run_bare(*queue, run).gb_per_s();
  return speed;
}

}  // namespace sluice
