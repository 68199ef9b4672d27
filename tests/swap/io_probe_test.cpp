// Which settings are tried, and what is said where none can be.
#include "swap/io_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class ProbeIo : public testing::Test {
 protected:
  IoProbeOptions options(std::vector<IoSettings> candidates) {
    return {.folders = {folder_.path() / "a", folder_.path() / "b"},
            .candidates = std::move(candidates),
            .memory = memory_.span(),
            .scratch_bytes = 4 * kMiB,
            .limit_ns = 1'000'000,
            .make_queue = [this](const IoQueueOptions& queue) {
              depths_.push_back(queue.depth);
              return make_io_queue(queue);
            }};
  }

  TempFolder folder_;
  Arena memory_{4 * kMiB};
  std::vector<int> depths_;
};

TEST_F(ProbeIo, tries_what_gives_every_drive_a_block_of_the_memory) {
  const IoProbe probe = probe_io(options({{.backend = IoBackend::kThreads, .block_bytes = kMiB},
                                          {.backend = IoBackend::kThreads, .block_bytes = 2 * kMiB},
                                          {.backend = IoBackend::kThreads, .block_bytes = 4 * kMiB}}));
  ASSERT_EQ(probe.trials.size(), 2u);
  for (const IoTrial& trial : probe.trials) EXPECT_GT(trial.both_gb_per_s(), 0);
}

TEST_F(ProbeIo, asks_for_no_queue_deeper_than_there_is) {
  EXPECT_NO_THROW(probe_io(options({{.backend = IoBackend::kThreads, .block_bytes = 64 * kKiB, .depth = 3000}})));
  EXPECT_THAT(depths_, testing::ElementsAre(kMaxQueueDepth));
}

TEST_F(ProbeIo, where_no_block_fits_says_so) {
  const auto [details, message] = failure_of([&] { probe_io(options({{.block_bytes = 8 * kMiB}})); });
  EXPECT_EQ(details.error_number, 0);
  EXPECT_EQ(details.path, (folder_.path() / "a").string());
  EXPECT_THAT(message, testing::AllOf(HasSubstr("no candidate's block fits"), HasSubstr("4.0 MiB of memory")));
}

TEST_F(ProbeIo, where_every_backend_is_refused_gives_the_first_ones_reason) {
  IoProbeOptions refused = options({{.block_bytes = kMiB}, {.backend = IoBackend::kThreads, .block_bytes = kMiB}});
  refused.make_queue = [](const IoQueueOptions& queue) -> std::unique_ptr<IoQueue> {
    throw IoError({.action = "set-up",
                   .path = "queue",
                   .error_number = queue.backend == IoBackend::kUring ? EPERM : ENOMEM,
                   .advice = {}});
  };
  EXPECT_EQ(failure_of([&] { probe_io(refused); }).details.error_number, EPERM);
}

}  // namespace
}  // namespace sluice
