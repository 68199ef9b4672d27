// Creation and opening of a store. All transfers of its file go through the store's queue, these too.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <string>

#include "core/bytes.h"
#include "core/retried.h"
#include "swap/drive_weights.h"
#include "swap/record_store_impl.h"
#include "swap/store_drives.h"

namespace sluice {

void RecordStore::Impl::run_block(IoOp op, int64_t offset) {
  const Extent at{.offset = offset, .bytes = kStoreBlockBytes};
  transfers.run_now({.op = op, .memory = block.data()}, {&at, 1});
}

// The first drive's header is durable before any other drive's is written: cut off here, the store opens as empty, and
// the other drives are looked at for another store only.
void RecordStore::Impl::write_headers() {
  DrivePlace place{.store = draw_store_number(), .drive = 0, .weights = weights, .folders = {}};
  for (const Drive& drive : drives) place.folders.push_back(drive.path().parent_path().string());
  for (const Extent& sync : everywhere()) {
    place.drive = sync.drive;
    write_identity(block.span(), identity, place);
    for (const int64_t offset : kIdentityOffset) {
      const Extent at{.drive = sync.drive, .offset = offset, .bytes = kStoreBlockBytes};
      transfers.run_now({.op = IoOp::kWrite, .memory = block.data()}, {&at, 1});
    }
    transfers.run_now({.op = IoOp::kSync}, {&sync, 1});
  }
}

// A copy is written only while the other one is whole. Where that fails, the store goes on with the one: training does
// not need the header, and the next opening tries again.
void RecordStore::Impl::mend_headers(std::span<const DamagedHeader> damaged) {
  for (const DamagedHeader& each : damaged) {
    const auto drive = static_cast<size_t>(each.drive);
    const Extent at{.drive = each.drive, .offset = kIdentityOffset[each.copy], .bytes = kStoreBlockBytes};
    std::string end = "it is left as it is: the store is opened to be read";
    try {
      if (!refused()) {
        transfers.run_now({.op = IoOp::kWrite, .memory = each.whole.data()}, {&at, 1});
        transfers.run_now({.op = IoOp::kSync}, everywhere().subspan(drive, 1));
        end = "it is mended";
      }
    } catch (const IoError& error) {
      end = fmt::format("it cannot be mended: {}", error.what());
    }
    say(options.log, LogLevel::kWarning,
        fmt::format("copy {} of the identity header of {} was damaged, the other one is used; {}", each.copy,
                    drives[drive].name(), end));
  }
}

// What may not be written is as if a write of it had failed already.
bool RecordStore::Impl::find_writable() {
  try {
    for (const Drive& drive : drives) drive.check_writable();
  } catch (const IoError& refused) {
    if (options.access == StoreOptions::Access::kWrite) throw;
    failed = std::current_exception();
    say(options.log, LogLevel::kWarning, fmt::format("the store is opened for reading alone: {}", refused.what()));
  }
  return !failed;
}

// Of a store that is opened to be read.
void RecordStore::Impl::refuse_records() {
  read_only = std::make_exception_ptr(
      IoError({.action = "write", .path = drives[0].name(), .reason = "the store was opened to be read"}));
}

void RecordStore::Impl::check_length() const {
  for (int drive = 0; drive < layout.drives(); ++drive) {
    const Drive& file = drives[static_cast<size_t>(drive)];
    if (file.bytes() >= layout.records_end(drive)) continue;
    throw CorruptionError(
        fmt::format("{} has been cut short: {} bytes where {} were written; bring the whole file back where there is a "
                    "copy, or {}",
                    file.name(), file.bytes(), layout.records_end(drive), options.words->start_over));
  }
}

int64_t RecordStore::file_bytes(const Geometry& geometry, RecordFormat format, int drives,
                                std::span<const int64_t> scratch_bytes) {
  const std::vector<uint32_t> any(static_cast<size_t>(drives), 1);
  const StoreLayout layout(geometry, format, any, scratch_bytes);
  return std::reduce(layout.file_bytes().begin(), layout.file_bytes().end());
}

std::unique_ptr<RecordStore> RecordStore::create(const Geometry& geometry, const StoreIdentity& identity,
                                                 StoreOptions options) {
  const StoreIdentity whole = identity_with(geometry, identity);
  const std::vector<std::filesystem::path> paths = store_paths(options, identity.rank);
  std::vector<uint32_t> weights = options.drive_weights;
  if (weights.empty()) {
    weights = weights_for(options, paths, file_bytes_of(geometry, identity.format(), options.scratch_bytes));
  }
  SLUICE_CHECK(weights.size() == paths.size(), "one weight for each drive");
  const StoreLayout layout(geometry, identity.format(), weights, options.scratch_bytes);
  std::vector<Drive> made = make_drives(paths, layout.file_bytes(), options.words);
  for (const Drive& drive : made) {
    if (options.existing == StoreOptions::Existing::kReplaced || drive.bytes() == 0) continue;
    throw ConfigError(fmt::format("{}: another store has been begun there in this moment; give another folder{}",
                                  drive.name(), options.words->folders));
  }
  std::unique_ptr<RecordStore> store(new RecordStore());
  store->impl_ = std::make_unique<Impl>(geometry, whole, std::move(options),
                                        Impl::Place{.drives = std::move(made), .weights = std::move(weights)});
  // Whatever can be refused has been by now: from here on the store that was there is lost.
  std::vector<Drive>& drives = store->impl_->drives;
  allocate_drives(drives, layout.file_bytes());
  store->impl_->write_headers();
  store->impl_->is_new = true;
  return store;
}

std::unique_ptr<RecordStore> RecordStore::open(const Geometry& geometry, const StoreIdentity& identity,
                                               StoreOptions options) {
  const StoreIdentity whole = identity_with(geometry, identity);
  std::optional<OpenedDrives> opened = open_drives(options, whole);
  if (!opened) {
    refuse_other_stores(options, identity.rank);
    return nullptr;
  }
  std::unique_ptr<RecordStore> store(new RecordStore());
  store->impl_ =
      std::make_unique<Impl>(geometry, whole, std::move(options),
                             Impl::Place{.drives = std::move(opened->drives), .weights = std::move(opened->weights)});
  store->impl_->check_length();
  const bool may_write = store->impl_->find_writable();
  if (store->impl_->load() == Impl::Content::kNone) return nullptr;
  const auto& accept = store->impl_->options.accept;
  if (accept) accept(*store);
  if (store->impl_->options.access == StoreOptions::Access::kRead) {
    store->impl_->refuse_records();
    store->impl_->mend_headers(opened->damaged);
    if (may_write) grow_drives(store->impl_->drives, store->impl_->layout.file_bytes());
    return store;
  }
  store->impl_->verify_in_place_of_damaged();
  fit_drives(store->impl_->drives, store->impl_->layout.file_bytes());
  store->impl_->burn_generation();
  store->impl_->mend_headers(opened->damaged);
  store->impl_->give_up_damaged();
  return store;
}

StoreExists find_store(const std::filesystem::path& folder, int rank) {
  return is_there(store_path(folder, rank)) ? StoreExists::kYes : StoreExists::kNo;
}

StoreExists find_store(std::span<const std::filesystem::path> folders, int rank) {
  const auto has_one = [rank](const std::filesystem::path& folder) {
    return find_store(folder, rank) == StoreExists::kYes;
  };
  return std::ranges::any_of(folders, has_one) ? StoreExists::kYes : StoreExists::kNo;
}

namespace {

// -1: nothing is there, or nothing that can be a store: it may be a pipe, or on a file system without direct I/O.
int open_to_look(const std::filesystem::path& path) {
  const int file = retried([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK); });
  constexpr int kNoStore[] = {ENOENT, ENOTDIR, ELOOP, ENXIO, EINVAL};
  if (file >= 0 || std::ranges::find(kNoStore, errno) != std::end(kNoStore)) return file;
  throw IoError({.action = "open",
                 .path = path.string(),
                 .error_number = errno,
                 .advice = "make it readable, look at the drive's health (dmesg) and at the limits of the process "
                           "(ulimit -n), and start again"});
}

// Two blocks of a file that may be open elsewhere.
struct BlockPair {
  std::array<AlignedBuffer, 2> blocks = {AlignedBuffer(kStoreBlockBytes), AlignedBuffer(kStoreBlockBytes)};
  CopyBlocks read;  // those that the drive gave
  std::optional<IoError> failed;
};

// nullopt: no store is there. What takes memory comes before the file is opened, or after it is closed.
std::optional<BlockPair> read_pair(const std::filesystem::path& path, const int64_t (&offsets)[2]) {
  BlockPair pair;
  const int file = open_to_look(path);
  if (file < 0) return std::nullopt;
  std::array<int, 2> error_numbers{};
  for (size_t i : {0, 1}) {
    const ssize_t moved = retried([&] { return pread(file, pair.blocks[i].data(), kStoreBlockBytes, offsets[i]); });
    if (moved == kStoreBlockBytes) pair.read[i] = pair.blocks[i].span();
    if (moved < 0) error_numbers[i] = errno;
  }
  close(file);
  for (size_t i : {0, 1}) {
    if (error_numbers[i] == 0) continue;
    pair.failed.emplace(IoError::Details{.action = "read",
                                         .path = path.string(),
                                         .offset = offsets[i],
                                         .bytes = kStoreBlockBytes,
                                         .error_number = error_numbers[i],
                                         .advice = "look at the drive's health (dmesg) and try again"});
  }
  return pair;
}

// nullopt: there is no store, or none whose identity header can be read.
std::optional<IdentityHeader> read_header(const std::filesystem::path& folder, int rank) {
  const std::optional<BlockPair> pair = read_pair(store_path(folder, rank), kIdentityOffset);
  if (!pair) return std::nullopt;
  const IdentityCopies copies = read_identities(pair->read);
  if (copies.state == HeaderState::kValid) return copies.header;
  if (pair->failed) throw *pair->failed;
  return std::nullopt;
}

}  // namespace

