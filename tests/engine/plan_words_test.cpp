// What a plan says of itself, and what is said of budgets that hold none.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "core/errors.h"
#include "tests/engine/homes_fixture.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The number behind these words; nothing where they say that none would do.
std::optional<int64_t> named(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) {
    ADD_FAILURE() << words << " is not in " << text;
    return std::nullopt;
  }
  std::istringstream rest(text.substr(at + words.size()));
  int64_t bytes = 0;
  return rest >> bytes ? std::optional(bytes) : std::nullopt;
}

class PlanWords : public Homes {
 protected:
  PlanWords() : wish_(options(1)) {
    wish_.workspace_bytes = 12345;
    wish_.speeds.reset();
  }
  bool holds(std::optional<int64_t> device_bytes, std::optional<int64_t> host_bytes) const {
    PlanOptions wish = wish_;
    wish.device_bytes = device_bytes.value();
    wish.host_bytes = host_bytes.value();
    return find_plan(model_, wish).has_value();
  }
  std::string refusal() const {
    return message_of<BudgetError>([&] { make_plan(model_, wish_); });
  }
  PlanOptions wish_;
};

constexpr auto kDeviceAlone = "smallest device_memory that would do with this host_memory: ";
constexpr auto kHostAlone = "smallest host_memory that would do with this device_memory: ";

TEST_F(PlanWords, of_a_refusal_name_each_budget_that_would_do_alone_to_the_byte) {
  const int64_t ample = 16 * kMiB, device = Planner(model_, wish_).smallest_device(ample).value();
  const int64_t host = Planner(model_, wish_).smallest_host(ample).value();
  int device_alone = 0, host_alone = 0;
  for (const auto& [device_bytes, host_bytes] :
       {std::pair(device - 1, ample), {ample, host - 1}, {device + 64 * kKiB, host - 1}, {device, host}}) {
    if (holds(device_bytes, host_bytes)) continue;
    wish_.device_bytes = device_bytes;
    wish_.host_bytes = host_bytes;
    const std::string text = refusal();
    EXPECT_THAT(text, HasSubstr("sluice.device_memory " + std::to_string(device_bytes)));
    EXPECT_THAT(text, HasSubstr("workspace alone takes " + format_bytes(12345)));
    EXPECT_THAT(text, HasSubstr("sluice.host_memory " + std::to_string(host_bytes)));
    if (const auto least = named(text, kDeviceAlone)) {
      ++device_alone;
      EXPECT_TRUE(holds(least, host_bytes)) << text;
      EXPECT_FALSE(holds(*least - 1, host_bytes)) << text;
    }
    if (const auto least = named(text, kHostAlone)) {
      ++host_alone;
      EXPECT_TRUE(holds(device_bytes, least)) << text;
      EXPECT_FALSE(holds(device_bytes, *least - 1)) << text;
    }
    EXPECT_THAT(text, Not(HasSubstr("smallest pair")));
  }
  EXPECT_GT(device_alone, 0);
  EXPECT_GT(host_alone, 0);
}

TEST_F(PlanWords,
       of_a_refusal_name_the_least_device_memory_and_the_least_host_memory_beside_it_where_neither_would_do) {
  const int64_t ample = 16 * kMiB, device = Planner(model_, wish_).smallest_device(ample).value();
  wish_.device_bytes = device / 2;
  wish_.host_bytes = Planner(model_, wish_).smallest_host(ample).value() / 2;
  const std::string text = refusal();
  EXPECT_THAT(text, HasSubstr(std::string(kDeviceAlone) + "none would do"));
  EXPECT_THAT(text, HasSubstr(std::string(kHostAlone) + "none would do"));
  EXPECT_EQ(named(text, "smallest pair: device_memory "), device);
  const auto host = named(text, fmt::format("device_memory {} ({}), host_memory ", device, format_bytes(device)));
  ASSERT_TRUE(host);
  EXPECT_TRUE(holds(device, host)) << text;
  EXPECT_FALSE(holds(device, *host - 1)) << text;
}

