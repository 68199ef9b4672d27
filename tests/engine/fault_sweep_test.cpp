// Every request of a short training run fails once, in every way a request can: the run finishes with the same bits, or
// stops with a typed error and a resume ends with the same bits. Only a record that the drive took wrongly, and for
// good, may be refused as it is read again, by its name; it is never trained on.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>

#include "tests/engine/engine_fixture.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/recorded_drives.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;
using ::testing::ValuesIn;

enum class Kind { kEio, kShort, kNoSpace, kWrongData };
std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"EIO", "short", "ENOSPC", "wrong data"};
  return kNames[static_cast<size_t>(kind)];
}

// Remembers one request of a run, the n-th of all its queues.
struct Watched {
  int64_t nth = 0, seen = 0;
  IoOp op = IoOp::kRead;
  std::string place{};  // as a refused record's error tells it
};
class WatchingQueue final : public IoQueue {
 public:
  WatchingQueue(std::unique_ptr<IoQueue> inner, std::shared_ptr<Watched> watched)
      : IoQueue(inner->depth()), inner_(std::move(inner)), watched_(std::move(watched)) {}
  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  void do_submit(const IoRequest& request) override {
    if (watched_->seen++ == watched_->nth) {
      watched_->op = request.op;
      watched_->place =
          fmt::format("offset {} of {}", request.offset,
                      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", request.file)).string());
    }
    inner_->submit(request);
  }
  void do_flush() override { inner_->flush(); }
  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override { return inner_->poll(completions, wait); }

  std::unique_ptr<IoQueue> inner_;
  std::shared_ptr<Watched> watched_;
};
IoQueueFactory watching_queue_factory(std::shared_ptr<Watched> watched, IoQueueFactory inner) {
  return [=](const IoQueueOptions& options) { return std::make_unique<WatchingQueue>(inner(options), watched); };
}

// Of the runs: with a commit in every step but on two drives; the last two on one, with a clip in about half of the
// steps, so that early updates are undone.
enum class Course { kOneDrive, kTwoDrives, kSpeculative, kReplay };
std::string_view name_of(Course course) {
  constexpr std::string_view kNames[] = {"one drive", "two drives", "speculative", "replay"};
  return kNames[static_cast<size_t>(course)];
}

class FaultSweep : public ::testing::TestWithParam<std::tuple<Course, Kind>> {
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
    if (course() == Course::kSpeculative) options.plan.update = UpdateMode::kSpeculative;
    if (course() == Course::kReplay) {
      options.plan.update = UpdateMode::kReplay;
      options.plan.placement.gradient.clear();  // none is kept
    }
    if (course() != Course::kTwoDrives) return options;
    options.plan.commit_interval = 3;
    options.store.more_folders = {folder_.path() / "second"};
    options.store.drive_weights = {1, 1};
    return options;
  }
  Fault fault(int64_t request) const {
    Fault fault{.nth = request, .counts = Fault::Counts::kAllOps};
    switch (kind()) {
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
  static Course course() { return std::get<Course>(GetParam()); }
  static bool updates_early() { return course() == Course::kSpeculative || course() == Course::kReplay; }
  static Kind kind() { return std::get<Kind>(GetParam()); }
  // What the run ended with; nothing where it stopped with a typed error, which is kept in error_.
  std::optional<RunRecord> train(const EngineOptions& with) {
    try {
      Engine engine(model_, with, toy_source());
      return train_engine(engine, model_, reference_);
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("sluice-0.swap"));
      EXPECT_EQ(error.details().error_number, fault(0).error_number);
      EXPECT_NE(error.details().error_number, 0);
      error_ = error.what();
    } catch (const CorruptionError& error) {
      EXPECT_EQ(kind(), Kind::kWrongData);
      error_ = error.what();
    }
    return std::nullopt;
  }
  // True: it moved as far as to the request.
  bool run_with_fault_at(int64_t request) {
    SCOPED_TRACE(fmt::format("{} at request {}", name_of(kind()), request));
    drives_ = new_drives();
    auto faults = std::make_shared<Faults>();
    faults->list = {fault(request)};
    EngineOptions with = options(faults);
    const auto watched = std::make_shared<Watched>(Watched{.nth = request});
    with.store.make_queue = watching_queue_factory(watched, with.store.make_queue);
    const auto first = train(with);
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
    } else {
      expect_refusal_of(*watched);
    }
    return true;
  }
  // What was read wrongly can be read again; a record that the drive took wrongly, and that was committed, is lost.
  void expect_refusal_of(const Watched& faulty) const {
    EXPECT_EQ(kind(), Kind::kWrongData);
    EXPECT_EQ(faulty.op, IoOp::kWrite) << error_;
    EXPECT_THAT(error_, AllOf(HasSubstr("block p"), HasSubstr(faulty.place)));
  }

  ReferenceOptions reference() const {
    ReferenceOptions options{.micro_batches = 1, .steps = course() == Course::kTwoDrives ? 4 : 3, .max_norm = 0.05};
    if (updates_early()) options.max_norm = median_norm(model_, options);
    return options;
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
  ModelSpec model_ = toy_model({.visits = 3, .elements = 400}, Precision::kBf16);
  ReferenceOptions reference_ = reference();
  RunRecord expected_ = train_reference(model_, reference_);
  std::shared_ptr<RecordedDrives> drives_;
  std::string error_;
  Counts counts_;
};

TEST_P(FaultSweep, every_request_may_fail) {
  int64_t request = 0;
  while (!HasFailure() && run_with_fault_at(request)) request += SLUICE_SWEEP_STRIDE;
  std::cout << fmt::format(
      "{}, {}: {} requests, a fault in every {}: {} runs finished, {} stopped with an error, {} of them resumed"
      " to the same bits, {} refused to resume\n",
      name_of(course()), name_of(kind()), request,
      SLUICE_SWEEP_STRIDE == 1 ? "one" : fmt::format("{}th", SLUICE_SWEEP_STRIDE), counts_.finished, counts_.stopped,
      counts_.resumed, counts_.refused);
  EXPECT_GE(request, 100);
  if (kind() == Kind::kShort) {
    EXPECT_EQ(counts_.stopped, 0);
  } else {
    EXPECT_GT(counts_.resumed, 0);
  }
}

std::string word_of(const ::testing::TestParamInfo<std::tuple<Course, Kind>>& sweep) {
  std::string word(name_of(std::get<Kind>(sweep.param)));
  std::replace(word.begin(), word.end(), ' ', '_');
  return word;
}
constexpr auto kKinds = {Kind::kEio, Kind::kShort, Kind::kNoSpace, Kind::kWrongData};
INSTANTIATE_TEST_SUITE_P(OneDrive, FaultSweep, Combine(Values(Course::kOneDrive), ValuesIn(kKinds)), word_of);
INSTANTIATE_TEST_SUITE_P(TwoDrives, FaultSweep, Combine(Values(Course::kTwoDrives), ValuesIn(kKinds)), word_of);
INSTANTIATE_TEST_SUITE_P(Speculative, FaultSweep, Combine(Values(Course::kSpeculative), ValuesIn(kKinds)), word_of);
INSTANTIATE_TEST_SUITE_P(Replay, FaultSweep, Combine(Values(Course::kReplay), ValuesIn(kKinds)), word_of);

}  // namespace
}  // namespace sluice::testing
