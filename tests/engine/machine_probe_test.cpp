// The probe measures something on any machine, and leaves nothing behind. Its figures are the machine's affair.
#include "engine/machine_probe.h"

#include <gtest/gtest.h>

#include "tests/engine/engine_fixture.h"

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
    EXPECT_EQ(speeds.update_threads, 2);
    EXPECT_EQ(speeds.compute_cores, 1);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(MachineProbe, of_two_drives_uses_both_folders) {
  const TempFolder first, second;
  MachineProbeOptions options{.format = {Precision::kBf16, Optimizer::kLion}, .kind = AdamKind::kLion};
  options.store.folder = first.path();
  options.store.more_folders = {second.path() / "new"};
  EXPECT_NO_THROW(probe_machine(options).validate());
  EXPECT_TRUE(std::filesystem::exists(second.path() / "new"));
}

}  // namespace
}  // namespace sluice::testing
