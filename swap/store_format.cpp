#include "swap/store_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "core/bytes.h"
#include "core/checksum.h"
#include "core/random.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "the store is little-endian");

constexpr uint64_t kIdentityMagic = 0x31306469'65636c73;    // "slceid01"
constexpr uint64_t kSuperblockMagic = 0x31306273'65636c73;  // "slcesb01"
constexpr uint64_t kGivenUpMagic = 0x31307567'65636c73;     // "slcegu01"
constexpr uint64_t kTableMagic = 0x31306274'65636c73;       // "slcetb01"
constexpr uint64_t kOpeningMagic = 0x31306f70'65636c73;     // "slcepo01"
constexpr uint64_t kTrimMagic = 0x31307274'65636c73;        // "slcetr01"
constexpr size_t kSectorBytes = 512;                        // what a drive writes whole or not at all
constexpr std::align_val_t kBufferAlignment{4096};

struct IdentityBlock {
  uint64_t magic = 0;
  uint32_t version = 0, precision = 0;
  int64_t chunk_elements = 0, chunk_count = 0;
  int32_t rank = 0, world_size = 0, drive = 0, drive_count = 0;
  uint64_t fingerprint = 0, model_hash = 0, model_bytes = 0;
  char model[kKeptModelBytes] = {};
  uint32_t optimizer = 0, moments = 0;
  uint64_t chunk_sizes_hash = 0;
  uint32_t crc = 0;  // of all before
};
struct DrivesBlock {
  uint64_t store = 0;
  uint32_t weights[kMaxDrives] = {};
  char folders[432] = {};  // each ended by a zero
  uint32_t reserved = 0;
  uint32_t crc = 0;  // of all before
};
constexpr size_t kDrivesOffset = 3584;
constexpr size_t kIdentityEnd = offsetof(IdentityBlock, crc) + sizeof(uint32_t);  // zeros from here to the drives
static_assert(sizeof(IdentityBlock) <= kDrivesOffset && kDrivesOffset + sizeof(DrivesBlock) <= kStoreBlockBytes);

template <typename Block>
uint32_t crc_of(const Block& block) {
  return crc32c(0, std::as_bytes(std::span(&block, 1)).first(offsetof(Block, crc)));
}

template <typename Block>
void put(std::span<std::byte> into, Block block) {
  block.crc = crc_of(block);
  std::memset(into.data(), 0, into.size());
  std::memcpy(into.data(), &block, offsetof(Block, crc) + sizeof block.crc);  // no padding behind it
}

template <typename Block>
Block get(std::span<const std::byte> from) {
  Block block;
  std::memcpy(&block, from.data(), sizeof block);
  return block;
}

DrivesBlock drives_block(const DrivePlace& place) {
  DrivesBlock block{.store = place.store};
  std::copy(place.weights.begin(), place.weights.end(), std::begin(block.weights));
  size_t at = 0;
  for (const std::string& folder : place.folders) {
    if (at + folder.size() + 1 > sizeof block.folders) break;
    std::memcpy(block.folders + at, folder.c_str(), folder.size() + 1);
    at += folder.size() + 1;
  }
  return block;
}

// False: these are no drives that anybody wrote.
bool read_drives(const DrivesBlock& block, size_t count, DrivePlace& into) {
  const std::span weights = std::span(block.weights).first(count);
  if (!std::ranges::all_of(weights, [](uint32_t weight) { return weight > 0 && weight <= UINT16_MAX; })) return false;
  into.store = block.store;
  into.weights.assign(weights.begin(), weights.end());
  const std::string_view folders(block.folders, sizeof block.folders);
  for (size_t at = 0; at < folders.size() && folders[at] != '\0';) {
    const size_t end = std::min(folders.find('\0', at), folders.size() - 1);
    into.folders.emplace_back(folders.substr(at, end - at));
    at = end + 1;
  }
  return true;
}

// An identity header as it was written.
bool is_sealed(std::span<const std::byte> block) {
  const auto header = get<IdentityBlock>(block);
  const auto drives = get<DrivesBlock>(block.subspan(kDrivesOffset));
  const std::span<const std::byte> between = block.first(kDrivesOffset).subspan(kIdentityEnd);
  return header.magic == kIdentityMagic && header.crc == crc_of(header) && drives.crc == crc_of(drives) &&
         is_blank(between);
}

