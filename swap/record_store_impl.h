// What a RecordStore consists of. Internal to swap.
#pragma once
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "swap/drive.h"
#include "swap/record_store.h"
#include "swap/store_drives.h"
#include "swap/store_format.h"
#include "swap/transfers.h"

namespace sluice {

struct RecordStore::Impl {
  // What the host knows of one record. It is charged to the host budget. From a state to the next:
  //   empty:         nothing
  //   written:       has_content; not committed yet, in slot 0                       write(): here again
  //   committed:     is_committed and all others; both slots are the same one        commit()
  //   written over:  has_content, has_committed; working_slot is the other one       write(), and discard() back
  struct Entry {
    uint32_t written[kMaxPlanes] = {};    // CRCs of the content last written: what a read gets
    uint32_t committed[kMaxPlanes] = {};  // ... and of the committed content
    uint32_t next[kMaxPlanes] = {};       // CRCs of the content to be written; other threads may set them
    int64_t step = 0;                     // of the commit that first covered the committed content
    uint8_t committed_slot = 0, working_slot = 0;
    uint8_t readers = 0, writers = 0;  // under way; a rehearsal counts as a reader, since no write may be beside it
    bool has_content = false, is_committed = false;
    bool has_committed = false;  // the committed slot holds content, whatever was written since
    bool has_checksums = false;  // `next` has been set, or read from a table
  };
  struct ScratchEntry {
    uint32_t crc = 0;  // other threads may set it
    uint8_t readers = 0, writers = 0;
  };
  enum class Stage : uint8_t { kIdle, kTable, kTableSync, kSuperblock, kSuperblockSync };
  static constexpr uint32_t kCommitOwner = UINT32_MAX, kRehearses = uint32_t{1} << 31;

  struct Place {
    std::vector<Drive> drives;
    std::vector<uint32_t> weights;
  };
  Impl(const Geometry& geometry, const StoreIdentity& store_identity, StoreOptions store_options, Place place);

  // Creation and opening, blocking (record_store_open.cpp).
  void write_headers();
  void mend_headers(std::span<const DamagedHeader> damaged);
  bool find_writable();
  void refuse_records();
  void check_length() const;
  // A whole block of the first drive's file, by way of `block`.
  void run_block(IoOp op, int64_t offset);

  // What is committed, blocking (record_store_recovery.cpp).
  struct FoundSuperblock {
    Superblock superblock;
    BlockState state = BlockState::kDamaged;
    std::optional<IoError> unread;  // the drive does not give it: as a damaged one
    bool is_emptied = false;        // zeros where there was one: damaged
    bool tells_table = true;        // where it is damaged: the table before it tells whose it was
  };
  using Superblocks = std::array<FoundSuperblock, 2>;
  enum class Content : uint8_t { kNone, kSome };
  Content load();
  Superblocks read_superblocks();
  bool read_table(int area, const Superblock& superblock);
  void adopt_table(int area, const Superblock& superblock);
  void load_generation(int area, const Superblock& superblock);
  void look_for_lost_step(int area, FoundSuperblock& found);
  void warn_of_damaged(int area, const FoundSuperblock& found) const;
  bool steps_were_committed(const Superblocks& found);
  [[noreturn]] void refuse_damaged_steps() const;
  [[noreturn]] void refuse_unread() const;
  void burn_generation();

  // The steps that it has, blocking (record_store_steps.cpp).
  struct RecordCopy {
    int slot = 0;
    const uint32_t* crc = nullptr;  // of each plane
  };
  struct Verifying {
    std::function<std::optional<RecordCopy>(int64_t index)> wanted;
    std::function<void(int64_t, int64_t)> progress;  // bytes read, bytes in all
    std::string otherwise;                           // the end of what is thrown
  };
  std::optional<RecordCopy> committed_copy(int64_t index) const;
  void verify_copies(int64_t step, const Verifying& verifying);
  Superblock read_previous_table();
  void verify(int64_t step, const std::function<void(int64_t, int64_t)>& progress);
  void verify_older(int64_t step);
  void open_step(int64_t step);
  void give_up(int area);
  void verify_in_place_of_damaged();
  void give_up_damaged();

  // Records and commits (record_store.cpp), scratch extents (record_store_scratch.cpp).
  std::string places_of(RecordId record, int slot, size_t plane) const;
  std::span<const Extent> everywhere() const;  // a sync of every drive
  void grow_table_buffer(int64_t payload_bytes);
  Entry& entry(RecordId record);
  ScratchEntry& scratch_entry(int extent);
  uint32_t index_of(RecordId record) const { return record.chunk * 2 + static_cast<uint32_t>(record.group); }
  int64_t record_count() const { return 2 * layout.chunk_count(); }
  int spare_area() const { return has_generation ? 1 - current_area : 0; }
  void check_start(const std::byte* memory) const;
  void check_room() const;
  void check_given_up() const;
  void start_record(RecordId record, IoOp op, std::byte* memory, uint64_t tag);
  void check_drives();
  void fill_table(const StepState& state);
  void start_stage(Stage next);
  void end_record(const TransferEnd& end);
  void start_scratch(int extent, IoOp op, std::byte* memory, uint64_t tag);
  void end_scratch(const TransferEnd& end);
  void end_transfer(const TransferEnd& end);  // of any but a commit's
  // True: the commit has ended, well or badly.
  bool advance_commit(const TransferEnd& end);
  void adopt_commit();

  StoreIdentity identity;
  StoreOptions options;
  StoreLayout layout;
  std::vector<uint32_t> weights;
  std::vector<Drive> drives;
  uint64_t fingerprint;
  std::vector<Entry> entries;
  std::vector<ScratchEntry> scratch;  // their transfers' owners are numbered on from the records'
  AlignedBuffer table;                // a table area's payload on its way
  AlignedBuffer block;                // a superblock, an opening, the header on its way

  StepState committed, pending;
  int64_t previous_step = -1;  // the generation before, while its slots are untouched
  std::optional<int64_t> lost_step;
  std::optional<IoError> unread;  // a superblock or table that the drive does not give, and that may be the last one
  bool is_newer_damaged = false;  // the other superblock or its table, which may be the last one's
  bool all_superblocks_read = true;
  int64_t read_caller_bytes = 0;  // the most of StepState::caller in a table that was read
  int current_area = 0;           // of the committed superblock and its table
  bool has_generation = false;
  bool is_new = false;      // created by this object
  uint64_t generation = 0;  // the last number used
  uint32_t pending_crc = 0;
  int64_t pending_table_bytes = 0;
  uint64_t commit_tag = 0;
  int writes_in_flight = 0;
  std::exception_ptr poll_error;  // of the queue, met after transfers that had ended
  int64_t written_bytes = 0;
  Stage stage = Stage::kIdle;
  std::exception_ptr failed;     // a write or a commit: nothing more is written or committed
  std::exception_ptr read_only;  // opened to be read: no record is written, and nothing committed
  const std::exception_ptr& refused() const { return failed ? failed : read_only; }
  void note_failure(const std::exception_ptr& error) {
    if (error && error != read_only && !failed) failed = error;
  }
  Transfers transfers;  // last: its end waits for what uses the buffers
};

}  // namespace sluice
