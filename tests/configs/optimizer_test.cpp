// The optimizers' kinds and defaults beside those of DeepSpeed 0.19.5. Its values are from deepspeed/ops (cpu_adam.py,
// cpu_adagrad.py, cpu_lion.py) and deepspeed/runtime/engine.py (_configure_basic_optimizer), and PyTorch 2's from
// torch.optim.AdamW and SGD.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "configs/run_config.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunConfig with(const std::string& type, const std::string& params = "{}") {
  const std::vector<std::string> overrides{"optimizer={\"type\": \"" + type + "\", \"params\": " + params + "}"};
  return parse_config(R"({"model": {}, "data": {"sequence_length": 8}, "train_batch_size": 1})", "run.json", overrides);
}

TEST(OptimizerSection, has_the_defaults_of_deepspeeds_offloaded_optimizers) {
  struct Defaults {
    std::string type;
    AdamKind kind;
    double lr, beta1, beta2, eps;
  };
  const double none = -1;
  const Defaults table[] = {{"AdamW", AdamKind::kAdamW, 1e-3, 0.9, 0.999, 1e-8},
                            {"Adam", AdamKind::kAdamW, 1e-3, 0.9, 0.999, 1e-8},
                            {"Adagrad", AdamKind::kAdagrad, 1e-2, none, none, 1e-10},
                            {"Lion", AdamKind::kLion, 1e-3, 0.9, 0.999, none},
                            {"SGD", AdamKind::kSgd, 1e-3, none, none, none}};
  for (const Defaults& each : table) {
    SCOPED_TRACE(each.type);
    const AdamOptions optimizer = with(each.type).optimizer;
    EXPECT_EQ(optimizer.kind, each.kind);
    EXPECT_EQ(optimizer.learning_rate, each.lr);
    EXPECT_EQ(optimizer.weight_decay, 0);
    EXPECT_EQ(optimizer.momentum, 0);
    if (each.beta1 != none) {
      EXPECT_EQ(optimizer.beta1, each.beta1);
    }
    if (each.beta2 != none) {
      EXPECT_EQ(optimizer.beta2, each.beta2);
    }
    if (each.eps != none) {
      EXPECT_EQ(optimizer.epsilon, each.eps);
    }
  }
}

TEST(OptimizerSection, takes_names_in_any_case) {
  EXPECT_EQ(with("adamw").optimizer.kind, AdamKind::kAdamW);
  EXPECT_EQ(with("LION").optimizer.kind, AdamKind::kLion);
  EXPECT_EQ(with("adagrad").optimizer.kind, AdamKind::kAdagrad);
}

TEST(OptimizerSection, decays_as_deepspeed_does_by_type_and_mode) {
  const std::string plain = R"({"weight_decay": 0.1})", decoupled = R"({"weight_decay": 0.1, "adam_w_mode": true})",
                    l2 = R"({"weight_decay": 0.1, "adam_w_mode": false})";
  EXPECT_EQ(with("Adam", plain).optimizer.kind, AdamKind::kAdamW);
  EXPECT_EQ(with("Adam", decoupled).optimizer.kind, AdamKind::kAdamW);
  EXPECT_EQ(with("Adam", l2).optimizer.kind, AdamKind::kAdam);
  for (const std::string& params : {plain, decoupled, l2}) {
    EXPECT_EQ(with("AdamW", params).optimizer.kind, AdamKind::kAdamW);
    EXPECT_EQ(with("AdamW", params).optimizer.weight_decay, 0.1);
  }
}

TEST(OptimizerSection, says_what_pytorchs_users_would_not_expect_of_the_decay) {
  EXPECT_THAT(with("Adam", R"({"weight_decay": 0.1})").notes,
              ElementsAre(HasSubstr("\"Adam\" takes weight_decay from the weights")));
  EXPECT_THAT(with("Adam", R"({"weight_decay": 0})").notes, IsEmpty());
  EXPECT_THAT(with("Adam", R"({"weight_decay": 0.1, "adam_w_mode": false})").notes, IsEmpty());
  EXPECT_THAT(with("AdamW", R"({"weight_decay": 0.1, "adam_w_mode": false})").notes,
              ElementsAre(HasSubstr("not needed: \"optimizer.params.adam_w_mode\" false")));
  EXPECT_THAT(with("AdamW").notes, ElementsAre(HasSubstr("is not given: 0, as in DeepSpeed")));
  EXPECT_THAT(with("AdamW", R"({"weight_decay": 0})").notes, IsEmpty());
}

TEST(OptimizerSection, without_a_type_is_adamw_and_a_note_says_so) {
  const auto notes = [](const std::string& key) {
    const std::vector<std::string> overrides{key};
    return parse_config(R"({"model": {}, "data": {"sequence_length": 8}, "train_batch_size": 1})", "run.json",
                        overrides)
        .notes;
  };
  const std::string said = "\"optimizer.type\" is not given: AdamW, with ";
  EXPECT_THAT(notes("seed=1"), ElementsAre(said + "lr 0.001 and weight_decay 0"));
  EXPECT_THAT(notes(R"(optimizer.params={"lr": 0.5, "weight_decay": 0.1})"),
              ElementsAre(said + "lr 0.5 and weight_decay 0.1"));
  EXPECT_THAT(notes(R"(scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": 0.25}})"),
              ElementsAre(said + "lr 0.25 and weight_decay 0"));
}

TEST(OptimizerSection, has_the_decay_of_pytorchs_adamw_where_that_is_asked_for) {
  for (const std::string type : {"AdamW", "Adam"}) {
    const RunConfig config = with(type, R"({"torch_adam": true})");
    EXPECT_EQ(config.optimizer.weight_decay, 0.01);
    EXPECT_THAT(config.notes, testing::Contains(HasSubstr("is not given: 0.01, as of PyTorch's AdamW")));
  }
  EXPECT_EQ(with("Adam", R"({"torch_adam": true, "adam_w_mode": false})").optimizer.weight_decay, 0);
  EXPECT_EQ(with("AdamW", R"({"torch_adam": false})").optimizer.weight_decay, 0);
  EXPECT_EQ(with("AdamW", R"({"torch_adam": true, "weight_decay": 0.5})").optimizer.weight_decay, 0.5);
}

TEST(OptimizerSection, reads_back_as_it_was_written) {
  const RunConfig configs[] = {with("AdamW", R"({"weight_decay": 0.5})"),
                               with("Adam", R"({"weight_decay": 0.5})"),
                               with("Adam", R"({"weight_decay": 0.5, "adam_w_mode": false})"),
                               with("Adagrad", R"({"eps": 1e-9})"),
                               with("Lion", R"({"weight_decay": 0.3, "betas": [0.5, 0.75]})"),
                               with("SGD", R"({"momentum": 0.9})")};
  for (const RunConfig& config : configs) {
    const RunConfig again = parse_config(to_json(config), "again", {});
    EXPECT_EQ(to_json(again), to_json(config));
    EXPECT_EQ(again.optimizer.kind, config.optimizer.kind);
    EXPECT_EQ(again.optimizer.weight_decay, config.optimizer.weight_decay);
    EXPECT_EQ(again.optimizer.momentum, config.optimizer.momentum);
    EXPECT_EQ(again.optimizer.beta1, config.optimizer.beta1);
    EXPECT_EQ(again.optimizer.beta2, config.optimizer.beta2);
    EXPECT_EQ(again.optimizer.epsilon, config.optimizer.epsilon);
    EXPECT_THAT(again.notes, IsEmpty());
  }
}

}  // namespace
}  // namespace sluice
