// What a run that goes on makes of what its commits carry.
#include "app/carried.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/errors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kData = 0x12345678;

class CarriedByCommits : public testing::Test {
 protected:
  void look(std::span<const std::byte> carried, const Carried& now) {
    StepState committed;
    committed.caller.assign(carried.begin(), carried.end());
    check_carried(committed, now, RunFolder("there"), lines_.log());
  }

  LogLines lines_;
  const Carried cpu_ = Carried::of(kData, DeviceKind::kHost), cuda_ = Carried::of(kData, DeviceKind::kCuda);
};

TEST_F(CarriedByCommits, a_device_of_another_kind_is_warned_of_either_way) {
  look(cpu_.bytes(), cpu_);
  look(cuda_.bytes(), cuda_);
  EXPECT_EQ(lines_.text(), "");
  look(cpu_.bytes(), cuda_);
  EXPECT_THAT(lines_.text(), HasSubstr("\"sluice.device\" comes to cuda: the run goes on, but not bit for bit as it "
                                       "would have under cpu"));
  look(cuda_.bytes(), cpu_);
  EXPECT_THAT(lines_.text(), HasSubstr("\"sluice.device\" comes to cpu"));
}

TEST_F(CarriedByCommits, nothing_and_what_older_versions_carried_say_nothing_of_a_device) {
  look({}, cuda_);
  look(cpu_.bytes().first(sizeof kData), cuda_);
  EXPECT_EQ(lines_.text(), "");
}

TEST_F(CarriedByCommits, another_text_is_refused_with_both_fingerprints) {
  const Carried other = Carried::of(kData + 1, DeviceKind::kHost);
  for (const size_t bytes : {sizeof kData, sizeof other}) {
    EXPECT_THAT(message_of<ConfigError>([&] { look(other.bytes().first(bytes), cpu_); }),
                AllOf(HasSubstr("there: the text is not the one"), HasSubstr("12345679"), HasSubstr("12345678")));
  }
}

}  // namespace
}  // namespace sluice
