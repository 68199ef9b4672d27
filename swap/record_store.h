// The record store: every chunk's weights and state on NVMe, two slots a record, a table of what lies where, and a
// commit that survives a crash at any instant. Formats: swap/store_format.h. Protocol: docs/store.md.
//
// One thread at a time (the owner), as for IoQueue; interrupt() and layout() from any thread. checksums(),
// set_checksums() and corruption() of one record may be called from another thread while no transfer of that record is
// under way (the program's order grants it); so may scratch_checksum(), set_scratch_checksum() and scratch_corruption()
// of one scratch extent. After an IoError of a write or a commit nothing more is written: every later write and commit
// ends with that error.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/errors.h"
#include "core/geometry.h"
#include "core/log.h"
#include "swap/drive.h"
#include "swap/io_queue.h"
#include "swap/store_words.h"

namespace sluice {

// One record: a chunk's weights or state.
struct RecordId {
  uint32_t chunk = 0;
  Group group = Group::kWeights;
};

// What must agree between a store and the run that opens it. Each difference is named when it does not.
struct StoreIdentity {
  std::string model;  // canonical text of the model's partitions and shapes (hashed into the fingerprint)
  Precision precision = Precision::kBf16;
  Optimizer optimizer = Optimizer::kAdam;
  DType moments = DType::kFp32;
  int64_t chunk_elements = 0;
  int64_t chunk_count = 0;
  int rank = 0;
  int world_size = 1;
  uint64_t chunk_sizes_hash = 0;  // a hash of all chunks' elements: the store takes it from its geometry
  RecordFormat format() const { return {precision, optimizer, moments}; }
};

// The small state that a commit carries.
struct StepState {
  int64_t step = 0;           // the step that this commit ends; 0: creation
  int64_t applied_steps = 0;  // Adam's t
  int64_t skipped_steps = 0;
  int64_t skipped_in_a_row = 0;     // up to now, while the loss scale could not be lowered
  double loss_scale = 1;            // of the next step
  int64_t good_steps = 0;           // in a row, since a step was skipped
  int64_t hysteresis_left = 0;      // the loss scale falls when so many more steps have been skipped; 0: it does not
  int64_t data_position = 0;        // samples consumed
  std::vector<std::byte> caller{};  // up to kMaxCallerBytes of the embedder's own
};

constexpr int kMaxDrives = 16;
constexpr int kMaxTransfers = 64;                       // of a store, in flight
constexpr int64_t kMaxCallerBytes = int64_t{1} << 20;   // of StepState::caller
constexpr int64_t kKeptModelBytes = 3072;               // of StoreIdentity::model, in the store; a longer one as a hash
constexpr int64_t kMaxScratchBytes = int64_t{1} << 52;  // of all scratch extents together
constexpr int64_t kMaxIoBlockBytes = int64_t{64} << 20;  // of what users may ask for

// kTakenAway: by the owner, once the files are open (scratch). Else a file without its name has been deleted by
// somebody, and what is committed to it would be gone when it is closed.
enum class FileNames : uint8_t { kStay, kTakenAway };

class RecordStore;

struct StoreOptions {
  std::filesystem::path folder;  // of the first drive, which also has the table and the superblocks
  // One for each further drive, 15 at the most. Every record is split over all drives.
  std::vector<std::filesystem::path> more_folders{};
  // For creation: in proportion to what, one a drive, from 1 to 65535. Empty: to the speeds measured then, as far as
  // each has room.
  std::vector<uint32_t> drive_weights{};
  IoQueueFactory make_queue = make_io_queue;
  IoQueueOptions queue;
  int64_t block_bytes = int64_t{1} << 20;  // a transfer is cut into requests of this size, a multiple of 4096
  FileNames names = FileNames::kStay;
  // For opening. kRead: nothing changes but scratch extents, behind the records (the files grow where they need room),
  // and these only where the files may be written; writes of records and commits end with an IoError.
  enum class Access : uint8_t { kWrite, kRead } access = Access::kWrite;
  // For creation: of files that are found there once they are locked. kRefused: somebody has begun a store since the
  // caller looked.
  enum class Existing : uint8_t { kReplaced, kRefused } existing = Existing::kReplaced;
  std::vector<int64_t> scratch_bytes{};  // of each scratch extent, multiples of 4096; each run's own choice
  int64_t caller_bytes = 0;              // of StepState::caller: a commit of no more allocates nothing
  uint32_t opener = 0;  // for opening to write: a number of the caller's own, which RecordStore::last_opener() tells
  // For opening: of a superblock or table that the drive does not give (IoError) and that may be the last commit's.
  // kRefused: it may be given the next time. kPassedOver: what is committed before that is opened, if it is whole.
  enum class Unread : uint8_t { kRefused, kPassedOver } unread = Unread::kRefused;
  // For opening: looks at what is committed before anything is written. What it throws refuses the store, which stays
  // as it was.
  std::function<void(const RecordStore&)> accept{};
  // While opening to write, or open_step(), reads a step whole: bytes read, and in all. What it throws ends that.
  std::function<void(int64_t, int64_t)> progress{};
  Log log;
  const StoreWords* words = &kPlainWords;  // of its messages

