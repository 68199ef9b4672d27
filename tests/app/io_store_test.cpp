// What bare requests of `bench io` leave alone.
#include "bench/io_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <string>

#include "core/bytes.h"
#include "swap/store_format.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Of files below a folder that this process has open, by their names once: descriptors of their own.
std::map<std::string, int> open_again(const fs::path& folder) {
  std::map<std::string, int> files;
  std::error_code ignored;
  for (const auto& each : fs::directory_iterator("/proc/self/fd")) {
    const std::string name = fs::read_symlink(each.path(), ignored).string();
    if (!name.starts_with(folder.string()) || files.contains(name)) continue;
    files[name] = open(each.path().c_str(), O_RDONLY | O_CLOEXEC);
  }
  return files;
}

HeaderState state_of(int file) {
  std::array<std::array<std::byte, kStoreBlockBytes>, 2> blocks;
  CopyBlocks copies;
  for (size_t i : {0, 1}) {
    EXPECT_EQ(pread(file, blocks[i].data(), kStoreBlockBytes, kIdentityOffset[i]), kStoreBlockBytes);
    copies[i] = blocks[i];
  }
  const IdentityCopies found = read_identities(copies);
  return found.damaged ? HeaderState::kDamaged : found.state;
}

TEST(IoStoreBench, bare_writes_keep_both_headers_of_every_drive) {
  const TempFolder folder;
  IoStore store({.folders = {folder.path() / "a", folder.path() / "b", folder.path() / "c"},
                 .size_bytes = 16 * kMiB,
                 .block_bytes = 128 * kKiB,
                 .depth = 8,
                 .backend = IoBackend::kThreads});
  store.run_bare_requests(Direction::kWrite);
  store.run_bare_requests(Direction::kBoth);
  const auto files = open_again(folder.path());
  EXPECT_EQ(files.size(), 3u);
  for (const auto& [name, file] : files) {
    EXPECT_EQ(state_of(file), HeaderState::kValid) << name;
    close(file);
  }
}

}  // namespace
}  // namespace sluice
