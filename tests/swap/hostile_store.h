// A store whose header, superblocks, openings and tables hold what an attacker or a broken drive put there. Each input
// patches a whole store and, where it says so, makes the checksums agree again, so that the parsers behind them are
// met too. Used by the fuzzer (store_fuzz.cpp) and by the test that replays what it found.
//
// Input: a byte of flags (kReseal..., kBlank, kTrain), then patches: place (1 byte), offset (2 bytes, little-endian),
// count (1 byte), so many bytes.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tests/fakes/recorded_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {

class HostileStore {
 public:
  HostileStore();
  // Looks at the store as every run does: identity, opening, and where the flags say so reading all records and going
  // on for a step. Anything else than a refusal or a store that works comes out as an exception or an abort.
  enum class Outcome : uint8_t { kRefused, kNothingThere, kOpened };
  Outcome look(std::span<const std::byte> input);

 private:
  struct Place {
    int64_t offset = 0, bytes = 0;  // patches fall here
    size_t crc_offset = 0;          // of a block that ends with its checksum
  };
  int64_t table_area_bytes() const;
  size_t find_crc(int64_t offset) const;
  void patch(std::span<const std::byte> patches);
  void reseal(unsigned flags);
  void reseal_tables();
  StoreOptions options();
  enum class Then : uint8_t { kNothing, kTrain };
  Outcome open(Then then);
  void use(RecordStore& store);

  TempFolder folder_;
  TestRun run_;
  std::shared_ptr<RecordedDrives> drives_ = std::make_shared<RecordedDrives>();
  Place places_[7];
};

}  // namespace sluice
