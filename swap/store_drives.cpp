#include "swap/store_drives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <utility>

#include "core/errors.h"
#include "swap/drive_folders.h"
#include "swap/store_format.h"
#include "swap/transfers.h"

namespace sluice {
namespace {

// What is wrong with the file that a drive of the store should have.
class Refusal {
 public:
  Refusal(const std::filesystem::path& file, const StoreWords& words) : words_(words), name_(words.name_of(file)) {}

  const std::string& name() const { return name_; }

  [[noreturn]] void foreign() const {
    throw ConfigError(fmt::format("{} is not a store of sluice: give another folder{}, or {}", name_, words_.folders,
                                  words_.start_over));
  }
  [[noreturn]] void version(uint32_t version) const {
    throw ConfigError(
        fmt::format("{} has the format of version {}, this is version {}: use the program that wrote it, or {}", name_,
                    version, kStoreVersion, words_.start_over));
  }
  [[noreturn]] void contradiction() const {
    throw CorruptionError(
        fmt::format("the two copies of the identity header of {} are whole and differ: parts of two stores are in it; "
                    "bring back the file, or {}",
                    name_, words_.start_over));
  }
  [[noreturn]] void damage() const {
    throw CorruptionError(
        fmt::format("both copies of the identity header of {} are damaged (their checksums do not agree): bring back "
                    "the file, or {}",
                    name_, words_.start_over));
  }
  [[noreturn]] void emptied() const {
    throw CorruptionError(
        fmt::format("both copies of the identity header of {} have been emptied, and steps were committed to it: bring "
                    "back the file, or {}",
                    name_, words_.start_over));
  }
  [[noreturn]] void cut_short(int64_t bytes) const {
    throw CorruptionError(fmt::format(
        "{} has been cut short: {} bytes, which is less than its header takes, and steps were committed to it: "
        "bring the whole file back, or {}",
        name_, bytes, words_.start_over));
  }
  [[noreturn]] void model(const std::vector<std::string>& differ) const {
    throw ConfigError(
        fmt::format("the store {} belongs to another run: {}; give the configuration it was made with, or another "
                    "folder{}, or {}",
                    name_, fmt::join(differ, "; "), words_.folders, words_.start_over));
  }
  void wrong_place(const DrivePlace& place, int given) const {
    if (place.drive == given) return;
    throw ConfigError(fmt::format("{} is drive {} of a store, and was given as drive {}: {}", name_, place.drive, given,
                                  order_of(place)));
  }
  [[noreturn]] void count(const DrivePlace& place, size_t given) const {
    throw ConfigError(fmt::format("the store {} lies on {} drive{}, this run names {}: {}; name all of them, or {}",
                                  name_, place.weights.size(), place.weights.size() == 1 ? "" : "s", given,
                                  order_of(place), words_.start_over));
  }
  // `folder`: the first drive's.
  [[noreturn]] void other_store(const DrivePlace& first, int number, const std::filesystem::path& folder) const {
    throw ConfigError(fmt::format("{} is not drive {} of the store in {}: {}; put that drive in its place, or {}",
                                  name_, number, folder.string(), order_of(first), words_.start_over));
  }
  [[noreturn]] void missing(const DrivePlace& first, int number) const {
    throw ConfigError(fmt::format("drive {} of the store is missing: there is no {}; {}; bring the drive back, or {}",
                                  number, name_, order_of(first), words_.start_over));
  }

 private:
  std::string order_of(const DrivePlace& place) const {
    if (place.weights.size() == 1) return fmt::format("it was made with one folder{}", words_.folders);
    // Its header has room for the names of the first ones.
    const size_t unnamed = place.weights.size() - std::min(place.folders.size(), place.weights.size());
    return fmt::format("it was made with the folders [{}]{}, in this order{}", fmt::join(place.folders, ", "),
                       unnamed > 0 ? fmt::format(" and {} more, whose names are not kept", unnamed) : "",
                       words_.folders);
  }

  const StoreWords& words_;
  std::string name_;
};

// Reads single blocks of one drive's file.
class BlockReader {
 public:
  BlockReader(const StoreOptions& options, const Drive& drive)
      : refusal_(drive.path(), drive.words()),
        log_(options.log),
        drive_(drive),
        transfers_(options.make_queue(queue_options(options)), {&drive, 1}, kStoreBlockBytes) {}

  const Refusal& refusal() const { return refusal_; }

