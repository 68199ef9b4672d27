#include "configs/read_optimizer.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// The hyper-parameters that each type knows beside lr and weight_decay, and its defaults, which are the incumbent's.
struct OptimizerType {
  std::string_view name;
  AdamOptions defaults;
  bool betas, eps, momentum;
};
const OptimizerType kOptimizerTypes[] = {
    {"AdamW", {.kind = AdamKind::kAdamW}, true, true, false},
    {"Adam", {.kind = AdamKind::kAdam, .weight_decay = 0}, true, true, false},
    {"Adagrad",
     {.kind = AdamKind::kAdagrad, .learning_rate = 1e-2, .epsilon = 1e-10, .weight_decay = 0},
     false,
     true,
     false},
    {"Lion", {.kind = AdamKind::kLion, .beta2 = 0.99, .weight_decay = 0}, true, false, false},
    {"SGD", {.kind = AdamKind::kSgd, .weight_decay = 0}, false, false, true},
};

void read_betas(const ConfigReader& reader, AdamOptions& optimizer) {
  const Json* betas = reader.find("betas");
  if (betas == nullptr) return;
  const auto good = [](const Json& beta) { return beta.is_number() && beta >= 0.0 && beta < 1.0; };
  if (!betas->is_array() || betas->size() != 2 || !good((*betas)[0]) || !good((*betas)[1]))
    reader.refuse("betas", *betas);
  optimizer.beta1 = (*betas)[0].get<double>();
  optimizer.beta2 = (*betas)[1].get<double>();
}

// Of the run, or of one of its groups, in a document of their own.
void read_hyper_parameters(const ConfigReader& reader, const OptimizerType& type, AdamOptions& optimizer) {
  const auto only_of_others = [&](std::string_view key, bool known) {
    const Json* value = reader.find(key);
    if (value && !known) reader.refuse(key, *value, fmt::format(", and not with \"optimizer.type\" \"{}\"", type.name));
  };
  only_of_others("betas", type.betas);
  only_of_others("eps", type.eps);
  only_of_others("momentum", type.momentum);
  reader.number("eps", optimizer.epsilon, std::numeric_limits<float>::min(), kNoLimit);
  reader.number("weight_decay", optimizer.weight_decay, 0, kNoLimit);
  reader.number("momentum", optimizer.momentum, 0, 1);
  read_betas(reader, optimizer);
}

void read_patterns(const ConfigReader& reader, std::vector<std::string>& patterns) {
  const Json* value = reader.find("params");
  if (value == nullptr) reader.refuse_missing("params");
  if (!value->is_array() || value->empty()) reader.refuse("params", *value);
  for (const Json& pattern : *value) {
    if (!pattern.is_string() || pattern.get<std::string>().empty()) reader.refuse("params", *value);
    patterns.push_back(pattern.get<std::string>());
  }
}

// DeepSpeed's Adam is AdamW unless its adam_w_mode is false.
AdamKind read_adam_kind(const ConfigReader& reader, const OptimizerType& type, RunConfig& config) {
  constexpr std::string_view kMode = "optimizer.params.adam_w_mode";
  if (reader.find(kMode) == nullptr) {
    const Json* decay = reader.find("optimizer.params.weight_decay");
    if (type.defaults.kind == AdamKind::kAdam && decay != nullptr && *decay != 0) {
      config.notes.push_back(
          "\"optimizer.type\" \"Adam\" adds weight_decay to the gradient (L2), as in PyTorch; DeepSpeed's takes it "
          "from the weights unless \"adam_w_mode\" is false: that is \"AdamW\" here");
    }
    return type.defaults.kind;
  }
  AdamKind kind = type.defaults.kind;
  reader.flag(kMode, [&](bool decoupled) {
    const bool allowed = decoupled ? kind == AdamKind::kAdam || kind == AdamKind::kAdamW : kind == AdamKind::kAdam;
    if (!allowed) {
      reader.refuse(kMode, decoupled, fmt::format(", and not with \"optimizer.type\" \"{}\"", type.name));
    }
    if (decoupled) kind = AdamKind::kAdamW;
  });
  return kind;
}

}  // namespace

void read_optimizer(const ConfigReader& reader, RunConfig& config) {
  AdamOptions& optimizer = config.optimizer;
  const OptimizerType* type = &kOptimizerTypes[0];
  reader.choice<const OptimizerType*>("optimizer.type", type,
                                      {{"AdamW", &kOptimizerTypes[0]},
                                       {"Adam", &kOptimizerTypes[1]},
                                       {"Adagrad", &kOptimizerTypes[2]},
                                       {"Lion", &kOptimizerTypes[3]},
                                       {"SGD", &kOptimizerTypes[4]}});
  optimizer = type->defaults;
  optimizer.kind = read_adam_kind(reader, *type, config);
  if (const Json* params = reader.find("optimizer.params")) {
    const ConfigReader own(*params, reader.name(), {"optimizer.params.", "optimizer.params."});
    own.number("lr", optimizer.learning_rate, 0, kNoLimit);
    read_hyper_parameters(own, *type, optimizer);
  }
  const Json* groups = reader.find("optimizer.param_groups");
  for (size_t i = 0; groups != nullptr && i < groups->size(); ++i) {
    const ConfigReader own((*groups)[i], reader.name(),
                           {fmt::format("optimizer.param_groups[{}].", i), "optimizer.param_groups."});
    ParamGroupConfig& group =
        config.param_groups.emplace_back(ParamGroupConfig{.patterns = {}, .optimizer = optimizer});
    read_patterns(own, group.patterns);
    own.number("lr_factor", group.lr_factor, 0, kNoLimit);
    read_hyper_parameters(own, *type, group.optimizer);
  }
}

}  // namespace sluice
