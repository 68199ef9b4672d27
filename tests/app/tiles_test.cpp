// A model in tiles by the real command.
#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

class TilesTest : public CommandTest {
 protected:
  std::vector<std::string> tiles(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--set", "model.tiling.linear=3", "--set", "model.tiling.embedding=5"});
    return more;
  }
  // The command with a queue that does `fault` at `value` bytes.
  Ended train_with(const std::string& fault, int64_t value, const std::string& out) const {
    return CommandTest::train_with({fault, value}, out, tiles({"--set", "sluice.commit_interval=1"}));
  }
};

TEST_F(TilesTest, a_killed_run_that_is_resumed_has_the_numbers_of_one_that_was_not) {
  const Ended whole = train_with("count", 0, "whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const int64_t traffic = std::stoll(whole.out.substr(whole.out.rfind("traffic ") + 8));
  const Ended killed = train_with("kill-after-bytes", traffic * 3 / 4, "killed");
  ASSERT_GT(killed.signal, 0) << killed.err;
  const Ended resumed = train("killed", tiles({"--resume", "--set", "sluice.commit_interval=1"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, testing::HasSubstr("resuming after step "));
  EXPECT_EQ(numbers(metrics("killed")), numbers(metrics("whole")));
}

TEST_F(TilesTest, a_run_keeps_its_tiling) {
  ASSERT_EQ(train("run", tiles({"--steps", "1"})).exit_code, 0);
  const Ended refused =
      train("run", {"--resume", "--set", "model.tiling.linear=2", "--set", "model.tiling.embedding=5"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, testing::HasSubstr("the run there has \"model.tiling.linear\" 3 and not 2"));
}

// A pattern is of the name in files: all tiles of what it matches have the group's rate.
TEST_F(TilesTest, of_parameters_in_a_group_are_in_it) {
  leave_homes_to_the_planner();
  const std::vector<std::string> frozen = {
      "--steps", "3",
      "--set",   R"(optimizer.param_groups=[{"params": ["*mlp*"], "lr_factor": 0.01}])",
      "--set",   "bf16.enabled=false"};
  const Ended whole = train("whole", frozen), in_tiles = train("tiles", tiles(frozen));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(in_tiles.exit_code, 0) << in_tiles.err;
  for (size_t step = 0; step < 3; ++step) {
    const double wanted = metrics("whole")[step]["loss"], loss = metrics("tiles")[step]["loss"];
    EXPECT_NEAR(loss / wanted, 1, 1e-5) << step;
  }
}

TEST_F(TilesTest, an_export_opened_in_transformers_continues_a_prompt_as_generate_does) {
  if (!has_transformers()) GTEST_SKIP() << SLUICE_PYTHON << " has no transformers";
  leave_homes_to_the_planner();
  ASSERT_EQ(train("run", tiles({"--steps", "30", "--set", "bf16.enabled=false"})).exit_code, 0);
  export_and_continue();
  if (HasFatalFailure()) return;
  // And the other way round: whole layers start from it, and tiles do.
  for (const char* linear : {"1", "2"}) {
    const Ended from = train(std::string("from") + linear,
                             {"--steps", "1", "--set", "model.path=" + file("out"), "--set",
                              std::string("model.tiling.linear=") + linear, "--set", "bf16.enabled=false"});
    EXPECT_EQ(from.exit_code, 0) << from.err;
  }
  const double whole = metrics("from1")[0]["loss"], tiled = metrics("from2")[0]["loss"];
  EXPECT_NEAR(tiled / whole, 1, 1e-5);
  EXPECT_LT(whole, 5.0) << "the weights were not those of a trained model";
}

}  // namespace
}  // namespace sluice
