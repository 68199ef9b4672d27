#include "bench/io_store.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <optional>
#include <random>
#include <utility>

#include "bench/scratch_folder.h"
#include "core/clock.h"
#include "core/errors.h"
#include "swap/drive.h"
#include "swap/drive_weights.h"
#include "swap/record_checksums.h"
#include "swap/store_format.h"

namespace sluice {
namespace {

constexpr int kLargestRecords = 8;  // that the memory has room for
constexpr int64_t kLeastChunks = 16;
constexpr int64_t kBytesPerElement = 12, kStateBytesPerElement = 10;

// Chunks of one size, or of the sizes that partitions of a model give: a whole one, a half, a third, a
// sixteenth; at 10 bytes of state an element, the largest record is one of state.
Geometry make_geometry(const IoStoreOptions& options) {
  const int64_t elements = options.size_bytes / kBytesPerElement;
  const int64_t wanted = options.record_bytes / kStateBytesPerElement / 128 * 128;
  const int64_t largest = std::min(wanted, std::max<int64_t>(elements / kLeastChunks / 128 * 128, 4096));
  const std::array<int64_t, 4> mix = {largest, largest / 2, largest / 3, largest / 16};
  std::vector<PartitionSpec> partitions;
  for (int64_t at = 0; at < elements;) {
    const int64_t size = options.pattern == IoPattern::kSequential ? largest : mix[partitions.size() % mix.size()];
    const std::string name = std::to_string(partitions.size());
    partitions.push_back({name, {{name, {std::max<int64_t>(128, size / 128 * 128)}}}});
    at += partitions.back().parameters[0].shape[0];
  }
  return Geometry(partitions, largest);
}

// How many of the largest records there is memory for. In file order no more than keep the drives' requests in flight
// and one that ends: memory that is used again soon is in the caches, as it is for a benchmark with a buffer for each
// request. Where checksums are taken, as much again: a drive may end all that is in flight at once, and what goes to it
// next has to be there by then.
int room_for(const IoStoreOptions& options, int64_t mean_record_bytes) {
  if (options.pattern != IoPattern::kSequential) return kLargestRecords;
  const auto drives = static_cast<int64_t>(options.folders.size());
  const int64_t in_flight = options.depth * options.block_bytes * drives;
  const int64_t records =
      std::min<int64_t>((in_flight + mean_record_bytes - 1) / mean_record_bytes, kLargestRecords - 1);
  return static_cast<int>(records * (options.verify == Verify::kOn ? 2 : 1) + 1);
}

int64_t cpu_ns() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto ns = [](const timeval& time) { return (time.tv_sec * int64_t{1'000'000} + time.tv_usec) * 1000; };
  return ns(use.ru_utime) + ns(use.ru_stime);
}

template <typename Work>
PassEnd timed(const Work& work) {
  const int64_t begin_ns = now_ns(), begin_cpu_ns = cpu_ns();
  const int64_t bytes = work();
  return {.bytes = bytes, .ns = now_ns() - begin_ns, .cpu_ns = cpu_ns() - begin_cpu_ns};
}

}  // namespace

IoStore::IoStore(const IoStoreOptions& options) : options_(options), geometry_(make_geometry(options)) {
  for (uint32_t chunk = 0; chunk < geometry_.chunks().size(); ++chunk) {
    for (const Group group : {Group::kState, Group::kWeights}) {
      order_.push_back({chunk, group});
      record_bytes_ += layout_of(order_.back()).bytes;
      largest_bytes_ = std::max(largest_bytes_, layout_of(order_.back()).bytes);
    }
  }
  if (options_.pattern == IoPattern::kMixed) std::shuffle(order_.begin(), order_.end(), std::mt19937_64(1));
  const int room = room_for(options, record_bytes_ / std::ssize(order_));
  ring_ = RecordRing(room * largest_bytes_);
  slots_.resize(kMaxTransfers);
  for (int slot = 0; slot < kMaxTransfers; ++slot) free_slots_.push_back(slot);
  const auto drives = static_cast<int>(options_.folders.size());
  memory_ = Arena(std::max(room, drives) * largest_bytes_);  // bare requests: one for each drive at least
  std::mt19937_64 random(7);
  for (int64_t at = 0; at + 8 <= memory_.bytes(); at += 8) *reinterpret_cast<uint64_t*>(memory_.at(at)) = random();
  make_store();
  bare_queue_ = timed_queue_factory(&bare_times_, options_.throttle)(for_drives(
      {.backend = IoBackend::kAuto, .depth = options_.depth, .memory = {memory_.span()}, .log = {}}, drives));
  lane_ =
      std::make_unique<ChecksumLane>([this](int slot) { check(slot); }, [this] { store_->interrupt(); }, kMaxTransfers);
  // Both slots of every record, so that no pass meets a block that was never written.
  for (int i = 0; i < 2; ++i) {
    run(Direction::kWrite);
    commit();
  }
}

IoStore::~IoStore() {
  lane_.reset();
  bare_queue_.reset();
  for (const int file : files_) close(file);
}

