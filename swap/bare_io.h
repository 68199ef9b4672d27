// Bare requests on a scratch file: what a drive and a queue give without a store. For weighing drives, choosing a
// queue's settings and the ceilings of benchmarks. Blocking; one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "swap/io_queue.h"
#include "swap/record_store.h"

namespace sluice {

// kAlternate: reads and writes in turns of a block or, where blocks are smaller, of 128 KiB or half of what is in
// flight; reads begin at the start of a range and writes in its middle, so that what is small has neighbours in its
// direction that a drive can take with it.
enum class BareOp : uint8_t { kRead, kWrite, kAlternate };
struct BareRange {
  int file = -1;
  int64_t first = 0, bytes = 0;  // gone through in blocks, again and again
  std::filesystem::path path{};  // of the file, for errors
};

// A file of `bytes`, allocated, opened past the page cache and without a name: it is gone with the process, however
// that ends. Of a folder that is not there it lies in the nearest one above it.
class ScratchFile {
 public:
  // Throws IoError (no space, no direct I/O, a limit of the process).
  ScratchFile(const std::filesystem::path& folder, int64_t bytes, const StoreWords& words = kPlainWords);
  ~ScratchFile();
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  int file() const { return file_; }
  int64_t bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }  // what errors call it
  BareRange whole() const { return {.file = file_, .bytes = bytes_, .path = path_}; }

 private:
  int file_ = -1;
  int64_t bytes_;
  std::filesystem::path path_;
};

// As long as files without a name can be of which each of these folders gets one: half of what is free where there is
// least for each, most_bytes or most_file_bytes() at the most. Whole MiB, 0 where there is less.
int64_t scratch_bytes_in(std::span<const std::filesystem::path> folders, int64_t most_bytes);

struct BareRun {
  BareOp op = BareOp::kRead;
  std::vector<BareRange> ranges;  // each has requests in flight, as many as the others, whatever those do
  // To move in all, rounded down to 4096. Each range has its share, in proportion to its bytes, and is done with that.
  int64_t bytes = 0;
  int64_t block_bytes = int64_t{1} << 20;  // of a request; the last one of a range may be shorter
  int depth = 32;  // requests in flight for each range, as far as the queue and the memory have room for all
  // At least a block for each range; aligned to 4096. Requests go through all of it, block after block: where it is
  // larger than the caches they find it as cold as records do, and where it holds just those in flight as warm as can
  // be.
  std::span<std::byte> memory;
  int64_t limit_ns = INT64_MAX;  // no new requests after that time
  Clock clock = now_ns;
};
struct BareEnd {
  int64_t bytes = 0, ns = 0;
  std::vector<double> range_gb_per_s{};  // of each, until its own last request had ended
  double gb_per_s() const { return ns > 0 ? static_cast<double>(bytes) / static_cast<double>(ns) : 0; }
};
// Nothing else may be in flight on the queue. Throws IoError for a request that fails or comes up short. However this
// ends, nothing is in flight afterwards: memory and files are the caller's again.
BareEnd run_bare(IoQueue& queue, const BareRun& run);
// Throws it: with the request's errno, or with how many bytes have moved.
void check_whole(const IoCompletion& completion, int64_t bytes, const std::filesystem::path& path);

struct DriveSpeed {
  double read_gb_per_s = 0, write_gb_per_s = 0;
  // Of bytes that go both ways, as state does in every step.
  double both_gb_per_s() const { return 2 / (1 / read_gb_per_s + 1 / write_gb_per_s); }
};
// Of each of the store's drives: a scratch file there, written and read for about half a second in all by the store's
// kind of queue, in three rounds in which the drives take turns, so that what disturbs one of them for a while decides
// nothing: medians. Takes 16 MiB of memory meanwhile, and of each drive scratch_bytes_in() it, 64 MiB at the most.
// nullopt: those are less than 4 MiB.
std::vector<std::optional<DriveSpeed>> measure_drives(const StoreOptions& options, const Clock& clock = now_ns);

}  // namespace sluice