std::optional<StoreIdentity> RecordStore::identify(const std::filesystem::path& folder, int rank) {
  const std::optional<IdentityHeader> header = read_header(folder, rank);
  return header ? std::optional(header->identity) : std::nullopt;
}

std::optional<uint64_t> RecordStore::store_number(const std::filesystem::path& folder, int rank) {
  const std::optional<IdentityHeader> header = read_header(folder, rank);
  return header ? std::optional(header->place.store) : std::nullopt;
}

std::optional<uint32_t> RecordStore::last_opener(const std::filesystem::path& folder, int rank) {
  try {
    const std::optional<BlockPair> pair = read_pair(store_path(folder, rank), kOpeningOffset);
    if (!pair) return std::nullopt;
    OpeningBlock newest;
    for (const std::span<const std::byte> block : pair->read) {
      OpeningBlock opening;
      if (block.empty() || read_opening(block, opening) == BlockState::kDamaged) return std::nullopt;
      if (opening.generation > newest.generation) newest = opening;
    }
    return newest.opener;
  } catch (const IoError&) {
    return std::nullopt;
  }
}

std::optional<DrivePlace> place_in_store(const std::filesystem::path& folder, int rank) {
  std::optional<IdentityHeader> header = read_header(folder, rank);
  return header ? std::optional(std::move(header->place)) : std::nullopt;
}

std::optional<TrimMark> trim_mark(const std::filesystem::path& folder, int rank) {
  const std::optional<BlockPair> pair = read_pair(store_path(folder, rank), kOpeningOffset);
  if (!pair) return std::nullopt;
  for (const std::span<const std::byte> block : pair->read) {
    if (block.empty()) continue;
    if (const std::optional<TrimMark> mark = read_trim_mark(block)) return mark;
  }
  return std::nullopt;
}

std::optional<std::vector<uint32_t>> stored_weights(std::span<const std::filesystem::path> folders, int rank) {
  SLUICE_CHECK(!folders.empty(), "a store lies in a folder");
  const std::optional<IdentityHeader> header = read_header(folders.front(), rank);
  const bool is_theirs = header && header->place.drive == 0 && header->place.weights.size() == folders.size();
  return is_theirs ? std::optional(header->place.weights) : std::nullopt;
}

}  // namespace sluice