// The store asks for its queue when its files are there and nothing is in them: they lose their names then. What takes
// long, weighing before and writing after, is done without names. Each process has folders of its own.
void IoStore::make_store() {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& drive : options_.folders) {
    files.push_back(store_path(ScratchFolder::pattern_in(drive), 0));  // what is there keeps its room
  }
  const std::vector<uint32_t> weights =
      weights_for(store_options(options_.folders), files, file_bytes_of(geometry_, Precision::kBf16, {}));
  std::optional<SignalsHeld> held(std::in_place);  // while files have names
  std::deque<ScratchFolder> scratch;
  std::vector<std::filesystem::path> folders;
  for (const std::filesystem::path& drive : options_.folders) folders.push_back(scratch.emplace_back(drive).path());
  StoreOptions options = store_options(folders);
  options.drive_weights = weights;
  options.make_queue = [&, make = options.make_queue](const IoQueueOptions& queue) {
    open_files(folders);
    scratch.clear();
    held.reset();
    return make(queue);
  };
  const StoreIdentity identity{.model = "bench",
                               .chunk_elements = geometry_.chunk_elements(),
                               .chunk_count = static_cast<int64_t>(geometry_.chunks().size())};
  store_ = RecordStore::create(geometry_, identity, options);
  // With --verify off these stay, and nobody compares them.
  for (const RecordId record : order_) keep_sums(*store_, record, empty_sums(record));
}

StoreOptions IoStore::store_options(std::span<const std::filesystem::path> folders) {
  StoreOptions options{.folder = folders[0]};
  options.more_folders.assign(folders.begin() + 1, folders.end());
  options.make_queue = timed_queue_factory(&times_, options_.throttle);
  options.queue = {.backend = options_.backend, .depth = options_.depth, .memory = {memory_.span()}, .log = {}};
  options.block_bytes = options_.block_bytes;
  options.names = FileNames::kTakenAway;
  options.log = options_.log;
  options.words = options_.words;
  return options;
}

void IoStore::open_files(std::span<const std::filesystem::path> folders) {
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path path = store_path(folder, 0);
    files_.push_back(::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
    if (files_.back() < 0)
      throw IoError({.action = "open", .path = options_.words->name_of(path), .error_number = errno});
  }
}

RecordLayout IoStore::layout_of(RecordId record) const {
  return record_layout(Precision::kBf16, record.group, geometry_.chunks()[record.chunk].elements);
}

void IoStore::check(int slot) {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.direction != Direction::kWrite) verify_record(*store_, s.record, memory_of(slot), "of the benchmark");
  if (s.direction != Direction::kRead) sum_record(*store_, s.record, memory_of(slot));
}

bool IoStore::start(RecordId record, Direction direction) {
  if (free_slots_.empty()) return false;
  const std::optional<int64_t> at = ring_.take(layout_of(record).bytes);
  if (!at) return false;
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[static_cast<size_t>(slot)] = {.record = record, .at = *at, .use = Slot::Use::kReading, .direction = direction};
  if (direction == Direction::kWrite) {
    finish(slot);
  } else {
    store_->read(record, memory_of(slot), static_cast<uint64_t>(slot));
  }
  return true;
}

void IoStore::finish(int slot) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.use == Slot::Use::kReading && options_.verify == Verify::kOn) {
    s.use = Slot::Use::kChecking;
    return lane_->start(slot);
  }
  if (s.use != Slot::Use::kWriting && s.direction != Direction::kRead) {
    s.use = Slot::Use::kWriting;
    return store_->write(s.record, memory_of(slot), static_cast<uint64_t>(slot));
  }
  s.use = Slot::Use::kFree;
  ring_.give_back(s.at);
  free_slots_.push_back(slot);
}

PassEnd IoStore::run(Direction direction) {
  times_.read.clear();
  times_.write.clear();
  return timed([&] {
    std::array<StoreCompletion, 8> done;
    size_t started = 0;
    while (started < order_.size() || free_slots_.size() < slots_.size()) {
      while (started < order_.size() && start(order_[started], direction)) ++started;
      const size_t count = store_->poll(done, Wait::kUntilOne);  // the lane interrupts it
      for (const StoreCompletion& each : std::span(done).first(count)) {
        if (each.error) std::rethrow_exception(each.error);
        finish(static_cast<int>(each.tag));
      }
      lane_->take_ended(checked_);
      for (const int slot : checked_) finish(slot);
    }
    return record_bytes_ * (direction == Direction::kBoth ? 2 : 1);
  });
}

PassEnd IoStore::run_bare_requests(Direction direction) {
  const int64_t head_bytes = RecordStore::file_bytes(geometry_, Precision::kBf16) - 2 * record_bytes_;
  const int64_t block_bytes = largest_request_bytes();
  BareRun bare{.op = direction == Direction::kRead    ? BareOp::kRead
                     : direction == Direction::kWrite ? BareOp::kWrite
                                                      : BareOp::kAlternate,
               .bytes = record_bytes_ * (direction == Direction::kBoth ? 2 : 1),
               .block_bytes = block_bytes,
               .depth = options_.depth,
               .memory = memory_.span()};
  for (size_t drive = 0; drive < files_.size(); ++drive) {
    const int64_t first = drive == 0 ? head_bytes : kTablesOffset;
    const int64_t bytes = lseek(files_[drive], 0, SEEK_END) - first;
    if (bytes < kStoreBlockBytes) continue;  // a drive much slower than the others may have nothing
    bare.ranges.push_back(
        {.file = files_[drive], .first = first, .bytes = bytes, .path = options_.folders[drive] / "(store file)"});
  }
  bare_times_.read.clear();
  bare_times_.write.clear();
  return timed([&] { return run_bare(*bare_queue_, bare).bytes; });
}

void IoStore::commit() { commit_now(*store_, {.step = step_++, .caller = {}}); }

}  // namespace sluice
