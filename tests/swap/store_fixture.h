// A store on one drive, whose bytes a test changes between two openings, and whose requests it lets fail.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/test_store.h"

namespace sluice {

class StoreOnADrive : public testing::Test {
 protected:
  StoreOptions options() {
    return {.folder = folder_.path(),
            .make_queue = faulty_queue_factory(faults_),
            .queue = {.backend = IoBackend::kThreads, .depth = 4},
            .log = lines_.log()};
  }
  std::unique_ptr<RecordStore> create() { return RecordStore::create(run_.geometry, run_.identity, options()); }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }
  std::filesystem::path file() const { return folder_.path() / "sluice-0.swap"; }

  void make_steps(int64_t last) {
    auto store = create();
    for (int64_t step = 0; step <= last; ++step) write_step(*store, run_, step);
  }
  void change_bytes(int64_t offset, const std::vector<std::byte>& bytes) {
    const int at = ::open(file().c_str(), O_RDWR);
    EXPECT_EQ(pwrite(at, bytes.data(), bytes.size(), offset), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(fsync(at), 0);
    close(at);
  }
  std::vector<std::byte> bytes_at(int64_t offset, size_t count) {
    std::vector<std::byte> bytes(count);
    const int at = ::open(file().c_str(), O_RDONLY);
    EXPECT_EQ(pread(at, bytes.data(), count, offset), static_cast<ssize_t>(count));
    close(at);
    return bytes;
  }
  void flip_bit(int64_t offset) {
    std::vector<std::byte> byte = bytes_at(offset, 1);
    byte[0] ^= std::byte{0x10};
    change_bytes(offset, byte);
  }
  void flip_in_both_copies(int64_t byte_of_header) {
    for (const int64_t offset : kIdentityOffset) flip_bit(offset + byte_of_header);
  }
  Superblock superblock(int index) {
    Superblock found;
    EXPECT_EQ(read_superblock(bytes_at(kSuperblockOffset[index], kStoreBlockBytes),
                              fingerprint_of(identity_with(run_.geometry, run_.identity)), found),
              BlockState::kValid);
    return found;
  }
  // Of the superblock of the last step, and of its table.
  int newest() { return superblock(0).generation > superblock(1).generation ? 0 : 1; }

  StoreLayout layout() const {
    const std::vector<uint32_t> weights = {1};
    return StoreLayout(run_.geometry, run_.identity.format(), weights, {});
  }

  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  TempFolder folder_;
  LogLines lines_;
  TestRun run_;
};

}  // namespace sluice