TEST_F(PlanWords, in_the_table_have_a_line_for_each_use_that_takes_any_and_their_sum) {
  const Plan plan = make_plan(model_, wish_);
  const std::string table = plan.table();
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    int64_t sum = 0;
    int empty = 0;
    for (const UseRow& row : plan.uses) {
      if (row.tier != tier) continue;
      const std::string line = fmt::format("{:<8} {:<38} {:>12}\n", name_of(tier), row.use, format_bytes(row.bytes));
      EXPECT_EQ(table.find(line) != std::string::npos, row.bytes > 0) << line;
      empty += row.bytes == 0 ? 1 : 0;
      sum += row.bytes;
    }
    const std::string words = tier == Tier::kNvme ? "= disk needed" : "= planned";
    const std::string budget =
        tier == Tier::kNvme ? ""
                            : "  of " + format_bytes(tier == Tier::kDevice ? wish_.device_bytes : wish_.host_bytes);
    EXPECT_THAT(table,
                HasSubstr(fmt::format("{:<8} {:<38} {:>12}{}\n", name_of(tier), words, format_bytes(sum), budget)));
    if (tier == Tier::kHost) {
      EXPECT_GT(empty, 0);
    }
  }
  EXPECT_THAT(table, HasSubstr("commit every 1 step: a crash loses at most 2 steps"));
}

TEST_F(PlanWords, of_homes_say_who_chose_them_and_what_binds) {
  Plan plan = make_plan(model_, wish_);
  EXPECT_EQ(plan.homes_words(), "in the fixed order: no speeds are known");
  plan.busiest = Busiest{LaneGroup::kNvme, 90, 100};
  EXPECT_EQ(plan.homes_words(), "in the fixed order, as no other homes are predicted to be faster: nvme binds");
  plan.homes_by = HomesBy::kSpeeds;
  plan.named.state = {{HomeKind::kNvme, 1}};
  plan.named.activations = {{HomeKind::kDevice, 1}};
  plan.host_state = HostStateOrder::kBehindReadAhead;
  plan.busiest = Busiest{LaneGroup::kCpu, 49, 84};
  EXPECT_EQ(plan.homes_words(),
            "so that the busiest resource has the least to do, all state on nvme, all activations on device, in host "
            "memory state that is not read ahead; busiest: cpu 49 of 84 ms; lanes wait for each other");
}

TEST_F(PlanWords, of_updates_say_how_many_are_early_and_when_the_others_are) {
  Plan plan = make_plan(model_, wish_);
  const std::string next = "all beside the next forward";
  plan.update_times.assign(8, UpdateTime::kDeferred);
  EXPECT_EQ(plan.update_words(), next);
  plan.options.update = UpdateMode::kAuto;
  EXPECT_EQ(plan.update_words(), next + "; none in the backward is predicted to shorten the step");
  plan.update_times[3] = plan.update_times[5] = UpdateTime::kEarly;
  EXPECT_EQ(plan.update_words(),
            "2 of 8 chunks in the backward while the clip does not engage, the others beside the next forward");
  plan.options.update = UpdateMode::kReplay;
  plan.update_times.assign(8, UpdateTime::kEarly);
  EXPECT_EQ(plan.update_words(), "8 of 8 chunks in the backward");
}

// Of a replayed step also what it writes in every run.
TEST_F(PlanWords, of_undone_bytes_are_those_of_early_updates_and_of_tensors_that_are_written_again) {
  using enum HomeKind;
  wish_.placement = {.weights = {{kNvme, 1}}, .state = {{kNvme, 1}}, .activations = {{kNvme, 1}}};
  for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    wish_.update = update;
    const Plan plan = make_plan(model_, wish_);
    int64_t undone = 0;
    for (int c = 0; c < std::ssize(plan.chunks); ++c) {
      if (!plan.speculated(c)) continue;
      undone += plan.record_bytes(c, Group::kWeights) + plan.record_bytes(c, Group::kState);
    }
    EXPECT_EQ(undone > 0, update != UpdateMode::kDeferred);
    int64_t tensors = 0;
    for (const MoveRow& row : plan.moves) {
      if (row.link == "nvme write" && row.what.starts_with("activations")) tensors += row.bytes;
    }
    EXPECT_GT(tensors, 0);
    EXPECT_EQ(plan.undone_bytes, undone + (update == UpdateMode::kReplay ? tensors : 0)) << name_of(update);
  }
}

}  // namespace
}  // namespace sluice::testing
