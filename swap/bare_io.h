// Bare requests on a scratch file: what a drive and a queue give without a store. For weighing drives, choosing a
// queue's settings and the ceilings of benchmarks. Blocking; one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "swap/io_queue.h"
#include "swap/record_store.h"

namespace sluice {

// A file of `bytes`, allocated, opened past the page cache and without a name: it is gone with the process, however
// that ends.
class ScratchFile {
 public:
  // Throws IoError (no space, no direct I/O).
  ScratchFile(const std::filesystem::path& folder, int64_t bytes);
  ~ScratchFile();
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  int file() const { return file_; }
  int64_t bytes() const { return bytes_; }

 private:
  int file_ = -1;
  int64_t bytes_;
};

enum class BareOp : uint8_t { kRead, kWrite, kAlternate };  // kAlternate: a read, a write, a read, ...
struct BareRange {
  int file = -1;
  int64_t first = 0, bytes = 0;  // gone through in blocks, again and again
};
struct BareRun {
  BareOp op = BareOp::kRead;
  std::vector<BareRange> ranges;  // each has `depth` requests in flight, whatever the others do
  int64_t bytes = 0;              // to move in all; rounded down to whole blocks
  int64_t block_bytes = int64_t{1} << 20;
  int depth = 32;
  std::span<std::byte> memory;   // a block for each request in flight, no more than it holds; aligned to 4096
  int64_t limit_ns = INT64_MAX;  // no new requests after that time
};
struct BareEnd {
  int64_t bytes = 0, ns = 0;
  double gb_per_s() const { return ns > 0 ? static_cast<double>(bytes) / static_cast<double>(ns) : 0; }
};
// Throws IoError for a request that fails or comes up short.
BareEnd run_bare(IoQueue& queue, const BareRun& run);

struct DriveSpeed {
  double read_gb_per_s = 0, write_gb_per_s = 0;
  // Of bytes that go both ways, as state does in every step.
  double both_gb_per_s() const { return 2 / (1 / read_gb_per_s + 1 / write_gb_per_s); }
};
// A scratch file in the folder, written and read for about half a second, by the store's kind of queue. 80 MiB of
// memory and 64 MiB of the drive meanwhile.
DriveSpeed measure_drive(const std::filesystem::path& folder, const StoreOptions& options);

}  // namespace sluice
