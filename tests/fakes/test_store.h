// A small store in a folder of its own, with contents that are a function of (record, step), for tests of the store.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {

// Keeps what was logged.
class LogLines {
 public:
  Log log();
  std::string text() const;

 private:
  struct Kept {
    std::mutex mutex;
    std::string text;
  };
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

// The IoError that the action throws; where it throws none, the test fails.
struct IoFailure {
  IoError::Details details;
  std::string message;
};
IoFailure failure_of(const std::function<void()>& action);

struct TestRun {
  // 2000: ten records; 1200: fourteen.
  explicit TestRun(Precision precision_of_run = Precision::kBf16, int64_t chunk_elements = 2000);
  std::vector<RecordId> records() const;
  RecordLayout layout(RecordId record) const;
  StepState state(int64_t step) const;  // with some bytes of the caller's

  Precision precision;
  Geometry geometry;
  StoreIdentity identity;
};

// What record `record` holds after step `step`, padding included (zero).
void fill_content(const TestRun& run, RecordId record, int64_t step, std::span<std::byte> into);
std::vector<uint32_t> plane_crcs(const TestRun& run, RecordId record, std::span<const std::byte> bytes);

// Sets the checksums and writes all records as of `step`, then commits.
void write_step(RecordStore& store, const TestRun& run, int64_t step);
void write_records(RecordStore& store, const TestRun& run, int64_t step);
// Reads a record and verifies it as callers do: throws the store's CorruptionError.
std::vector<std::byte> read_verified(RecordStore& store, const TestRun& run, RecordId record);
// Its files are left as they are by a process that is killed, where nothing was committed to them, too.
void leave_as_if_killed(std::unique_ptr<RecordStore> store, std::span<const std::filesystem::path> files);
// Every record holds what `step` wrote, byte by byte, and the state is that step's.
void expect_step(RecordStore& store, const TestRun& run, int64_t step);

}  // namespace sluice