  // A copy that cannot be read is a damaged one, as long as the other is whole.
  IdentityCopies header() {
    CopyBlocks blocks;
    std::exception_ptr unreadable;
    for (size_t i : {0, 1}) {
      try {
        blocks[i] = read(kIdentityOffset[i], copies_[i]);
      } catch (const IoError& error) {
        unreadable = std::current_exception();
        say(log_, LogLevel::kWarning, error.what());
      }
    }
    IdentityCopies found = read_identities(blocks);
    if (unreadable && found.state == HeaderState::kDamaged) std::rethrow_exception(unreadable);
    return found;
  }
  // Of the header just read.
  void add_damaged(const IdentityCopies& header, int drive, std::vector<DamagedHeader>& damaged) {
    if (!header.damaged) return;
    const int copy = *header.damaged;
    damaged.push_back({.drive = drive, .copy = copy, .whole = std::move(copies_[1 - copy])});
  }
  // Before the end of what headers take.
  bool is_cut_short() const { return drive_.bytes() < kTablesOffset; }
  // Of the first drive: steps were committed to it, whatever has become of its header.
  bool has_steps(const StoreIdentity& identity) { return !is_cut_short() && !has_no_steps(identity); }
  // Nothing was ever committed to the first drive. The second of two areas takes a table only when a step has been.
  bool has_no_steps(const StoreIdentity& identity) {
    const int64_t second = kTablesOffset + StoreLayout::table_area_bytes(2 * identity.chunk_count);
    return superblocks_are_blank(fingerprint_of(identity)) && !begun_table(read(second, block_));
  }
  // ... and all of that can be read. What cannot is the store's to look at (RecordStore::Impl::load): it may have
  // steps.
  bool has_surely_no_steps(const StoreIdentity& identity) {
    try {
      return has_no_steps(identity);
    } catch (const IoError& error) {
      say(log_, LogLevel::kWarning, error.what());
      return false;
    }
  }
  // Whether a creation that was cut off may have left this file: it is empty, or as long as it will be, and headers are
  // durable before anything else is written.
  bool holds_nothing(uint64_t fingerprint) {
    return drive_.bytes() == 0 || (superblocks_are_blank(fingerprint) && has_nothing_behind_headers());
  }
  bool has_nothing_behind_headers() {
    if (drive_.bytes() % kStoreBlockBytes != 0) return false;  // none of ours
    const off_t data = lseek(drive_.file(), kTablesOffset, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return true;
    const int64_t begin = data < 0 ? kTablesOffset : data / kStoreBlockBytes * kStoreBlockBytes;
    const int64_t end = std::min(drive_.bytes(), begin + kLookedAtBytes);
    for (int64_t at = begin; at < end; at += kStoreBlockBytes) {
      if (!is_blank(read(at, block_))) return false;
    }
    return true;
  }
  // A file is as long as it will be before anything is written to it.
  bool superblocks_are_blank(uint64_t fingerprint) {
    Superblock ignored;
    return !is_cut_short() && std::ranges::all_of(kSuperblockOffset, [&](int64_t offset) {
      return read_superblock(read(offset, block_), fingerprint, ignored) == BlockState::kBlank;
    });
  }

 private:
  static IoQueueOptions queue_options(const StoreOptions& options) {
    IoQueueOptions queue = options.queue_for(1);
    queue.depth = 1;
    queue.memory.clear();
    queue.log = nullptr;
    return queue;
  }
  // Zeros where the file ends before.
  std::span<const std::byte> read(int64_t offset, const AlignedBuffer& into) {
    if (drive_.bytes() < offset + kStoreBlockBytes) {
      std::ranges::fill(into.span(), std::byte{0});
      return into.span();
    }
    const Extent at{.offset = offset, .bytes = kStoreBlockBytes};
    transfers_.run_now({.op = IoOp::kRead, .memory = into.data()}, {&at, 1});
    return into.span();
  }

  static constexpr int64_t kLookedAtBytes = 64 * kStoreBlockBytes;  // where a file has no holes, of it all

  Refusal refusal_;
  const Log& log_;
  const Drive& drive_;
  std::array<AlignedBuffer, 2> copies_{AlignedBuffer(kStoreBlockBytes), AlignedBuffer(kStoreBlockBytes)};
  AlignedBuffer block_{kStoreBlockBytes};
  Transfers transfers_;
};

// The first drive's header. nullopt: the store's creation was cut off.
std::optional<IdentityCopies> check_first(BlockReader& reader, const StoreIdentity& identity) {
  IdentityCopies copies = reader.header();
  switch (copies.state) {
    case HeaderState::kValid:
      break;
    case HeaderState::kBlank:
      if (reader.has_steps(identity)) reader.refusal().emptied();
      if (reader.holds_nothing(fingerprint_of(identity))) return std::nullopt;
      reader.refusal().foreign();
    case HeaderState::kForeign:
      reader.refusal().foreign();
    case HeaderState::kDamaged:
      // The header is durable before the first superblock is written.
      if (reader.has_no_steps(identity)) return std::nullopt;
      reader.refusal().damage();
    case HeaderState::kContradictory:
      reader.refusal().contradiction();
    case HeaderState::kOtherVersion:
      reader.refusal().version(copies.header.version);
  }
  const std::vector<std::string> differ = differences(copies.header, identity);
  if (!differ.empty()) reader.refusal().model(differ);
  reader.refusal().wrong_place(copies.header.place, 0);
  // The other drives' headers are durable before the first superblock is written.
  const size_t drives = copies.header.place.weights.size();
  if (drives > 1 && reader.has_surely_no_steps(identity)) return std::nullopt;
  return copies;
}

// The drive opened last.
void check_further(const StoreOptions& options, const DrivePlace& first, OpenedDrives& opened) {
  const auto number = static_cast<int>(opened.drives.size()) - 1;
  BlockReader reader(options, opened.drives.back());
  const IdentityCopies copies = reader.header();
  if (copies.state == HeaderState::kContradictory) reader.refusal().contradiction();
  if (copies.state == HeaderState::kDamaged) reader.refusal().damage();
  if (copies.state == HeaderState::kBlank) {  // and the first drive's steps were committed to it, too
    if (reader.is_cut_short()) reader.refusal().cut_short(opened.drives.back().bytes());
    reader.refusal().emptied();
  }
  const DrivePlace& place = copies.header.place;
  if (copies.state != HeaderState::kValid || place.store != first.store) {
    reader.refusal().other_store(first, number, options.folder);
  }
  reader.refusal().wrong_place(place, number);
  reader.add_damaged(copies, number, opened.damaged);
}

Drive::Access access_of(const StoreOptions& options) {
  return options.access == StoreOptions::Access::kWrite ? Drive::Access::kWrite : Drive::Access::kWriteIfItMay;
}

// Refuses what is given as a further drive and is none. What cannot be read may be one.
void check_without_first(const StoreOptions& options, const std::filesystem::path& path, int number) {
  try {
    const Drive drive = Drive::open(path, Drive::Access::kWriteIfItMay, options.words);
    BlockReader reader(options, drive);
    const IdentityCopies copies = reader.header();
    if (copies.state == HeaderState::kForeign) reader.refusal().foreign();
    if (copies.state == HeaderState::kValid) reader.refusal().wrong_place(copies.header.place, number);
  } catch (const IoError&) {
  }
}

bool is_empty_file(const std::filesystem::path& path) {
  std::error_code unknown;  // is no reason to take it for one
  return std::filesystem::file_size(path, unknown) == 0 && !unknown;
}

// The first drive is not there, and another one is: this is no reason to start from the beginning. nullopt: all that is
// there was left by a creation that was cut off.
std::optional<Drive> open_first(const StoreOptions& options, const std::vector<std::filesystem::path>& paths) {
  if (is_there(paths[0])) return Drive::open(paths[0], access_of(options), options.words);
  const auto holds_something = [](const std::filesystem::path& path) { return is_there(path) && !is_empty_file(path); };
  const auto other = std::ranges::find_if(paths, holds_something);
  if (const auto empty = std::ranges::find_if(paths, is_there); other == paths.end() && empty != paths.end()) {
    say(options.log, LogLevel::kWarning,
        fmt::format("there is no {}, and {} is empty: a creation that was cut off has left it", paths[0].string(),
                    empty->string()));
    return std::nullopt;
  }
  if (other == paths.end()) {
    throw IoError(
        {.action = "open",
         .path = paths[0].string(),
         .error_number = ENOENT,
         .advice = fmt::format("no store is there, or not any more: bring it back (is its drive mounted?), or {}",
                               options.words->start_over)});
  }
  check_without_first(options, *other, static_cast<int>(other - paths.begin()));
  throw ConfigError(
      fmt::format("drive 0 of the store is missing: there is no {}, while other drives of it are there; bring the "
                  "drive back, or {}",
                  paths[0].string(), options.words->start_over));
}

// A file that is not there gets a message of its own.
Drive open_further(const StoreOptions& options, const std::filesystem::path& path, int number,
                   const DrivePlace& first) {
  try {
    return Drive::open(path, access_of(options), options.words);
  } catch (const IoError& error) {
    if (error.details().error_number != ENOENT) throw;
    Refusal(path, *options.words).missing(first, number);
  }
}

}  // namespace

std::vector<std::filesystem::path> StoreOptions::folders() const {
  std::vector<std::filesystem::path> all = {folder};
  all.insert(all.end(), more_folders.begin(), more_folders.end());
  return all;
}

IoQueueOptions StoreOptions::queue_for(int drives) const {
  IoQueueOptions options = for_drives(queue, drives);
  options.words = words;
  return options;
}

std::vector<std::filesystem::path> store_paths(const StoreOptions& options, int rank) {
  SLUICE_CHECK(options.more_folders.size() < kMaxDrives, "a store has 16 drives at the most");
  const std::vector<std::filesystem::path> folders = options.folders();
  SLUICE_CHECK(std::ranges::none_of(folders, &std::filesystem::path::empty), "a store's folders have names");
  SLUICE_CHECK(options.make_queue != nullptr, "a store has a queue");
  SLUICE_CHECK(0 <= options.caller_bytes && options.caller_bytes <= kMaxCallerBytes, "caller_bytes is 0 to 1 MiB");
  int64_t scratch = 0;
  for (const int64_t bytes : options.scratch_bytes) {
    SLUICE_CHECK(bytes > 0 && bytes <= kMaxScratchBytes - scratch, "scratch extents of 4 PiB together at the most");
    scratch += bytes;
  }
  check_distinct(folders);
  std::vector<std::filesystem::path> paths;
  for (const std::filesystem::path& folder : folders) paths.push_back(store_path(folder, rank));
  check_distinct_files(paths);
  return paths;
}

uint64_t draw_store_number() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

void refuse_other_stores(const StoreOptions& options, int rank) {
  const std::vector<std::filesystem::path> paths = store_paths(options, rank);
  const std::optional<uint64_t> own = RecordStore::store_number(options.folder, rank);
  for (const std::filesystem::path& path : std::span(paths).subspan(1)) {
    if (!is_there(path)) continue;
    const Drive drive = Drive::open(path, access_of(options), options.words);
    BlockReader reader(options, drive);
    const IdentityCopies copies = reader.header();
    switch (copies.state) {
      case HeaderState::kValid:
        if (copies.header.place.store == own || reader.holds_nothing(copies.header.fingerprint)) break;
        throw ConfigError(fmt::format(
            "{} belongs to another store than {}, whose creation was cut off or whose beginning was emptied: "
            "bring that file back where it was emptied; else give another folder{}, or {}",
            path.string(), paths[0].string(), options.words->folders, options.words->start_over));
      case HeaderState::kBlank:
      case HeaderState::kDamaged:
        if (!reader.holds_nothing(copies.header.fingerprint)) reader.refusal().foreign();
        break;
      case HeaderState::kForeign:
        reader.refusal().foreign();
      case HeaderState::kOtherVersion:
        reader.refusal().version(copies.header.version);
      case HeaderState::kContradictory:
        reader.refusal().contradiction();
    }
  }
}

std::optional<OpenedDrives> open_drives(const StoreOptions& options, const StoreIdentity& identity) {
  const std::vector<std::filesystem::path> paths = store_paths(options, identity.rank);
  OpenedDrives opened;
  opened.drives.reserve(paths.size());
  std::optional<Drive> first_drive = open_first(options, paths);
  if (!first_drive) return std::nullopt;
  opened.drives.push_back(std::move(*first_drive));
  DrivePlace first;
  {
    BlockReader reader(options, opened.drives[0]);
    const std::optional<IdentityCopies> copies = check_first(reader, identity);
    if (!copies) return std::nullopt;
    first = copies->header.place;
    reader.add_damaged(*copies, 0, opened.damaged);
    if (first.weights.size() != paths.size()) reader.refusal().count(first, paths.size());
  }
  for (size_t i = 1; i < paths.size(); ++i) {
    opened.drives.push_back(open_further(options, paths[i], static_cast<int>(i), first));
    check_further(options, first, opened);
  }
  opened.weights = first.weights;
  return opened;
}

}  // namespace sluice
