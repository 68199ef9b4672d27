// When updates run early under `auto`.
#include "engine/speculation.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SpeculationChoice, follows_the_last_steps) {
  Speculation speculation;
  int64_t step = 0;
  const auto note = [&](int steps, Speculation::Scale scale) {
    std::string last;
    for (int i = 0; i < steps; ++i) last = speculation.note(++step, scale).value_or(last);
    return last;
  };
  EXPECT_EQ(speculation.next(), Speculation::Choice::kDeferred);
  EXPECT_EQ(note(1, Speculation::Scale::kAsPredicted), "");
  EXPECT_EQ(note(1, Speculation::Scale::kOther), "");
  EXPECT_EQ(note(7, Speculation::Scale::kAsPredicted), "");
  EXPECT_THAT(note(1, Speculation::Scale::kAsPredicted),
              AllOf(HasSubstr("run early, in the backward, from step 11 on"), HasSubstr("none of the last 8 steps")));
  EXPECT_EQ(speculation.next(), Speculation::Choice::kSpeculative);
  EXPECT_EQ(note(1, Speculation::Scale::kOther), "");
  EXPECT_EQ(speculation.next(), Speculation::Choice::kSpeculative);
  EXPECT_THAT(note(1, Speculation::Scale::kOther),
              AllOf(HasSubstr("wait for the clip from step 13 on"), HasSubstr("in 2 of the last 8 steps")));
  EXPECT_EQ(speculation.next(), Speculation::Choice::kDeferred);
}

TEST(SpeculationChoice, needs_no_whole_window_where_a_run_begins_without_a_clip) {
  Speculation speculation;
  EXPECT_EQ(speculation.note(1, Speculation::Scale::kAsPredicted), std::nullopt);
  EXPECT_THAT(speculation.note(2, Speculation::Scale::kAsPredicted).value_or(""),
              AllOf(HasSubstr("from step 3 on"), HasSubstr("none of the last 2 steps")));
  EXPECT_EQ(speculation.next(), Speculation::Choice::kSpeculative);
  EXPECT_EQ(speculation.note(3, Speculation::Scale::kOther), std::nullopt);
  EXPECT_THAT(speculation.note(4, Speculation::Scale::kOther).value_or(""),
              AllOf(HasSubstr("from step 5 on"), HasSubstr("in 2 of the last 4 steps"), HasSubstr("after 8 steps")));
}

}  // namespace
}  // namespace sluice