  std::vector<std::filesystem::path> folders() const;  // of all drives
  IoQueueOptions queue_for(int drives) const;          // `queue` for so many of them, with `words`
};

enum class StoreExists { kNo, kYes };
// Does the folder hold a store of this rank, or a part of one? (It may be damaged; opening tells.) A folder that is not
// there holds none; one that cannot be looked into throws IoError.
StoreExists find_store(const std::filesystem::path& folder, int rank = 0);
StoreExists find_store(std::span<const std::filesystem::path> folders, int rank = 0);  // any of them

// What the host's part of a store follows from.
struct TableNeeds {
  int64_t chunk_count = 0;
  int64_t scratch_count = 0;
  int depth = 0;  // of the queue, for each drive
  int drives = 1;
  int64_t caller_bytes = 0;  // of StepState::caller
};

struct StoreCompletion {
  uint64_t tag = 0;
  std::exception_ptr error;  // null: all bytes have moved
};

class RecordStore {
 public:
  // Bytes of the files that create() will make, all drives together: what `sluice plan` prints as disk needed.
  static int64_t file_bytes(const Geometry& geometry, RecordFormat format, int drives = 1,
                            std::span<const int64_t> scratch_bytes = {});
  // What a commit writes beside the records: table and superblock.
  static int64_t commit_bytes(int64_t chunk_count, int64_t caller_bytes = 0);
  // An upper bound of table_bytes() that needs no store: for the planner.
  static int64_t predicted_table_bytes(const TableNeeds& needs);

  // Creates the folders and the files (preallocated) and locks them. The store cannot be opened until the first commit
  // has returned, and until then its files go with this object. Replaces a store that is there, which is whole until
  // all that can be refused has been granted: its lock, the space, the queue. What fails after that leaves no file
  // behind, or an empty one where the user's link leads to it. Throws IoError when space is short (bytes needed, bytes
  // free, path) and for a link to nothing, ConfigError when another process has the store open, and what make_queue
  // throws.
  static std::unique_ptr<RecordStore> create(const Geometry& geometry, const StoreIdentity& identity,
                                             StoreOptions options);
  // Opens the newest valid generation. A torn superblock or table: the other one, of the step before, is used and a
  // warning logged; where the store is opened to be written, that step is read whole, and then the torn one given up
  // for good. A damaged copy of a drive's identity header is warned of and mended once all else has been accepted.
  // Throws ConfigError for another model, rank, world size or layout (naming what differs), for a drive that is missing
  // or not in its place (naming it), or a locked store; CorruptionError where both copies of a header are damaged,
  // where steps were committed and none can be opened, where a file has been cut short, or where the step in place of a
  // torn one is not whole, which leaves both as they are; IoError where there is no store (find_store() says so
  // before), no space for its scratch extents, or a file longer than this process may write (ulimit -f), which changes
  // nothing and can still be opened for reading alone; returns null where nothing was ever committed. Opening burns a
  // generation number, but for a store that is opened to be read (StoreOptions::access).
  static std::unique_ptr<RecordStore> open(const Geometry& geometry, const StoreIdentity& identity,
                                           StoreOptions options);
  // What identity a store on disk has, for resuming with its chunk size; of its model the first kKeptModelBytes.
  // nullopt: no store, or none with a readable identity header. Throws IoError where the system refuses to tell.
  static std::optional<StoreIdentity> identify(const std::filesystem::path& folder, int rank = 0);
  // The number drawn when the store was created: another one, and another store lies there now. nullopt and errors
  // as above. A store that is open may be asked too.
  static std::optional<uint64_t> store_number(const std::filesystem::path& folder, int rank = 0);
  // StoreOptions::opener of whoever was the last to open it to write; 0: it has only been created so far, or that one
  // gave none. `folder` is the first drive's. nullopt: that cannot be told, by what the drive gives or for errors. A
  // store that is open may be asked too.
  static std::optional<uint32_t> last_opener(const std::filesystem::path& folder, int rank = 0);
  ~RecordStore();
  // Of a store that was created, as long as what it has committed is step 0: its files go with this object after all,
  // since whoever created it cannot begin with it.
  void leave_no_files();

