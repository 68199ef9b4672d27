// Which parameters a group's patterns take.
#include "configs/param_groups.h"

#include <gmock/gmock.h>

#include "core/errors.h"
#include "tests/fakes/message_of.h"

namespace sluice {
namespace {

using testing::ElementsAre;

constexpr std::string_view kNames[] = {"wte.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.c_fc.weight",
                                       "h.0.c_fc.bias"};

std::string refusal(const std::vector<ParamGroupConfig>& groups) {
  return message_or<ConfigError>("taken", [&] { match_groups(groups, kNames); });
}

TEST(ParamGroups, take_what_matches_and_no_group_before_them_has_taken) {
  const std::vector<ParamGroupConfig> groups = {
      {.patterns = {"*.bias", "*.ln_?.weight"}, .optimizer = {.weight_decay = 0}},
      {.patterns = {"h.*"}, .optimizer = {.weight_decay = 0.5}, .lr_factor = 3}};
  const std::vector<ParameterGroup> matched = match_groups(groups, kNames);
  ASSERT_EQ(matched.size(), 2u);
  EXPECT_THAT(matched[0].parameters, ElementsAre("h.0.ln_1.bias", "h.0.c_fc.bias", "h.0.ln_1.weight"));
  EXPECT_EQ(matched[0].adam.weight_decay, 0);
  EXPECT_EQ(matched[0].learning_rate_factor, 1);
  EXPECT_THAT(matched[1].parameters, ElementsAre("h.0.c_fc.weight"));
  EXPECT_EQ(matched[1].adam.weight_decay, 0.5);
  EXPECT_EQ(matched[1].learning_rate_factor, 3);
}

TEST(ParamGroups, refuse_a_pattern_that_matches_nothing_and_name_the_nearest) {
  EXPECT_EQ(refusal({{.patterns = {"*.bias"}}, {.patterns = {"wte", "wte.weigth"}}}),
            "\"optimizer.param_groups[1].params\": \"wte\" matches no parameter of the model; the nearest name is "
            "\"wte.weight\" (* stands for any characters)");
}

TEST(ParamGroups, refuse_a_group_that_is_left_without_a_parameter) {
  EXPECT_EQ(refusal({{.patterns = {"h.*"}}, {.patterns = {"*.bias"}}}),
            "\"optimizer.param_groups[1].params\": every parameter that it matches belongs to a group before it: a "
            "parameter is the first's that matches; put the narrower patterns first");
}

}  // namespace
}  // namespace sluice