// Adam's state is AdamW's: the store does not tell which of the two the run's configuration names.
std::string_view optimizers_with_state_of(Optimizer optimizer) {
  return optimizer == Optimizer::kAdam ? "Adam or AdamW" : name_of(optimizer);
}

// The first line of the model's text in which two texts differ, as far as the header keeps it.
std::string model_difference(const IdentityHeader& store, const StoreIdentity& run) {
  const std::string& a = store.identity.model;
  const std::string& b = run.model;
  const auto line_at = [](const std::string& text, size_t at) {
    const size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const size_t first = before == std::string::npos ? 0 : before + 1;
    return text.substr(first, std::min(text.find('\n', first) - first, size_t{120}));
  };
  const size_t common = std::min(a.size(), b.size());
  const auto at = static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(common), b.begin()).first - a.begin());
  if (at == common && store.model_bytes > a.size())
    return "model: the store's is another one (beyond its first 3 KiB of text)";
  return fmt::format("model: the store has \"{}\" where this run has \"{}\"", line_at(a, at), line_at(b, at));
}

}  // namespace

bool is_blank(std::span<const std::byte> block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

AlignedBuffer::AlignedBuffer(int64_t bytes)
    : memory_(static_cast<std::byte*>(::operator new[](static_cast<size_t>(bytes), kBufferAlignment))), bytes_(bytes) {
  std::memset(memory_.get(), 0, static_cast<size_t>(bytes));
}

void AlignedBuffer::Free::operator()(std::byte* memory) const { ::operator delete[](memory, kBufferAlignment); }

StoreLayout::StoreLayout(const Geometry& geometry, RecordFormat format, std::span<const uint32_t> weights,
                         std::span<const int64_t> scratch_bytes)
    : format_(format), scratch_bytes_(scratch_bytes.begin(), scratch_bytes.end()) {
  SLUICE_CHECK(!weights.empty() && weights.size() <= kMaxDrives, "a store has 1 to 16 drives");
  for (const uint32_t weight : weights) {
    SLUICE_CHECK(weight > 0 && weight <= UINT16_MAX, "a drive's weight is 1 to 65535");
    weights_up_to_.push_back(weight + (weights_up_to_.empty() ? 0 : weights_up_to_.back()));
  }
  const auto records = static_cast<int64_t>(2 * geometry.chunks().size());
  table_area_bytes_ = table_area_bytes(records);
  file_bytes_.assign(weights.size(), kTablesOffset);
  file_bytes_[0] = table_offset(2);
  elements_.reserve(geometry.chunks().size());
  offsets_.reserve(geometry.chunks().size() * weights.size());
  for (const Chunk& chunk : geometry.chunks()) {
    elements_.push_back(chunk.elements);
    for (int drive = 0; drive < drives(); ++drive) {
      int64_t& end = file_bytes_[static_cast<size_t>(drive)];
      offsets_.push_back(end);
      for (Group group : {Group::kWeights, Group::kState})
        end += 2 * part_bytes(record_bytes(format, group, chunk.elements), drive);
    }
  }
  records_end_ = file_bytes_;
  scratch_offsets_.reserve(scratch_bytes_.size() * weights.size());
  for (const int64_t bytes : scratch_bytes_) {
    SLUICE_CHECK(bytes > 0 && bytes % kStoreBlockBytes == 0, "a scratch extent's bytes are a multiple of 4096");
    for (int drive = 0; drive < drives(); ++drive) {
      int64_t& end = file_bytes_[static_cast<size_t>(drive)];
      scratch_offsets_.push_back(end);
      end += part_bytes(bytes, drive);
    }
  }
}

int64_t StoreLayout::table_area_bytes(int64_t record_count) {
  return round_up(table_payload_bytes(record_count, kMaxCallerBytes), kStoreBlockBytes);
}

int64_t StoreLayout::memory_bytes(const TableNeeds& needs) {
  return static_cast<int64_t>(sizeof(int64_t)) *
         ((needs.chunk_count + needs.scratch_count) * (1 + needs.drives) + 3 * needs.drives);
}

// Records and scratch extents are whole numbers of blocks.
int64_t StoreLayout::part_bytes(int64_t bytes, int drive) const {
  const int64_t blocks = bytes / kStoreBlockBytes;
  const auto up_to = [&](int d) {
    return d < 0 ? 0 : blocks * weights_up_to_[static_cast<size_t>(d)] / weights_up_to_.back();
  };
  return (up_to(drive) - up_to(drive - 1)) * kStoreBlockBytes;
}

RecordLayout StoreLayout::layout(RecordId record) const {
  return record_layout(format_, record.group, elements_[record.chunk]);
}

Extents StoreLayout::extents(RecordId record, int slot) const {
  const int64_t bytes = layout(record).bytes;
  const int64_t weights_bytes = record_bytes(format_, Group::kWeights, elements_[record.chunk]);
  Extents extents;
  for (int drive = 0; drive < drives(); ++drive) {
    const int64_t part = part_bytes(bytes, drive);
    if (part == 0) continue;
    int64_t offset = offsets_[record.chunk * file_bytes_.size() + static_cast<size_t>(drive)] + slot * part;
    if (record.group == Group::kState) offset += 2 * part_bytes(weights_bytes, drive);
    extents.list[extents.count++] = {.drive = drive, .offset = offset, .bytes = part};
  }
  return extents;
}

Extents StoreLayout::scratch_extents(int extent) const {
  Extents extents;
  for (int drive = 0; drive < drives(); ++drive) {
    const int64_t part = part_bytes(scratch_bytes(extent), drive);
    if (part == 0) continue;
    const size_t at = static_cast<size_t>(extent) * file_bytes_.size() + static_cast<size_t>(drive);
    extents.list[extents.count++] = {.drive = drive, .offset = scratch_offsets_[at], .bytes = part};
  }
  return extents;
}

Extent StoreLayout::place_of(RecordId record, int slot, int64_t byte) const {
  const Extents all = extents(record, slot);
  for (const Extent& extent : all.span()) {
    if (byte < extent.bytes) return {.drive = extent.drive, .offset = extent.offset + byte, .bytes = 1};
    byte -= extent.bytes;
  }
  check_failed("byte < layout.bytes", __FILE__, __LINE__, "a byte beyond its record");
}

std::span<TableEntry> table_entries(std::span<std::byte> buffer, int64_t record_count) {
  SLUICE_CHECK(static_cast<int64_t>(buffer.size()) >= table_payload_bytes(record_count, 0), "table buffer too short");
  return {reinterpret_cast<TableEntry*>(buffer.data() + sizeof(TableHeader)), static_cast<size_t>(record_count)};
}

namespace {

// All of a StepState but the caller's bytes, in the table's header and in memory.
template <class Header, class State, class Use>
void for_each_number(Header& header, State& state, const Use& use) {
  use(header.step, state.step);
  use(header.applied_steps, state.applied_steps);
  use(header.skipped_steps, state.skipped_steps);
  use(header.skipped_in_a_row, state.skipped_in_a_row);
  use(header.data_position, state.data_position);
  use(header.loss_scale, state.loss_scale);
  use(header.good_steps, state.good_steps);
  use(header.hysteresis_left, state.hysteresis_left);
}

}  // namespace

uint32_t seal_table(std::span<std::byte> buffer, const StepState& state, uint64_t generation, int64_t record_count) {
  TableHeader header{.magic = kTableMagic,
                     .generation = generation,
                     .record_count = record_count,
                     .caller_bytes = static_cast<int64_t>(state.caller.size())};
  for_each_number(header, state, [](auto& in_table, auto& in_state) { in_table = in_state; });
  const auto payload = static_cast<size_t>(table_payload_bytes(record_count, header.caller_bytes));
  SLUICE_CHECK(buffer.size() >= payload, "table buffer too short");
  std::memcpy(buffer.data(), &header, sizeof header);
  if (!state.caller.empty()) {
    std::memcpy(buffer.data() + table_payload_bytes(record_count, 0), state.caller.data(), state.caller.size());
  }
  std::memset(buffer.data() + payload, 0, buffer.size() - payload);
  return crc32c(0, buffer.first(payload));
}

std::optional<BegunTable> begun_table(std::span<const std::byte> block) {
  const auto header = get<TableHeader>(block);
  if (header.magic != kTableMagic) return std::nullopt;
  return BegunTable{header.generation, header.step};
}

StepState read_table_state(std::span<const std::byte> buffer, int64_t record_count) {
  const auto header = get<TableHeader>(buffer);
  if (header.magic != kTableMagic || header.record_count != record_count || header.caller_bytes < 0 ||
      header.caller_bytes > kMaxCallerBytes ||
      table_payload_bytes(record_count, header.caller_bytes) > static_cast<int64_t>(buffer.size())) {
    throw CorruptionError(
        fmt::format("a table of {} records where {} were expected", header.record_count, record_count));
  }
  StepState state;
  for_each_number(header, state, [](auto& in_table, auto& in_state) { in_state = in_table; });
  const auto caller = buffer.subspan(static_cast<size_t>(table_payload_bytes(record_count, 0)));
  state.caller.assign(caller.begin(), caller.begin() + header.caller_bytes);
  return state;
}

void write_superblock(std::span<std::byte> block, Superblock superblock) {
  superblock.magic = kSuperblockMagic;
  put(block, superblock);
}

void write_given_up(std::span<std::byte> block, uint64_t fingerprint) {
  put(block, Superblock{.magic = kGivenUpMagic, .fingerprint = fingerprint});
}

void write_opening(std::span<std::byte> block, OpeningBlock opening) {
  opening.magic = kOpeningMagic;
  put(block, opening);
}

// A sector of its own: cut off, it leaves the opening whole.
void write_trim_mark(std::span<std::byte> block, TrimMark mark) {
  mark.magic = kTrimMagic;
  put(block.subspan(kSectorBytes, kSectorBytes), mark);
}

std::optional<TrimMark> read_trim_mark(std::span<const std::byte> block) {
  const auto mark = get<TrimMark>(block.subspan(kSectorBytes));
  return mark.magic == kTrimMagic && mark.crc == crc_of(mark) ? std::optional(mark) : std::nullopt;
}

BlockState read_superblock(std::span<const std::byte> block, uint64_t fingerprint, Superblock& into) {
  into = get<Superblock>(block);
  const bool is_own = into.crc == crc_of(into) && into.fingerprint == fingerprint;
  if (is_own && into.magic == kSuperblockMagic) return BlockState::kValid;
  if (is_own && into.magic == kGivenUpMagic) return BlockState::kGivenUp;
  return is_blank(block) ? BlockState::kBlank : BlockState::kDamaged;
}

BlockState read_opening(std::span<const std::byte> block, OpeningBlock& into) {
  into = get<OpeningBlock>(block);
  if (into.magic == kOpeningMagic && into.crc == crc_of(into)) return BlockState::kValid;
  into = {};
  return is_blank(block) ? BlockState::kBlank : BlockState::kDamaged;
}

namespace {

std::string planes_text(RecordFormat format) {
  return fmt::format("{} {} {}", name_of(format.precision), name_of(format.optimizer), name_of(format.moments));
}

}  // namespace

// Where every record lies follows from them.
StoreIdentity identity_with(const Geometry& geometry, StoreIdentity identity) {
  identity.chunk_sizes_hash = 0;
  for (const Chunk& chunk : geometry.chunks()) {
    identity.chunk_sizes_hash = stream_of(fmt::format("{}|{}", identity.chunk_sizes_hash, chunk.elements));
  }
  return identity;
}

uint64_t fingerprint_of(const StoreIdentity& identity) {
  return stream_of(fmt::format("{}|{}|{}|{}|{}|{}|{}", identity.model, planes_text(identity.format()),
                               identity.chunk_elements, identity.chunk_count, identity.chunk_sizes_hash, identity.rank,
                               identity.world_size));
}

void write_identity(std::span<std::byte> block, const StoreIdentity& identity, const DrivePlace& place) {
  IdentityBlock header{.magic = kIdentityMagic,
                       .version = kStoreVersion,
                       .precision = static_cast<uint32_t>(identity.precision),
                       .chunk_elements = identity.chunk_elements,
                       .chunk_count = identity.chunk_count,
                       .rank = identity.rank,
                       .world_size = identity.world_size,
                       .drive = place.drive,
                       .drive_count = static_cast<int32_t>(place.weights.size()),
                       .fingerprint = fingerprint_of(identity),
                       .model_hash = stream_of(identity.model),
                       .model_bytes = identity.model.size(),
                       .optimizer = static_cast<uint32_t>(identity.optimizer),
                       .moments = static_cast<uint32_t>(identity.moments),
                       .chunk_sizes_hash = identity.chunk_sizes_hash};
  std::memcpy(header.model, identity.model.data(), std::min(identity.model.size(), sizeof header.model));
  put(block, header);
  put(block.subspan(kDrivesOffset), drives_block(place));
}

HeaderState read_identity(std::span<const std::byte> block, IdentityHeader& into) {
  const auto header = get<IdentityBlock>(block);
  if (header.magic != kIdentityMagic) {
    // A write that was cut off may have left later sectors without the first; the last one has a checksum of its own.
    const std::span<const std::byte> last = block.subspan(kDrivesOffset);
    const auto drives = get<DrivesBlock>(last);
    const bool cut_off = is_blank(block.first(kSectorBytes)) && (is_blank(last) || drives.crc == crc_of(drives));
    return cut_off ? HeaderState::kBlank : HeaderState::kForeign;
  }
  into.version = header.version;
  if (header.version != kStoreVersion) return HeaderState::kOtherVersion;
  if (!is_sealed(block)) return HeaderState::kDamaged;
  if (header.drive_count < 1 || header.drive_count > kMaxDrives || header.drive < 0 ||
      header.drive >= header.drive_count || header.precision > static_cast<uint32_t>(Precision::kFp32) ||
      header.optimizer > static_cast<uint32_t>(Optimizer::kSgd) ||
      header.moments > static_cast<uint32_t>(DType::kFp32) || header.moments == static_cast<uint32_t>(DType::kFp16)) {
    return HeaderState::kDamaged;
  }
  into.fingerprint = header.fingerprint;
  into.model_hash = header.model_hash;
  into.model_bytes = header.model_bytes;
  into.identity = {.model = std::string(header.model, std::min(header.model_bytes, sizeof header.model)),
                   .precision = static_cast<Precision>(header.precision),
                   .optimizer = static_cast<Optimizer>(header.optimizer),
                   .moments = static_cast<DType>(header.moments),
                   .chunk_elements = header.chunk_elements,
                   .chunk_count = header.chunk_count,
                   .rank = header.rank,
                   .world_size = header.world_size,
                   .chunk_sizes_hash = header.chunk_sizes_hash};
  into.place = {.store = 0, .drive = header.drive, .weights = {1}, .folders = {}};
  const auto drives = get<DrivesBlock>(block.subspan(kDrivesOffset));
  const bool known = read_drives(drives, static_cast<size_t>(header.drive_count), into.place);
  return known ? HeaderState::kValid : HeaderState::kDamaged;
}

// Damage leaves no checksums that agree: where both copies have those and differ, they are of two stores.
IdentityCopies read_identities(const CopyBlocks& copies) {
  std::array<HeaderState, 2> states{};
  std::array<IdentityHeader, 2> headers;
  for (size_t i : {0, 1}) {
    states[i] = copies[i].empty() ? HeaderState::kDamaged : read_identity(copies[i], headers[i]);
  }
  for (const HeaderState state :
       {HeaderState::kValid, HeaderState::kOtherVersion, HeaderState::kDamaged, HeaderState::kForeign}) {
    const auto found = static_cast<size_t>(std::ranges::find(states, state) - states.begin());
    if (found == states.size()) continue;
    IdentityCopies both{.state = state, .header = headers[found], .damaged = {}};
    const std::span<const std::byte> other = copies[1 - found];
    if (state != HeaderState::kValid || std::ranges::equal(copies[found], other)) return both;
    if (!other.empty() && is_sealed(other)) return {.state = HeaderState::kContradictory, .header = {}, .damaged = {}};
    both.damaged = static_cast<int>(1 - found);
    return both;
  }
  return {};
}

std::vector<std::string> differences(const IdentityHeader& store, const StoreIdentity& run) {
  std::vector<std::string> found;
  const auto compare = [&](const char* what, const auto& theirs, const auto& ours) {
    if (theirs != ours) found.push_back(fmt::format("{}: the store has {}, this run {}", what, theirs, ours));
  };
  if (store.model_hash != stream_of(run.model)) found.push_back(model_difference(store, run));
  compare("precision", name_of(store.identity.precision), name_of(run.precision));
  compare("optimizer", optimizers_with_state_of(store.identity.optimizer), optimizers_with_state_of(run.optimizer));
  compare("state_dtype", name_of(store.identity.moments), name_of(run.moments));
  compare("chunk_elements", store.identity.chunk_elements, run.chunk_elements);
  compare("chunk count", store.identity.chunk_count, run.chunk_count);
  compare("rank", store.identity.rank, run.rank);
  compare("world size", store.identity.world_size, run.world_size);
  if (found.empty() && store.identity.chunk_sizes_hash != run.chunk_sizes_hash) {
    found.emplace_back("shapes: the store's chunks have other sizes than those of this model, of the same name");
  }
  return found;
}

}  // namespace sluice
