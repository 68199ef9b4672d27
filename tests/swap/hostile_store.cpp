#include "tests/swap/hostile_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "core/bytes.h"
#include "core/checksum.h"
#include "core/errors.h"
#include "swap/store_format.h"

namespace sluice {
namespace {

constexpr unsigned kResealIdentity = 1, kResealSuperblocks = 2, kResealOpenings = 4, kResealTables = 8, kBlank = 16,
                   kTrain = 32;
constexpr int64_t kBlockBytes = kStoreBlockBytes;
constexpr size_t kDrivesOffset = 3584;  // in an identity header: what swap/store_format.h says of several drives

struct TakenBack {
  std::vector<DriveImage>& images;
  ~TakenBack() {
    for (DriveImage& image : images) image.undo();
  }
};

template <typename Value>
Value value_at(std::span<const std::byte> bytes, size_t at) {
  Value value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

HostileStore::HostileStore(int drives) : drive_count_(drives) {
  drives_->record = RecordedDrives::Record::kNo;
  {
    auto store = RecordStore::create(run_.geometry, run_.identity, options());
    for (int64_t step = 0; step < 3; ++step) write_step(*store, run_, step);
  }
  const std::vector<int64_t> both(std::begin(kIdentityOffset), std::end(kIdentityOffset));
  add_sealed({.offsets = both, .reseal = kResealIdentity});
  for (const int64_t offset : kSuperblockOffset) add_sealed({.offsets = {offset}, .reseal = kResealSuperblocks});
  for (const int64_t offset : kOpeningOffset) add_sealed({.offsets = {offset}, .reseal = kResealOpenings});
  for (const int64_t area : {0, 1})
    places_.push_back({.offsets = {kTablesOffset + area * table_area_bytes()}, .bytes = 700});
  for (size_t drive = 0; drives > 1 && drive < static_cast<size_t>(drives); ++drive) {
    if (drive > 0) add_sealed({.drive = drive, .offsets = both, .reseal = kResealIdentity});
    add_sealed({.drive = drive, .offsets = both, .first = kDrivesOffset, .reseal = kResealIdentity});
  }
  for (size_t drive = 0; drive < static_cast<size_t>(drives); ++drive) {
    for (const int64_t copy : both) {
      add_sealed({.drive = drive, .offsets = {copy}, .reseal = kResealIdentity});
      add_sealed({.drive = drive, .offsets = {copy}, .first = kDrivesOffset, .reseal = kResealIdentity});
    }
  }
  for (DriveImage& image : drives_->images) image.mark();
}

int64_t HostileStore::table_area_bytes() const {
  const auto records = static_cast<int64_t>(run_.records().size());
  return round_up(table_payload_bytes(records, kMaxCallerBytes), kBlockBytes);
}

// What ends with a checksum of all of it; where that is not found the place was never written and is an opening's.
void HostileStore::add_sealed(Place place) {
  AlignedBuffer block(kBlockBytes);
  drives_->images[place.drive].read(place.offsets[0], block.span());
  place.crc_offset = place.first + sizeof(OpeningBlock) - sizeof(uint32_t);
  for (size_t at = place.first + 16; at + 4 <= static_cast<size_t>(kBlockBytes); at += 4) {
    const auto crc = value_at<uint32_t>(block.span(), at);
    if (crc == 0 || crc != crc32c(0, block.span().subspan(place.first, at - place.first))) continue;
    place.crc_offset = at;
    break;
  }
  place.bytes = place.crc_offset + sizeof(uint32_t) - place.first;
  places_.push_back(place);
}

void HostileStore::patch(std::span<const std::byte> patches) {
  AlignedBuffer block(kBlockBytes);
  while (patches.size() > 4) {
    const Place& place = places_[std::to_integer<size_t>(patches[0]) % places_.size()];
    const size_t at = place.first + value_at<uint16_t>(patches, 1) % place.bytes;
    const size_t count =
        std::min({std::to_integer<size_t>(patches[3]), patches.size() - 4, static_cast<size_t>(kBlockBytes) - at});
    DriveImage& image = drives_->images[place.drive];
    for (const int64_t offset : place.offsets) {
      image.read(offset, block.span());
      std::copy_n(patches.begin() + 4, count, block.data() + at);
      image.write(offset, block.span());
    }
    patches = patches.subspan(4 + count);
  }
}

void HostileStore::reseal(unsigned flags) {
  if ((flags & kResealTables) != 0) reseal_tables();
  AlignedBuffer block(kBlockBytes);
  for (const Place& place : places_) {
    if ((flags & place.reseal) == 0) continue;
    DriveImage& image = drives_->images[place.drive];
    for (const int64_t offset : place.offsets) {
      image.read(offset, block.span());
      const uint32_t crc = crc32c(0, block.span().subspan(place.first, place.crc_offset - place.first));
      std::memcpy(block.data() + place.crc_offset, &crc, sizeof crc);
      image.write(offset, block.span());
    }
  }
}

// Each superblock gets the checksum of the table that it says it has, as long as that lies in the area.
void HostileStore::reseal_tables() {
  AlignedBuffer block(kBlockBytes);
  for (size_t i : {0, 1}) {
    drives_->images[0].read(kSuperblockOffset[i], block.span());
    auto superblock = value_at<Superblock>(block.span(), 0);
    if (superblock.table_bytes < 0 || superblock.table_bytes > table_area_bytes()) continue;
    const AlignedBuffer table(superblock.table_bytes / kBlockBytes * kBlockBytes + kBlockBytes);
    drives_->images[0].read(kTablesOffset + static_cast<int64_t>(i) * table_area_bytes(), table.span());
    superblock.table_crc = crc32c(0, table.span().first(static_cast<size_t>(superblock.table_bytes)));
    std::memcpy(block.data(), &superblock, sizeof superblock);
    drives_->images[0].write(kSuperblockOffset[i], block.span());
  }
}

StoreOptions HostileStore::options() {
  StoreOptions options{.folder = folder(0), .make_queue = recorded_queue_factory(drives_), .queue = {.depth = 8}};
  for (int drive = 1; drive < drive_count_; ++drive) options.more_folders.push_back(folder(drive));
  for (int drive = 0; drive < drive_count_; ++drive) options.drive_weights.push_back(static_cast<uint32_t>(drive) + 1);
  return options;
}

// What opened may hold damaged records, which are refused one by one, and takes a step all the same.
void HostileStore::use(RecordStore& store) {
  for (RecordId record : run_.records()) {
    try {
      read_verified(store, run_, record);
    } catch (const CorruptionError&) {
    }
  }
  const std::vector<int64_t> steps = store.openable_steps();
  if (steps.size() > 1) {
    try {
      store.open_step(steps.back());
    } catch (const CorruptionError&) {
    }
  }
  write_step(store, run_, 7);
}

HostileStore::Outcome HostileStore::open(Then then) {
  auto store = RecordStore::open(run_.geometry, run_.identity, options());
  if (!store) return Outcome::kNothingThere;
  if (then == Then::kNothing) return Outcome::kOpened;
  use(*store);
  store.reset();
  store = RecordStore::open(run_.geometry, run_.identity, options());
  if (!store || store->committed().step != 7) throw std::runtime_error("the step committed last does not open");
  return Outcome::kOpened;
}

HostileStore::Outcome HostileStore::look(std::span<const std::byte> input) {
  const TakenBack taken_back{drives_->images};
  const auto flags = input.empty() ? 0u : std::to_integer<unsigned>(input[0]);
  AlignedBuffer block(kBlockBytes);
  if ((flags & kBlank) != 0) {
    for (const Place& place : places_) {
      for (const int64_t offset : place.offsets) drives_->images[place.drive].write(offset, block.span());
    }
  }
  if (!input.empty()) patch(input.subspan(1));
  reseal(flags);
  // As a resuming run does, before it knows its own geometry.
  const std::array copies = {AlignedBuffer(kBlockBytes), AlignedBuffer(kBlockBytes)};
  for (size_t i : {0, 1}) drives_->images[0].read(kIdentityOffset[i], copies[i].span());
  try {
    const IdentityCopies found = read_identities({copies[0].span(), copies[1].span()});
    if (found.state == HeaderState::kValid) {
      differences(found.header, run_.identity);
      Geometry(std::vector<PartitionSpec>{{"all", {{"a", {4096}}}}}, found.header.identity.chunk_elements);
    }
    return open((flags & kTrain) != 0 ? Then::kTrain : Then::kNothing);
  } catch (const ConfigError&) {
    return Outcome::kRefused;
  } catch (const CorruptionError&) {
    return Outcome::kRefused;
  }
}

}  // namespace sluice
