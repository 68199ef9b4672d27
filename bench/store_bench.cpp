// swap_in and swap_out through the record store against a bare queue of requests of 1 MiB on a file of its own, in the
// same run and on the same memory.
//   store_bench FOLDER [uring|threads|auto]
// FOLDER must be on the drive to measure; about 2.4 GB are taken below it and removed.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "bench/report.h"
#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/geometry.h"
#include "swap/io_queue.h"
#include "swap/record_store.h"

namespace {

using namespace sluice;

constexpr int kPasses = 9;
constexpr int64_t kElements = int64_t{64} << 20;  // 12 B each in bf16: 768 MiB of records, in two slots
constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr int64_t kBlockBytes = kMiB;
constexpr int kBareDepth = 32;
constexpr int kRecordsInFlight = 4;

// A file of `bytes` whose blocks are all written, opened past the page cache; removed at the end.
class BareFile {
 public:
  BareFile(std::filesystem::path path, int64_t bytes) : path_(std::move(path)), bytes_(bytes) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    if (file_ < 0 || ::posix_fallocate(file_, 0, bytes) != 0) {
      throw IoError({.action = "create",
                     .path = path_.string(),
                     .bytes = bytes,
                     .error_number = errno,
                     .advice = "choose another folder"});
    }
  }
  ~BareFile() {
    ::close(file_);
    ::unlink(path_.c_str());
  }
  BareFile(const BareFile&) = delete;
  BareFile& operator=(const BareFile&) = delete;

  // The whole file once, kBareDepth requests in flight, from or into `memory` used as a ring of blocks.
  void run(IoQueue& queue, IoOp op, const Arena& memory) const {
    const int64_t blocks = bytes_ / kBlockBytes, slots = memory.bytes() / kBlockBytes;
    std::array<IoCompletion, kBareDepth> done;
    int64_t started = 0, ended = 0;
    while (ended < blocks) {
      for (; started < blocks && started - ended < kBareDepth; ++started) {
        queue.submit({.op = op,
                      .file = file_,
                      .memory = memory.at(started % slots * kBlockBytes),
                      .bytes = static_cast<uint32_t>(kBlockBytes),
                      .offset = static_cast<uint64_t>(started * kBlockBytes)});
      }
      queue.flush();
      const size_t count = queue.poll(done, Wait::kUntilOne);
      for (size_t i = 0; i < count; ++i) {
        if (done[i].result != kBlockBytes) throw Error(fmt::format("a bare request gave {}", done[i].result));
      }
      ended += static_cast<int64_t>(count);
    }
  }

 private:
  std::filesystem::path path_;
  int64_t bytes_;
  int file_;
};

class StoreBench {
 public:
  StoreBench(const std::filesystem::path& folder, IoBackend backend)
      : geometry_(std::array{PartitionSpec{"all", {{"all", {kElements}}}}}, kChunkElements),
        memory_(kRecordsInFlight * slot_bytes()) {
    const IoQueueOptions queue{.backend = backend, .memory = {memory_.span()}, .log = nullptr};
    const StoreIdentity identity{.model = "bench", .chunk_elements = kChunkElements, .chunk_count = chunks()};
    store_ = RecordStore::create(geometry_, identity, {.folder = folder, .queue = queue, .log = nullptr});
  }

  enum class Direction { kRead, kWrite };
  // Every record once, kRecordsInFlight under way.
  void run(Direction direction) {
    std::array<StoreCompletion, kRecordsInFlight> done;
    std::vector<int> free_slots;
    for (int slot = 0; slot < kRecordsInFlight; ++slot) free_slots.push_back(slot);
    int64_t started = 0, ended = 0;
    const int64_t records = 2 * chunks();
    while (ended < records) {
      for (; started < records && !free_slots.empty(); ++started) {
        const auto slot = static_cast<uint64_t>(free_slots.back());
        free_slots.pop_back();
        const RecordId record{static_cast<uint32_t>(started / 2), started % 2 ? Group::kState : Group::kWeights};
        std::byte* const memory = memory_.at(static_cast<int64_t>(slot) * slot_bytes());
        if (direction == Direction::kRead) {
          store_->read(record, memory, slot);
        } else {
          store_->write(record, memory, slot);
        }
      }
      const size_t count = store_->poll(done, Wait::kUntilOne);
      for (size_t i = 0; i < count; ++i) {
        if (done[i].error) std::rethrow_exception(done[i].error);
        free_slots.push_back(static_cast<int>(done[i].tag));
      }
      ended += static_cast<int64_t>(count);
    }
  }
  // A commit makes the other slots the ones to write: after two rounds all blocks of the file have been written, so
  // that no pass meets unwritten extents.
  void warm_up() {
    for (int64_t step = 0; step < 2; ++step) {
      run(Direction::kWrite);
      commit_now(*store_, {.step = step, .caller = {}});
    }
  }
  int64_t bytes() const {
    return chunks() * (record_layout(Precision::kBf16, Group::kWeights, kChunkElements).bytes + slot_bytes());
  }
  const Arena& memory() const { return memory_; }
  std::string describe() const { return store_->describe(); }

 private:
  static int64_t slot_bytes() { return record_layout(Precision::kBf16, Group::kState, kChunkElements).bytes; }
  int64_t chunks() const { return static_cast<int64_t>(geometry_.chunks().size()); }

  Geometry geometry_;
  Arena memory_;
  std::unique_ptr<RecordStore> store_;
};

void run(const std::filesystem::path& folder, IoBackend backend) {
  StoreBench store(folder, backend);
  store.warm_up();
  const BareFile file(folder / "bare.bench", store.bytes());
  const auto queue =
      make_io_queue({.backend = backend, .depth = kBareDepth, .memory = {store.memory().span()}, .log = nullptr});
  file.run(*queue, IoOp::kWrite, store.memory());
  Rate read, write, bare_read, bare_write;
  for (int pass = 0; pass < kPasses; ++pass) {
    bare_write.measure(store.bytes(), [&] { file.run(*queue, IoOp::kWrite, store.memory()); });
    write.measure(store.bytes(), [&] { store.run(StoreBench::Direction::kWrite); });
    bare_read.measure(store.bytes(), [&] { file.run(*queue, IoOp::kRead, store.memory()); });
    read.measure(store.bytes(), [&] { store.run(StoreBench::Direction::kRead); });
  }
  print({"swap_in", store.describe(), "bare reads of 1 MiB, depth 32", read.gb_per_s(), bare_read.gb_per_s()});
  print({"swap_out", store.describe(), "bare writes of 1 MiB, depth 32", write.gb_per_s(), bare_write.gb_per_s()});
}

IoBackend backend_of(std::string_view name) {
  if (name == "auto") return IoBackend::kAuto;
  if (name == "uring") return IoBackend::kUring;
  if (name == "threads") return IoBackend::kThreads;
  throw ConfigError(fmt::format("backend is {}: allowed are auto, uring, threads", name));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw ConfigError("usage: store_bench FOLDER [uring|threads|auto]");
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / "sluice-bench";
    run(folder, backend_of(argc > 2 ? argv[2] : "auto"));
    std::filesystem::remove_all(folder);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "store_bench: {}\n", error.what());
    return 1;
  }
}
