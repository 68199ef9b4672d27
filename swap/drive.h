// A store's file on one drive: O_DIRECT (nothing of it is in the page cache), preallocated, locked against a second
// opener.
#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "swap/store_words.h"

namespace sluice {

constexpr int64_t kStatBlockBytes = 512;  // of st_blocks

// Consecutive bytes of the file on one of a store's drives.
struct Extent {
  int drive = 0;
  int64_t offset = 0, bytes = 0;
};

// Move-only owner of the descriptor and, with it, of the advisory lock. Not synchronised; transfers go through an
// IoQueue. A file that make_drives() made or allocate_drives() emptied goes with its owner, still locked, until keep();
// where a link led to it, it is left there empty, and the link as it is. A copy that a forked child has ends nothing
// but its own descriptor.
class Drive {
 public:
  // kWriteIfItMay: a file that may not be written (its drive is read-only, its owner somebody else) is opened for
  // reading alone.
  enum class Access : uint8_t { kWrite, kWriteIfItMay };
  static Drive open(const std::filesystem::path& path, Access access = Access::kWrite,
                    const StoreWords* words = &kPlainWords);
  ~Drive();
  Drive(Drive&& other) noexcept;
  Drive& operator=(Drive&&) = delete;

  int file() const { return file_; }
  const std::filesystem::path& path() const { return path_; }
  const StoreWords& words() const { return *words_; }
  std::string name() const { return words_->name_of(path_); }  // for messages
  int64_t bytes() const;                                       // of the file now
  // Throws IoError where the file is shorter than it was, or has holes where it had none (one that had some: at its
  // beginning): cut short by somebody, and perhaps grown again by writes.
  void check_whole() const;
  void check_named() const;  // throws IoError where the file has been deleted, or another put in its place
  // Of offsets, lengths and memory of transfers.
  int64_t alignment_bytes() const { return alignment_bytes_; }
  void keep() { goes_with_owner_ = false; }
  void remove_with_owner() { goes_with_owner_ = true; }  // after keep(): it came so far only to be given up
  // Throws IoError, with why, where it was opened for reading alone, or is longer than most_file_bytes() were then.
  void check_writable() const;

 private:
  friend std::vector<Drive> make_drives(std::span<const std::filesystem::path> paths, std::span<const int64_t> bytes,
                                        const StoreWords* words);
  friend void allocate_drives(std::span<Drive> drives, std::span<const int64_t> bytes);
  friend std::vector<int64_t> grow_drives(std::span<Drive> drives, std::span<const int64_t> bytes);
  friend void fit_drives(std::span<Drive> drives, std::span<const int64_t> bytes);
  enum class Open : uint8_t { kThere, kThereOrReadOnly, kOrMake };
  Drive(const std::filesystem::path& path, Open how, const StoreWords* words);
  static Drive make(const std::filesystem::path& path, const StoreWords* words);
  void lock();
  bool is_nameless() const;
  bool has_its_name() const;  // what stands at the path is this file
  bool has_lost_bytes(const struct stat& now) const;
  void find_alignment();
  void allocate(int64_t bytes);
  void cut(int64_t bytes);
  enum class Of : uint8_t { kNewStore, kStoreThere };
  void grow(int64_t to, Of of);
  void reserve(int64_t bytes);  // so many, and changes nothing that is in the file
  void give_back() const noexcept;
  void cut_back(int64_t bytes) const noexcept;
  void take_away() const noexcept;
  [[noreturn]] void refuse_allocation(int64_t bytes, int error_number, Of of) const;
  void count_allocated();
  [[noreturn]] void fail(const char* action, int error_number, std::string advice = {}) const;
  [[noreturn]] void refuse_to_open(const char* action, int error_number) const;
  std::string with_folders(std::string_view advice) const;

  const StoreWords* words_;
  std::filesystem::path path_;           // as it was given
  std::filesystem::path absolute_path_;  // leads there still where the process has gone to another folder
  int file_ = -1;
  int64_t alignment_bytes_ = 4096;
  // When it was opened; a file that has holes from the start (a copy, a file system that compresses) has no such
  // number.
  std::optional<int64_t> allocated_bytes_;
  int64_t whole_bytes_ = 0;  // its length then
  bool goes_with_owner_ = false;
  enum class Reserves : uint8_t { kNothing, kBeyondItsEnd } reserves_ = Reserves::kNothing;
  int locked_by_ = 0;      // the process; 0: it is not locked
  int write_refused_ = 0;  // errno, where it may not be written to
};

// The first half of a creation, which loses nothing: looks whether every drive has room for its file; makes the folders
// and, where there are no files, empty ones; locks all of them and reserves space for files of these bytes. What is in
// a file that is there stays in it. Throws ConfigError (locked; a drive that wants more than 4096-byte alignment),
// IoError (space: needed, free, path; a link to nothing), and then no new file stays behind, nor what was reserved
// beyond a file's end, and for want of room that was seen at first no new folder either; what another process has
// locked is left alone.
std::vector<Drive> make_drives(std::span<const std::filesystem::path> paths, std::span<const int64_t> bytes,
                               const StoreWords* words = &kPlainWords);

// The second half: the files are emptied, and exactly so many bytes of each allocated. Throws IoError (space).
void allocate_drives(std::span<Drive> drives, std::span<const int64_t> bytes);

// Makes files that are there that long at the least: what is new is allocated. Throws IoError (space, a limit of the
// process), and then leaves every file as long as it was, where it can be cut. Returns how long they were.
std::vector<int64_t> grow_drives(std::span<Drive> drives, std::span<const int64_t> bytes);

// Exactly that long: what is beyond is given back. Throws as grow_drives() does.
void fit_drives(std::span<Drive> drives, std::span<const int64_t> bytes);

// The longest file that this process may write (RLIMIT_FSIZE, ulimit -f); INT64_MAX: any. Whoever makes a file, grows
// one or opens one to write to it looks here first: beyond it the kernel ends the process, unless that ignores SIGXFSZ.
int64_t most_file_bytes();

// What direct I/O of an open file must be aligned to; 0: there is none. nullopt: the kernel does not say.
std::optional<int64_t> direct_io_alignment(int file);

// flock() of an open file or folder, for this process alone, tried for a second. 0, EWOULDBLOCK where another one has
// it, or what else errno says.
int lock_file(int file);

// "sluice-0.swap" in the folder.
std::filesystem::path store_path(const std::filesystem::path& folder, int rank);

// Throws IoError where that cannot be told: it may be there.
bool is_there(const std::filesystem::path& path);

}  // namespace sluice
