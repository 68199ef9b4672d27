// A store whose header, superblocks, openings and tables hold what an attacker or a broken drive put there. Each input
// patches a whole store and, where it says so, makes the checksums agree again, so that the parsers behind them are
// met too. Used by the fuzzer (store_fuzz.cpp) and by the test that replays what it found.
//
// Input: a byte of flags (kReseal..., kBlank, kTrain), then patches: place (1 byte), offset (2 bytes, little-endian),
// count (1 byte), so many bytes. Places: identity header, superblocks, openings, tables; on several drives also the
// first header's part about the drives, and every further drive's header and that part of it. A patch of one of these
// falls on both copies of a header. The places after them are, by drive, the copies one by one.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/fakes/recorded_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {

class HostileStore {
 public:
  explicit HostileStore(int drives);
  // Looks at the store as every run does: identity, opening, and where the flags say so reading all records and going
  // on for a step. Anything else than a refusal or a store that works comes out as an exception or an abort.
  enum class Outcome : uint8_t { kRefused, kNothingThere, kOpened };
  Outcome look(std::span<const std::byte> input);

 private:
  // Patches fall on `bytes` of each of its blocks from byte `first` on.
  struct Place {
    size_t drive = 0;
    std::vector<int64_t> offsets{};  // of the blocks
    size_t first = 0, bytes = 0;
    size_t crc_offset = 0;  // in the block, of what ends with its checksum
    unsigned reseal = 0;    // the flag that makes that agree; 0: nothing does
  };
  int64_t table_area_bytes() const;
  void add_sealed(Place place);
  void patch(std::span<const std::byte> patches);
  void reseal(unsigned flags);
  void reseal_tables();
  std::filesystem::path folder(int drive) const { return folder_.path() / std::to_string(drive); }
  StoreOptions options();
  enum class Then : uint8_t { kNothing, kTrain };
  Outcome open(Then then);
  void use(RecordStore& store);

  TempFolder folder_;
  TestRun run_;
  std::shared_ptr<RecordedDrives> drives_ = std::make_shared<RecordedDrives>();
  int drive_count_;
  std::vector<Place> places_;
};

}  // namespace sluice
