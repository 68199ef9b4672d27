// Every request of a short training run fails once, in every way a request can: the run finishes with the same bits, or
// stops with a typed error and a resume ends with the same bits. Wrong data that the drive took for good may be refused
// when it is read again; it is never trained on.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>

#include "tests/engine/engine_fixture.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/recorded_drives.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

enum class Kind { kEio, kShort, kNoSpace, kWrongData };
std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"EIO", "short", "ENOSPC", "wrong data"};
  return kNames[static_cast<size_t>(kind)];
}

class FaultSweep : public ::testing::TestWithParam<Kind> {
 protected:
  struct Counts {
    int finished = 0, stopped = 0, resumed = 0, refused = 0;
  };

  // State and weights in both homes, gradients and activations on NVMe too, so that a run reads, verifies and writes
  // records of each kind, and scratch.
  EngineOptions options(const std::shared_ptr<Faults>& faults) const {
    EngineOptions options = engine_options(folder_, reference_);
    options.plan.placement.state = {{HomeKind::kHost, 0.3}, {HomeKind::kNvme, 0.7}};
    options.plan.placement.weights = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}};
    options.plan.placement.gradient = {{HomeKind::kNvme, 0.6}, {HomeKind::kHost, 0.4}};
    options.plan.placement.activations = {{HomeKind::kNvme, 1}};
    options.plan.commit_interval = 1;
    options.store.make_queue = faulty_queue_factory(faults, recorded_queue_factory(drives_));
    return options;
  }
  Fault fault(int64_t request) const {
    Fault fault{.nth = request, .counts = Fault::Counts::kAllOps};
    switch (GetParam()) {
      case Kind::kEio:
        fault.error_number = EIO;
        break;
      case Kind::kShort:
        fault.short_bytes = 700;
        break;
      case Kind::kNoSpace:
        fault.error_number = ENOSPC;
        break;
      case Kind::kWrongData:
        fault.wrong_byte = request % 200;  // in what counts, not in padding
        break;
    }
    return fault;
  }
  // What the run ended with; nothing where it stopped with a typed error.
  std::optional<RunRecord> train(const EngineOptions& with) {
    try {
      Engine engine(model_, with, toy_source());
      return train_engine(engine, model_, reference_);
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("sluice-0.swap"));
      EXPECT_EQ(error.details().error_number, fault(0).error_number);
      EXPECT_NE(error.details().error_number, 0);
    } catch (const CorruptionError&) {
      EXPECT_EQ(GetParam(), Kind::kWrongData);
    } catch (const ConfigError& error) {  // a damaged header
      EXPECT_EQ(GetParam(), Kind::kWrongData) << error.what();
    }
    return std::nullopt;
  }
  // True: it moved as far as to the request.
  bool run_with_fault_at(int64_t request) {
    SCOPED_TRACE(fmt::format("{} at request {}", name_of(GetParam()), request));
    drives_ = new_drives();
    auto faults = std::make_shared<Faults>();
    faults->list = {fault(request)};
    const auto first = train(options(faults));
    if (faults->reads + faults->writes + faults->syncs <= request) return false;
    ++(first ? counts_.finished : counts_.stopped);
    if (first) {
      EXPECT_EQ(*first, expected_);
      return true;
    }
    EngineOptions again = options(std::make_shared<Faults>());
    again.open = OpenMode::kResume;
    const auto resumed = train(again);
    ++(resumed ? counts_.resumed : counts_.refused);
    if (resumed) {
      EXPECT_EQ(resumed->weights_crc32c, expected_.weights_crc32c);
      EXPECT_EQ(resumed->state_crc32c, expected_.state_crc32c);
    }
    return true;
  }

  static std::filesystem::path in_memory() {
    return std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
  }
  static std::shared_ptr<RecordedDrives> new_drives() {
    auto drives = std::make_shared<RecordedDrives>();
    drives->record = RecordedDrives::Record::kNo;
    return drives;
  }

  TempFolder folder_{in_memory()};  // its files lend their locks only
  ReferenceOptions reference_{.micro_batches = 1, .steps = 3, .max_norm = 0.05};
  ModelSpec model_ = toy_model({.visits = 3, .elements = 400}, Precision::kBf16);
  RunRecord expected_ = train_reference(model_, reference_);
  std::shared_ptr<RecordedDrives> drives_;
  Counts counts_;
};

TEST_P(FaultSweep, every_request_may_fail) {
  int64_t request = 0;
  while (!HasFailure() && run_with_fault_at(request)) request += SLUICE_SWEEP_STRIDE;
  std::cout << fmt::format(
      "{}: {} requests, a fault in every {}: {} runs finished, {} stopped with an error, {} of them resumed"
      " to the same bits, {} refused to resume\n",
      name_of(GetParam()), request, SLUICE_SWEEP_STRIDE == 1 ? "one" : fmt::format("{}th", SLUICE_SWEEP_STRIDE),
      counts_.finished, counts_.stopped, counts_.resumed, counts_.refused);
  EXPECT_GE(request, 100);
  if (GetParam() == Kind::kShort) {
    EXPECT_EQ(counts_.stopped, 0);
  } else {
    EXPECT_GT(counts_.resumed, 0);
  }
  if (GetParam() == Kind::kWrongData) return;  // the drive took it for good: refused where it is read again
  EXPECT_EQ(counts_.refused, 0);
}

std::string word_of(const ::testing::TestParamInfo<Kind>& kind) {
  std::string word(name_of(kind.param));
  std::replace(word.begin(), word.end(), ' ', '_');
  return word;
}
INSTANTIATE_TEST_SUITE_P(, FaultSweep, ::testing::Values(Kind::kEio, Kind::kShort, Kind::kNoSpace, Kind::kWrongData),
                         word_of);

}  // namespace
}  // namespace sluice::testing
