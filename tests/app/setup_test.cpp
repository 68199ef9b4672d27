// What is said before planning takes minutes.
#include "app/setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/bytes.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

std::string said_of(const ModelSpec& model, const PlanOptions& options) {
  std::string said;
  say_what_planning_takes(model, options, [&said](LogLevel, const std::string& line) { said += line + "\n"; });
  return said;
}

Gpt2Config gpt3() {
  Gpt2Config config;
  config.n_embd = 12288, config.n_layer = 96, config.n_head = 96, config.n_positions = 2048;
  return config;
}

TEST(SayWhatPlanningTakes, of_many_chunks_whether_their_size_is_given_or_derived) {
  const Gpt2 model(gpt3(), {});
  PlanOptions options{.host_bytes = 200 * kGiB};
  EXPECT_THAT(said_of(model.spec(), options),
              AllOf(HasSubstr("chunks of 4194304 elements (derived from sluice.host_memory)"), HasSubstr("minutes")));
  options.chunk_elements = 4194304;
  EXPECT_THAT(said_of(model.spec(), options), HasSubstr("chunks of 4194304 elements (sluice.chunk_elements)"));
  options.chunk_elements *= 4;
  EXPECT_THAT(said_of(model.spec(), options), IsEmpty());
}

TEST(SayWhatPlanningTakes, of_many_turns_and_nothing_of_what_is_planned_soon) {
  const Gpt2 model({}, {});
  PlanOptions options{.host_bytes = kGiB};
  EXPECT_THAT(said_of(model.spec(), options), IsEmpty());
  options.micro_batches = 10'000;  // in 14 visits
  EXPECT_THAT(said_of(model.spec(), options), HasSubstr("10000 micro-batches in 14 visits"));
}

}  // namespace
}  // namespace sluice
