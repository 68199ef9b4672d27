// A small file system of its own, mounted in a folder that this makes; unmounted at the end. Mounting takes a right
// that not every machine grants: a test skips where reason() is not empty.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace sluice {

class MountedDrive {
 public:
  enum class Kind : uint8_t {
    kMemory,  // tmpfs: gone with its bytes when it is unmounted
    kRam,     // ramfs: has no direct I/O, and no size
    kExt4,    // in the file `at`.image beside the folder: it outlives an unmount
    kExt3,    // the same without extents: it has room and allocates none of it beforehand
  };
  MountedDrive(Kind kind, std::filesystem::path at, int64_t bytes);
  ~MountedDrive();
  MountedDrive(MountedDrive&&) = delete;

  const std::string& reason() const { return reason_; }  // why it is not mounted; empty: it is
  const std::filesystem::path& path() const { return at_; }
  // The rest throws std::system_error where the system refuses.
  void make_read_only();
  void make_writable();
  void resize(int64_t bytes);  // kMemory
  // kExt4: what a drive that is pulled out and put in again is to its files. Nothing may be open there.
  void mount_again();

 private:
  void mount_image();
  void remount(unsigned long flags, const std::string& options);

  Kind kind_;
  std::filesystem::path at_;
  std::string reason_;
};

enum class ShutDown : uint8_t { kDone, kNotPossible };
// Ends all traffic of the ext4 that an open file is on, as if its drive had been pulled out: requests fail from now on.
ShutDown shut_down_ext4(int file);

}  // namespace sluice
