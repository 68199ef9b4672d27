// The smallest budgets: of all sizes of chunks and of all that a plan may leave out, and the same whatever is searched.
#include <gtest/gtest.h>

#include "core/bytes.h"
#include "engine/few_pieces.h"
#include "engine/planner.h"
#include "tests/engine/machines.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {
namespace {

class SmallestBudgets : public ::testing::Test {
 protected:
  SmallestBudgets() {
    options_.device_bytes = 4 * kMiB;
    options_.host_bytes = 64 * kMiB;
    options_.workspace_bytes = 4096;
    options_.commit_interval = 1;
  }
  int64_t smallest_host() const { return Planner(model_, options_).smallest_host(options_.device_bytes).value(); }

  ModelSpec model_ = toy_model({.visits = 6, .elements = 60'000}, Precision::kBf16);
  PlanOptions options_;
};

// Few large chunks need large buffers, many small ones large tables.
TEST_F(SmallestBudgets, are_no_larger_than_with_chunks_of_any_size_that_could_be_named) {
  const int64_t least = smallest_host();
  int64_t least_named = INT64_MAX;
  for (int64_t elements = 512; elements <= 65536; elements *= 2) {
    options_.chunk_elements = elements;
    least_named = std::min(least_named, smallest_host());
  }
  EXPECT_LE(least, least_named);
  options_.chunk_elements = 0;
  options_.host_bytes = least;
  EXPECT_GT(make_plan(model_, options_).geometry.chunk_elements(), 1024);
}

TEST_F(SmallestBudgets, update_fewer_chunks_early_where_early_updates_are_asked_for) {
  options_.chunk_elements = 512;
  options_.update = UpdateMode::kSpeculative;
  options_.host_bytes = smallest_host();
  const Plan plan = make_plan(model_, options_);
  EXPECT_TRUE(plan.any_speculated());
  options_.speculated_share = 0.75;
  EXPECT_GT(smallest_host(), options_.host_bytes);
}

// Among fewer and larger chunks than there are, plans are found whose tables happen to be smaller.
TEST_F(SmallestBudgets, hold_a_model_from_there_on_whether_speeds_are_known_or_not) {
  options_.chunk_elements = 256;
  for (const UpdateMode update : {UpdateMode::kSpeculative, UpdateMode::kAuto}) {
    options_.update = update;
    const int64_t least = smallest_host();
    for (int percent = 80; percent <= 130; percent += SLUICE_IS_SANITIZED ? 25 : 5) {
      options_.host_bytes = least * percent / 100;
      options_.speeds = StepSpeeds{endless(), std::vector<VisitTime>(model_.visits.size())};
      set_drives(options_.speeds->machine, 0.01);
      ASSERT_TRUE(in_few_pieces(model_, options_).fewer);
      EXPECT_EQ(find_plan(model_, options_).has_value(), percent >= 100) << name_of(update) << ", " << percent;
      options_.speeds.reset();
      EXPECT_EQ(find_plan(model_, options_).has_value(), percent >= 100) << name_of(update) << ", " << percent;
    }
  }
}

}  // namespace
}  // namespace sluice::testing
