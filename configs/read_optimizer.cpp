#include "configs/read_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// The hyper-parameters that each type knows beside lr and weight_decay, and its defaults: those of DeepSpeed 0.19.5's
// optimizers for state that is offloaded (deepspeed/ops: adam/cpu_adam.py, adagrad/cpu_adagrad.py, lion/cpu_lion.py),
// and of torch.optim.SGD, which it takes as it is.
struct OptimizerType {
  std::string_view name;
  AdamOptions defaults;
  bool betas, eps, momentum;
};
const OptimizerType kOptimizerTypes[] = {
    {"AdamW", {.kind = AdamKind::kAdamW, .weight_decay = 0}, true, true, false},
    {"Adam", {.kind = AdamKind::kAdam, .weight_decay = 0}, true, true, false},
    {"Adagrad",
     {.kind = AdamKind::kAdagrad, .learning_rate = 1e-2, .epsilon = 1e-10, .weight_decay = 0},
     false,
     true,
     false},
    {"Lion", {.kind = AdamKind::kLion, .weight_decay = 0}, true, false, false},
    {"SGD", {.kind = AdamKind::kSgd, .weight_decay = 0}, false, false, true},
};

// DeepSpeed takes its optimizers' names in any case. Null: there is none of that name.
const OptimizerType* type_named(std::string_view given) {
  const auto lower = [](unsigned char letter) { return std::tolower(letter); };
  const auto named = [&](const OptimizerType& type) { return std::ranges::equal(type.name, given, {}, lower, lower); };
  const auto* type = std::ranges::find_if(kOptimizerTypes, named);
  return type == std::end(kOptimizerTypes) ? nullptr : type;
}

const OptimizerType& read_type(const ConfigReader& reader) {
  constexpr std::string_view kType = "optimizer.type";
  const Json* value = reader.find(kType);
  if (value == nullptr) return kOptimizerTypes[0];
  const OptimizerType* type = type_named(value->is_string() ? value->get<std::string>() : "");
  if (type == nullptr) reader.refuse(kType, *value);
  return *type;
}

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

// As DeepSpeed 0.19.5 decides (deepspeed/runtime/engine.py, _configure_basic_optimizer): "AdamW" whatever adam_w_mode
// says, and "Adam" unless it is false, have the decay of AdamW.
AdamKind read_adam_kind(const ConfigReader& reader, const OptimizerType& type, RunConfig& config) {
  constexpr std::string_view kMode = "optimizer.params.adam_w_mode";
  const AdamKind kind = type.defaults.kind;
  bool decoupled = true;
  reader.flag(kMode, [&](bool yes) {
    decoupled = yes;
    if (kind != AdamKind::kAdam && kind != AdamKind::kAdamW)
      reader.refuse(kMode, yes, fmt::format(", and not with \"optimizer.type\" \"{}\"", type.name));
  });
  if (kind == AdamKind::kAdamW && !decoupled) {
    config.notes.push_back(fmt::format(
        "not needed: \"{}\" false: \"optimizer.type\" \"AdamW\" takes weight_decay from the weights whatever "
        "it says, as in DeepSpeed; \"Adam\" with it adds weight_decay to the gradient (L2)",
        kMode));
  }
  const Json* decay = reader.find("optimizer.params.weight_decay");
  if (kind == AdamKind::kAdam && reader.find(kMode) == nullptr && decay != nullptr && *decay != 0) {
    config.notes.push_back(
        "\"optimizer.type\" \"Adam\" takes weight_decay from the weights, as \"AdamW\" does and as in DeepSpeed; "
        "\"adam_w_mode\" false adds it to the gradient (L2), as PyTorch's Adam does");
  }
  return kind == AdamKind::kAdam && decoupled ? AdamKind::kAdamW : kind;
}

// Where the file says nothing of it, which PyTorch's users would take for another value.
void default_decay(const ConfigReader& reader, RunConfig& config) {
  constexpr std::string_view kDecay = "optimizer.params.weight_decay";
  if (config.optimizer.kind != AdamKind::kAdamW || reader.find("optimizer.type") == nullptr) return;
  if (reader.find(kDecay) != nullptr) return;
  const Json* torch_adam = reader.find("optimizer.params.torch_adam");
  const bool torch = torch_adam != nullptr && *torch_adam == true;
  if (torch) config.optimizer.weight_decay = 0.01;
  config.notes.push_back(
      torch ? fmt::format("\"{}\" is not given: 0.01, as of PyTorch's AdamW, which \"torch_adam\" asks for", kDecay)
            : fmt::format("\"{}\" is not given: 0, as in DeepSpeed; PyTorch's AdamW has 0.01", kDecay));
}

}  // namespace

bool is_optimizer_type(std::string_view name) { return type_named(name) != nullptr; }

void read_optimizer(const ConfigReader& reader, RunConfig& config) {
  AdamOptions& optimizer = config.optimizer;
  const OptimizerType& type = read_type(reader);
  optimizer = type.defaults;
  optimizer.kind = read_adam_kind(reader, type, config);
  default_decay(reader, config);
  if (const Json* params = reader.find("optimizer.params")) {
    const ConfigReader own(*params, reader.name(), {"optimizer.params.", "optimizer.params."});
    own.number("lr", optimizer.learning_rate, 0, kNoLimit);
    read_hyper_parameters(own, type, optimizer);
  }
  const Json* groups = reader.find("optimizer.param_groups");
  for (size_t i = 0; groups != nullptr && i < groups->size(); ++i) {
    const ConfigReader own((*groups)[i], reader.name(),
                           {fmt::format("optimizer.param_groups[{}].", i), "optimizer.param_groups."});
    ParamGroupConfig& group =
        config.param_groups.emplace_back(ParamGroupConfig{.patterns = {}, .optimizer = optimizer});
    read_patterns(own, group.patterns);
    own.number("lr_factor", group.lr_factor, 0, kNoLimit);
    read_hyper_parameters(own, type, group.optimizer);
  }
}

}  // namespace sluice
