// The probe measures something on any machine, and leaves nothing behind. Its figures are the machine's affair.
#include "engine/machine_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "core/bytes.h"
#include "core/errors.h"
#include "core/topology.h"
#include "engine/device_probe.h"
#include "tests/contract/every_device.h"
#include "tests/engine/engine_fixture.h"
#include "tests/fakes/late_device.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice::testing {
namespace {

TEST(MachineProbe, gives_speeds_that_a_prediction_can_start_from_and_leaves_no_file) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
    const TempFolder folder;
    MachineProbeOptions options{.format = {precision, Optimizer::kAdam},
                                .gradient_dtype = weights_dtype(precision),
                                .update_threads = 2,
                                .compute_threads = 1};
    options.store.folder = folder.path();
    options.store.queue.depth = 8;
    const MachineSpeeds speeds = probe_machine(options);
    EXPECT_NO_THROW(speeds.validate());
    EXPECT_GT(speeds.summed_ns_per_element, 0);
    EXPECT_GT(speeds.out_of_place_ns_per_element, 0);
    EXPECT_EQ(speeds.update_threads, 2);
    EXPECT_EQ(speeds.cores, usable_cores(*make_topology()));
    EXPECT_EQ(speeds.compute_cores, 1);
    EXPECT_EQ(speeds.copy_cores, 1);
    EXPECT_EQ(speeds.device_update_gb_per_s, 0);
    EXPECT_GT(speeds.hop_us, 0.05) << "no two threads wake each other in so little";
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(MachineProbe, of_two_drives_makes_no_folder_and_of_many_threads_uses_no_more_cores_than_there_are) {
  const TempFolder first, second;
  MachineProbeOptions options{.format = {Precision::kBf16, Optimizer::kLion}, .kind = AdamKind::kLion};
  options.store.folder = first.path();
  options.store.more_folders = {second.path() / "new"};
  options.store.queue.depth = kMaxQueueDepth;  // for each, and the queue is no deeper for both
  options.compute_threads = 100'000;           // share the cores that there are
  EXPECT_NO_THROW(probe_machine(options).validate());
  EXPECT_FALSE(std::filesystem::exists(second.path() / "new"));
}

// Slow with requests like the one before: as if other work had ended just before reads and writes were tried together.
class SlowAlone final : public IoQueue {
 public:
  explicit SlowAlone(const IoQueueOptions& options) : IoQueue(options.depth), inner_(make_io_queue(options)) {}
  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  void do_submit(const IoRequest& request) override {
    if (request.op == before_) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    before_ = request.op;
    inner_->submit(request);
  }
  void do_flush() override { inner_->flush(); }
  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override { return inner_->poll(completions, wait); }

  std::unique_ptr<IoQueue> inner_;
  IoOp before_ = IoOp::kSync;
};

TEST(MachineProbe, of_a_drive_that_other_work_has_just_left_alone_has_no_more_at_once_than_one_after_the_other) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kMemory, folder.path() / "drive", 64 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  StoreOptions store{.folder = folder.path() / "drive"};
  store.queue.depth = 8;
  store.make_queue = [](const IoQueueOptions& options) { return std::make_unique<SlowAlone>(options); };
  MachineSpeeds speeds;
  probe_drives(store, speeds);
  EXPECT_LT(speeds.read_gb_per_s, 0.5);
  EXPECT_LT(speeds.write_gb_per_s, 0.5);
  EXPECT_LE(speeds.mixed_gb_per_s, speeds.read_gb_per_s + speeds.write_gb_per_s);
}

TEST(DeviceProbe, throws_what_a_copy_or_compute_ended_with) {
  const auto refusal = [](void (*fail_next)(LateDevice&)) {
    DeviceProbeOptions options{.format = Precision::kBf16};
    options.make_device = [fail_next](DeviceKind, int64_t bytes, AdamKernel kernel) {
      auto device = std::make_unique<LateDevice>(bytes, kernel);
      fail_next(*device);
      return device;
    };
    return message_of<DeviceError>([&] { probe_device(options); });
  };
  EXPECT_EQ(refusal([](LateDevice& device) { device.fail_next(CopyLane::kDownload); }), "this copy was to fail");
  EXPECT_EQ(refusal([](LateDevice& device) { device.fail_next_end_of_compute(); }), "this compute was to fail");
}

class DeviceSpeedsOf : public OverDevices {};

TEST_P(DeviceSpeedsOf, are_there_for_every_format_of_records) {
  for (const RecordFormat format : {RecordFormat(Precision::kBf16), RecordFormat(Precision::kFp16),
                                    RecordFormat(Precision::kFp32, Optimizer::kLion, DType::kBf16)}) {
    const DeviceSpeeds speeds =
        probe_device({.device = GetParam(),
                      .format = format,
                      .gradient_dtype = weights_dtype(format.precision),
                      .kind = format.optimizer == Optimizer::kLion ? AdamKind::kLion : AdamKind::kAdamW});
    for (const double gb_per_s : {speeds.upload_gb_per_s, speeds.download_gb_per_s, speeds.copy_gb_per_s,
                                  speeds.update_gb_per_s, speeds.add_gb_per_s, speeds.close_gb_per_s}) {
      EXPECT_GT(gb_per_s, 0);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(, DeviceSpeedsOf, every_device(), name_of_device);

}  // namespace
}  // namespace sluice::testing
