// The bytes of a store's files, one a drive, all little-endian, every part at a multiple of 4096. The first drive's:
//
//   identity header            1 block of 4096: magic, version, what identifies the run, the start of the model's text;
//                              from byte 3584 on the store's number and its drives: their weights and folders
//   superblock 0, 1            1 block each; superblock i describes table area i
//   opening 0, 1               1 block each: generation numbers burnt by opening, and by whom; from byte 512 on of the
//                              one that the next opening replaces, once a trim of several drives has begun, its mark
//   identity header, again     1 block, the same bytes: opening takes the copy that is whole and mends the other
//   table area 0, 1            each round_up(sizeof TableHeader + 24 x records + 1 MiB of the caller's, 4096)
//   per chunk                  weights slot 0, weights slot 1, state slot 0, state slot 1: this drive's part of each
//   per scratch extent         this drive's part of it; how many there are, and of what sizes, is each run's own
//
// Every other drive's: both copies of its identity header where the first drive has them, nothing between, then its
// parts per chunk and per scratch extent. A record of record_layout's bytes is split over all drives, in their order,
// in proportion to weights that are fixed at creation and stand in every header (StoreLayout); so is a scratch extent.
//
// Every block ends its meaningful part with a CRC32C of that part, which lies within one 512-byte sector but for the
// identity header, which is written at creation, and of which a copy is written again only from a whole one. A table's
// CRC is in its superblock.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "swap/drive.h"
#include "swap/record_store.h"

