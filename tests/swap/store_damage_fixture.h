// A store on drives in memory, one and two: what a case does to them is taken back by take_back().
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/recorded_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

class StoreHeaders : public testing::TestWithParam<int> {
 protected:
  StoreHeaders() {
    write_step(*RecordStore::create(run_.geometry, run_.identity, options()), run_, 0);
    for (DriveImage& image : drives_->images) image.mark();
    drives_->events.clear();
  }
  fs::path folder(int drive) const { return folder_.path() / std::to_string(drive); }
  StoreOptions options() {
    StoreOptions options{.folder = folder(0),
                         .make_queue = faulty_queue_factory(faults_, recorded_queue_factory(drives_)),
                         .queue = {.depth = 4},
                         .log = lines_.log()};
    for (int drive = 1; drive < GetParam(); ++drive) options.more_folders.push_back(folder(drive));
    options.drive_weights.assign(static_cast<size_t>(GetParam()), 1);
    return options;
  }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }
  void take_back() {
    for (DriveImage& image : drives_->images) image.undo();
    drives_->events.clear();
    lines_ = {};
  }

  DriveImage& image(int drive) { return drives_->images[static_cast<size_t>(drive)]; }
  Bytes block_at(int drive, int64_t offset) {
    Bytes block(kStoreBlockBytes);
    image(drive).read(offset, block);
    return block;
  }
  Bytes copy_of(int drive, int copy) { return block_at(drive, kIdentityOffset[copy]); }
  void put_copy(int drive, int copy, const Bytes& block) { image(drive).write(kIdentityOffset[copy], block); }
  void flip(int drive, int copy, size_t byte) {
    Bytes block = copy_of(drive, copy);
    block[byte] ^= std::byte{1} << (byte % 8);
    put_copy(drive, copy, block);
  }
  // Every byte, or a sample where a sanitizer makes visits slow.
  void for_bytes(const std::function<void(size_t)>& visit) {
    for (size_t byte = 0; byte < kStoreBlockBytes && !HasFailure(); byte += SLUICE_EVERY_NTH_STATE) {
      SCOPED_TRACE(byte);
      visit(byte);
      take_back();
    }
  }
  std::string refusal() {
    return message_of<Error>([this] { open(); });
  }

  TempFolder folder_;
  LogLines lines_;
  TestRun run_;
  std::shared_ptr<RecordedDrives> drives_ = std::make_shared<RecordedDrives>();
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
};

}  // namespace sluice
