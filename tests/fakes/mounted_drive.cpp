#include "tests/fakes/mounted_drive.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

namespace sluice {
namespace {

void require(int result, const std::filesystem::path& at) {
  if (result != 0) throw std::system_error(errno, std::generic_category(), at.string());
}

}  // namespace

MountedDrive::MountedDrive(Kind kind, std::filesystem::path at, int64_t bytes) : kind_(kind), at_(std::move(at)) {
  std::filesystem::create_directory(at_);
  if (kind_ != Kind::kExt4 && kind_ != Kind::kExt3) {
    const std::string type = kind_ == Kind::kMemory ? "tmpfs" : "ramfs";
    const std::string size = kind_ == Kind::kMemory ? "size=" + std::to_string(bytes) : "";
    if (mount("sluice-test", at_.c_str(), type.c_str(), 0, size.c_str()) != 0)
      reason_ = type + " cannot be mounted here: " + std::strerror(errno);
    return;
  }
  const std::string image = at_.string() + ".image";
  std::ofstream(image).close();
  std::filesystem::resize_file(image, static_cast<uintmax_t>(bytes));
  const std::string without = kind_ == Kind::kExt3 ? "-O ^extent,^64bit " : "";
  const std::string make = "PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q " + without + image + " >" + image + ".log 2>&1";
  if (std::system(make.c_str()) != 0) {
    reason_ = "no ext4 can be made in a file here";
  } else {
    mount_image();
  }
}

MountedDrive::~MountedDrive() {
  if (reason_.empty()) umount2(at_.c_str(), MNT_DETACH);
}

void MountedDrive::mount_image() {
  const std::string image = at_.string() + ".image";
  const std::string command = "mount -o loop " + image + " " + at_.string() + " >>" + image + ".log 2>&1";
  reason_ = std::system(command.c_str()) == 0 ? "" : "no ext4 in a file can be mounted here (root may)";
}

void MountedDrive::remount(unsigned long flags, const std::string& options) {
  require(mount(nullptr, at_.c_str(), nullptr, MS_REMOUNT | flags, options.c_str()), at_);
}

void MountedDrive::make_read_only() { remount(MS_RDONLY, ""); }
void MountedDrive::make_writable() { remount(0, ""); }
void MountedDrive::resize(int64_t bytes) { remount(0, "size=" + std::to_string(bytes)); }

void MountedDrive::mount_again() {
  require(umount2(at_.c_str(), 0), at_);
  mount_image();
  if (!reason_.empty()) throw std::system_error(EIO, std::generic_category(), reason_);
}

ShutDown shut_down_ext4(int file) {
  constexpr unsigned long kShutDown = _IOR('X', 125, uint32_t);  // EXT4_IOC_SHUTDOWN
  uint32_t without_flushing = 2;
  return ioctl(file, kShutDown, &without_flushing) == 0 ? ShutDown::kDone : ShutDown::kNotPossible;
}

}  // namespace sluice