  const StepState& committed() const;  // of the open generation
  // At most two, newest first: the last commit's and that of the one before (k-1, or k-n where commits are rare; none
  // where the two are of one step: between steps the embedder's own bytes may have been committed anew). Of the older
  // only the table is known to be whole: its records may have been written to by a step that was never committed.
  std::vector<int64_t> openable_steps() const;
  // A later step than committed(), whose commit's superblock or table is damaged or not given by the drive, or was cut
  // off in the midst of writing the superblock.
  std::optional<int64_t> lost_step() const;
  // A superblock or table was passed over (StoreOptions::unread): there may be a later step, of an unknown number where
  // lost_step() knows none. Before anything is written, open_step() must say that it is given up.
  bool has_unread_commit() const;
  // Takes a store just opened to one of openable_steps(), so that ranks agree on the newest step that all of them have.
  // A newer step is given up for good, before this returns, and so is one that may be newer (has_unread_commit()). All
  // that the two have not in common is read and verified first: where a record or the table of the older one is not
  // whole this throws CorruptionError, and the store stays at the newer. Blocks; takes the memory of the largest record
  // meanwhile.
  void open_step(int64_t step);
  // Reads all records of one of openable_steps() of a store just opened; nothing in it changes. Throws CorruptionError
  // for the first that is not whole. Blocks; takes the memory of the largest record meanwhile. `progress`: bytes read,
  // and in all.
  void verify(int64_t step, const std::function<void(int64_t, int64_t)>& progress = {});

  // Starts a transfer of a whole record (record_layout's bytes) between its slot and memory aligned to 4096. A read
  // takes what was last written. A write goes to the slot that is not committed, and set_checksums() has told its
  // content's before, once for as long as that is the same: a first write without any is a programmer's error. Never
  // two transfers of a record at once when one of them is a write. Short transfers are resumed; errors come with
  // poll(). Never blocks. At most kMaxTransfers may be in flight: starting more is a programmer's error.
  void read(RecordId record, std::byte* into, uint64_t tag);
  void write(RecordId record, const std::byte* from, uint64_t tag);
  // Gives up what was written since the last commit: reads take the committed content again. No transfer of the record
  // may be in flight, and it must have been committed once.
  void discard(RecordId record);
  // Writes to the slot that holds nothing and changes nothing that the table says: what a write costs, for benchmarks.
  // The record is committed; it may be read meanwhile.
  void rehearse_write(RecordId record, const std::byte* from, uint64_t tag);
  // Scratch extents: one slot each behind the records, in no table and part of no commit; what they hold ends with this
  // object. Their transfers wait for no commit and may run beside one. Otherwise as records: never two transfers of an
  // extent at once when one of them is a write.
  void read_scratch(int extent, std::byte* into, uint64_t tag);
  void write_scratch(int extent, const std::byte* from, uint64_t tag);
  // CRC32C of what an extent holds, as its writer has set it; its reader compares.
  uint32_t scratch_checksum(int extent) const;
  void set_scratch_checksum(int extent, uint32_t crc);
  // The error where the two differ. `what`: what was kept there, for people.
  CorruptionError scratch_corruption(int extent, uint32_t found, const std::string& what) const;
  // Starts commit(state.step): table to the spare area, fdatasync, superblock, fdatasync. All writes must have
  // completed. After its completion, state is what a crash leaves.
  void commit(const StepState& state, uint64_t tag);
  // Pushes what was started towards the device, reports what has finished. An interrupt ends the wait.
  size_t poll(std::span<StoreCompletion> completions, Wait wait);
  void interrupt();
  int in_flight() const;  // transfers and commits started and not yet reported

  RecordLayout layout(RecordId record) const;
  // CRC32C of each plane (seeded by plane_seed). The update pass sets those of the content that the next write() will
  // take, before it is called; checksums() are those of the content last written, which readers verify against.
  std::span<const uint32_t> checksums(RecordId record) const;
  void set_checksums(RecordId record, std::span<const uint32_t> crcs);
  // The error for a plane that does not verify: names path, slot's offset, chunk, group, plane, expected and found.
  CorruptionError corruption(RecordId record, int plane, uint32_t found, const std::string& block) const;

  const std::filesystem::path& path() const;  // of the first drive's file
  int64_t written_bytes() const;              // to the drives since this was created or opened, tables included
  int64_t table_bytes() const;                // host memory of the table and buffers, for the ledger
  int64_t read_caller_bytes() const;          // the most of StepState::caller in the tables that open() found
  std::string describe() const;               // the queue's words, and how records are split over several drives

 private:
  RecordStore();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Blocking helpers for creation, digests and reads between steps: start, then poll until that one is done.
// Nothing else may be in flight. Throw what the transfer threw.
void read_now(RecordStore& store, RecordId record, std::byte* into);
void write_now(RecordStore& store, RecordId record, const std::byte* from);
void commit_now(RecordStore& store, const StepState& state);

}  // namespace sluice
