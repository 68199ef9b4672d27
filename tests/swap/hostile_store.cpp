#include "tests/swap/hostile_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/bytes.h"
#include "core/checksum.h"
#include "core/errors.h"
#include "swap/store_format.h"

namespace sluice {
namespace {

// Places, in the order of Place's array.
constexpr size_t kIdentity = 0, kSuperblocks = 1, kOpenings = 3, kTables = 5;
constexpr unsigned kResealIdentity = 1, kResealSuperblocks = 2, kResealOpenings = 4, kResealTables = 8, kBlank = 16,
                   kTrain = 32;
constexpr int64_t kBlockBytes = kStoreBlockBytes;

struct TakenBack {
  DriveImage& image;
  ~TakenBack() { image.undo(); }
};

template <typename Value>
Value value_at(std::span<const std::byte> bytes, size_t at) {
  Value value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

HostileStore::HostileStore() {
  drives_->record = RecordedDrives::Record::kNo;
  {
    auto store = RecordStore::create(run_.geometry, run_.identity, options());
    for (int64_t step = 0; step < 3; ++step) write_step(*store, run_, step);
  }
  places_[kIdentity] = {.offset = kIdentityOffset};
  for (size_t i : {0, 1}) {
    places_[kSuperblocks + i] = {.offset = kSuperblockOffset[i]};
    places_[kOpenings + i] = {.offset = kOpeningOffset[i]};
    places_[kTables + i] = {.offset = kTablesOffset + static_cast<int64_t>(i) * table_area_bytes(), .bytes = 700};
  }
  for (size_t i = 0; i < kTables; ++i) {
    places_[i].crc_offset = find_crc(places_[i].offset);
    places_[i].bytes = static_cast<int64_t>(places_[i].crc_offset + sizeof(uint32_t));
  }
  drives_->images[0].mark();
}

int64_t HostileStore::table_area_bytes() const {
  const auto records = static_cast<int64_t>(run_.records().size());
  return round_up(table_payload_bytes(records, kMaxCallerBytes), kBlockBytes);
}

// Where a block's checksum of all that stands before it lies; the end of the block where it was never written.
size_t HostileStore::find_crc(int64_t offset) const {
  AlignedBuffer block(kBlockBytes);
  drives_->images[0].read(offset, block.span());
  for (size_t at = 16; at + 4 <= static_cast<size_t>(kBlockBytes); at += 4) {
    const auto crc = value_at<uint32_t>(block.span(), at);
    if (crc != 0 && crc == crc32c(0, block.span().first(at))) return at;
  }
  return sizeof(Opening) - sizeof(uint32_t);
}

void HostileStore::patch(std::span<const std::byte> patches) {
  AlignedBuffer block(kBlockBytes);
  while (patches.size() > 4) {
    const Place& place = places_[std::to_integer<size_t>(patches[0]) % std::size(places_)];
    const auto at = value_at<uint16_t>(patches, 1) % static_cast<size_t>(place.bytes);
    const size_t count =
        std::min({std::to_integer<size_t>(patches[3]), patches.size() - 4, static_cast<size_t>(kBlockBytes) - at});
    drives_->images[0].read(place.offset, block.span());
    std::copy_n(patches.begin() + 4, count, block.data() + at);
    drives_->images[0].write(place.offset, block.span());
    patches = patches.subspan(4 + count);
  }
}

void HostileStore::reseal(unsigned flags) {
  if ((flags & kResealTables) != 0) reseal_tables();
  AlignedBuffer block(kBlockBytes);
  for (size_t i = 0; i < kTables; ++i) {
    const unsigned flag = i == kIdentity ? kResealIdentity : i < kOpenings ? kResealSuperblocks : kResealOpenings;
    if ((flags & flag) == 0) continue;
    drives_->images[0].read(places_[i].offset, block.span());
    const uint32_t crc = crc32c(0, block.span().first(places_[i].crc_offset));
    std::memcpy(block.data() + places_[i].crc_offset, &crc, sizeof crc);
    drives_->images[0].write(places_[i].offset, block.span());
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
    drives_->images[0].read(places_[kTables + i].offset, table.span());
    superblock.table_crc = crc32c(0, table.span().first(static_cast<size_t>(superblock.table_bytes)));
    std::memcpy(block.data(), &superblock, sizeof superblock);
    drives_->images[0].write(kSuperblockOffset[i], block.span());
  }
}

StoreOptions HostileStore::options() {
  return {.folder = folder_.path(), .make_queue = recorded_queue_factory(drives_), .queue = {.depth = 8}};
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
  const TakenBack taken_back{drives_->images[0]};
  const auto flags = input.empty() ? 0u : std::to_integer<unsigned>(input[0]);
  AlignedBuffer block(kBlockBytes);
  if ((flags & kBlank) != 0) {
    for (const Place& place : places_) drives_->images[0].write(place.offset, block.span());
  }
  if (!input.empty()) patch(input.subspan(1));
  reseal(flags);
  // As a resuming run does, before it knows its own geometry.
  drives_->images[0].read(kIdentityOffset, block.span());
  IdentityHeader header;
  try {
    if (read_identity(block.span(), header) == HeaderState::kValid) {
      differences(header, run_.identity);
      Geometry(std::vector<PartitionSpec>{{"all", {{"a", {4096}}}}}, header.identity.chunk_elements);
    }
    return open((flags & kTrain) != 0 ? Then::kTrain : Then::kNothing);
  } catch (const ConfigError&) {
    return Outcome::kRefused;
  } catch (const CorruptionError&) {
    return Outcome::kRefused;
  }
}

}  // namespace sluice