namespace sluice {

constexpr int64_t kStoreBlockBytes = 4096;
constexpr int64_t kIdentityOffset[2] = {0, 5 * kStoreBlockBytes};  // of its copies, on every drive
constexpr int64_t kSuperblockOffset[2] = {1 * kStoreBlockBytes, 2 * kStoreBlockBytes};
constexpr int64_t kOpeningOffset[2] = {3 * kStoreBlockBytes, 4 * kStoreBlockBytes};
constexpr int64_t kTablesOffset = 6 * kStoreBlockBytes;  // and what other drives have of records
constexpr uint32_t kStoreVersion = 4;

// Memory for O_DIRECT: starts at a multiple of 4096. Move-only owner.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes);
  std::byte* data() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {memory_.get(), static_cast<size_t>(bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  int64_t bytes_ = 0;
};

// A record's extents, in the order of their bytes in memory. Without allocation.
struct Extents {
  std::array<Extent, kMaxDrives> list;
  size_t count = 0;
  std::span<const Extent> span() const { return std::span(list).first(count); }
};

// Where everything lies in the files, for one geometry, precision and weights of drives (one weight a drive, each from
// 1 to 65535). The first b_d of a record's n blocks of 4096 bytes are on drives up to d, where b_d is
// n * (sum of weights up to d) / (sum of all), rounded down: so the parts of any two records of a size are the same,
// and all drives end a transfer at the same time when the weights are their speeds.
class StoreLayout {
 public:
  StoreLayout(const Geometry& geometry, RecordFormat format, std::span<const uint32_t> weights,
              std::span<const int64_t> scratch_bytes = {});
  int drives() const { return static_cast<int>(file_bytes_.size()); }
  int64_t file_bytes(int drive) const { return file_bytes_[static_cast<size_t>(drive)]; }
  int64_t records_end(int drive) const { return records_end_[static_cast<size_t>(drive)]; }  // scratch begins there
  std::span<const int64_t> file_bytes() const { return file_bytes_; }
  static int64_t table_area_bytes(int64_t record_count);
  int64_t table_offset(int area) const { return kTablesOffset + area * table_area_bytes_; }
  int64_t table_area_bytes() const { return table_area_bytes_; }
  int64_t chunk_count() const { return static_cast<int64_t>(elements_.size()); }
  RecordLayout layout(RecordId record) const;
  Extents extents(RecordId record, int slot) const;
  // Of one byte of a record: its drive and offset there (of one byte).
  Extent place_of(RecordId record, int slot, int64_t byte) const;
  int scratch_count() const { return static_cast<int>(scratch_bytes_.size()); }
  int64_t scratch_bytes(int extent) const { return scratch_bytes_[static_cast<size_t>(extent)]; }
  Extents scratch_extents(int extent) const;
  static int64_t memory_bytes(const TableNeeds& needs);

 private:
  int64_t part_bytes(int64_t bytes, int drive) const;

  RecordFormat format_;
  std::vector<int64_t> weights_up_to_;    // by drive: its own and those before
  std::vector<int64_t> elements_;         // by chunk
  std::vector<int64_t> offsets_;          // by chunk, then by drive: of weights slot 0
  std::vector<int64_t> scratch_bytes_;    // by scratch extent
  std::vector<int64_t> scratch_offsets_;  // by scratch extent, then by drive
  std::vector<int64_t> records_end_;      // by drive
  std::vector<int64_t> file_bytes_;       // by drive
  int64_t table_area_bytes_;
};

// One record in a table on disk.
struct TableEntry {
  int64_t step = 0;  // of the commit that first covered this content
  uint32_t crc[kMaxPlanes] = {};
  uint32_t slot = 0;
};
static_assert(sizeof(TableEntry) == 24);

// A table area: this header, then its entries (chunk-major, weights before state), then the caller's bytes.
struct TableHeader {
  uint64_t magic = 0, generation = 0;
  int64_t record_count = 0, caller_bytes = 0;
  int64_t step = 0, applied_steps = 0, skipped_steps = 0, skipped_in_a_row = 0, data_position = 0;
  double loss_scale = 1;
  int64_t good_steps = 0, hysteresis_left = 0;
};
static_assert(sizeof(TableHeader) == 96);
constexpr int64_t table_payload_bytes(int64_t record_count, int64_t caller_bytes) {
  return static_cast<int64_t>(sizeof(TableHeader) + sizeof(TableEntry) * static_cast<uint64_t>(record_count)) +
         caller_bytes;
}
// Writes header and the caller's bytes around the entries, which are in place already; returns the CRC of it all.
uint32_t seal_table(std::span<std::byte> buffer, const StepState& state, uint64_t generation, int64_t record_count);
std::span<TableEntry> table_entries(std::span<std::byte> buffer, int64_t record_count);
// Whether a table has been written there, whole or not, and of which commit.
struct BegunTable {
  uint64_t generation = 0;
  int64_t step = 0;
};
std::optional<BegunTable> begun_table(std::span<const std::byte> block);
// Of a table whose CRC agrees. Throws CorruptionError where the header contradicts the store all the same.
StepState read_table_state(std::span<const std::byte> buffer, int64_t record_count);

struct Superblock {
  uint64_t magic = 0, generation = 0, fingerprint = 0;
  int64_t step = 0, table_offset = 0, table_bytes = 0;  // payload
  uint32_t table_crc = 0;
  uint32_t crc = 0;  // of all before
};
static_assert(sizeof(Superblock) == 56);
// Fills a whole block. One whose table_offset is not that of its own place is damaged. The superblock's magic and crc
// are set here.
void write_superblock(std::span<std::byte> block, Superblock superblock);
// In a superblock's place: its step was given up (RecordStore::open_step).
void write_given_up(std::span<std::byte> block, uint64_t fingerprint);

struct OpeningBlock {
  uint64_t magic = 0, generation = 0;  // numbers up to this one are used up
  uint32_t opener = 0;                 // StoreOptions::opener
  uint32_t crc = 0;
};
// Fills a whole block; sets magic and crc.
void write_opening(std::span<std::byte> block, OpeningBlock opening);

// What a trim leaves before it removes a drive's file: the drives from this one on are gone, or are going.
struct TrimMark {
  uint64_t magic = 0, store = 0;  // DrivePlace::store
  int32_t from_drive = 0;
  uint32_t crc = 0;  // of all before
};
// Into a block of an opening, whose own bytes stay as they are: an opening of a store that is whole takes it away.
// Sets magic and crc.
void write_trim_mark(std::span<std::byte> block, TrimMark mark);
std::optional<TrimMark> read_trim_mark(std::span<const std::byte> block);  // nullopt: there is none

bool is_blank(std::span<const std::byte> block);                         // zeros
enum class BlockState : uint8_t { kValid, kBlank, kGivenUp, kDamaged };  // kBlank: zeros, never written
BlockState read_superblock(std::span<const std::byte> block, uint64_t fingerprint, Superblock& into);
// All zero where it is not valid.
BlockState read_opening(std::span<const std::byte> block, OpeningBlock& into);
// Of the two, by their generations: that which the next opening replaces.
constexpr int older_opening(uint64_t generation_0, uint64_t generation_1) {
  return generation_0 > generation_1 ? 1 : 0;
}

// The identity of a store with this geometry.
StoreIdentity identity_with(const Geometry& geometry, StoreIdentity identity);
// The identity, hashed: what a superblock must agree with.
uint64_t fingerprint_of(const StoreIdentity& identity);
// One file's part in a store of several drives.
struct DrivePlace {
  uint64_t store = 0;  // a number drawn at creation: tells the files of one store from those of another
  int drive = 0;
  std::vector<uint32_t> weights;     // of all drives
  std::vector<std::string> folders;  // of all drives as they were called at creation, for messages; may be cut short
};
void write_identity(std::span<std::byte> block, const StoreIdentity& identity, const DrivePlace& place);
enum class HeaderState : uint8_t { kValid, kBlank, kForeign, kDamaged, kOtherVersion, kContradictory };
struct IdentityHeader {
  StoreIdentity identity;  // model: the first kKeptModelBytes of the text
  DrivePlace place;
  uint64_t fingerprint = 0, model_hash = 0, model_bytes = 0;
  uint32_t version = 0;
};
// Of one copy: any state but kContradictory.
HeaderState read_identity(std::span<const std::byte> block, IdentityHeader& into);
// What the two copies of a file's header tell together. kValid: one is whole, and the other one is the same or damaged.
// kContradictory: both are whole, and they differ. A file none of whose copies is whole is never mended.
struct IdentityCopies {
  HeaderState state = HeaderState::kBlank;
  IdentityHeader header;       // where kValid; where kOtherVersion its version
  std::optional<int> damaged;  // where kValid: the copy to mend
};
using CopyBlocks = std::array<std::span<const std::byte>, 2>;  // an empty one could not be read
IdentityCopies read_identities(const CopyBlocks& copies);
// One line for each difference; empty: the same.
std::vector<std::string> differences(const IdentityHeader& store, const StoreIdentity& run);

}  // namespace sluice
