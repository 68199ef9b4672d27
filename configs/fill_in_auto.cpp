#include "configs/fill_in_auto.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/errors.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

struct Filled {
  std::string_view path;
  std::string_view value;  // as JSON; null: as if the key were not there
  std::string_view why;
};
constexpr Filled kFilled[] = {
    {"gradient_clipping", "1.0", "the Trainer's default of max_grad_norm"},
    {"optimizer.params.betas", "[0.9, 0.999]", "the Trainer's default"},
    {"optimizer.params.eps", "1e-8", "the Trainer's default"},
    {"optimizer.params.weight_decay", "0.0", "the Trainer's default"},
    {"scheduler.params.warmup_min_lr", "0", "as the Trainer takes it"},
    {"scheduler.params.warmup_num_steps", "1", "as of a Trainer without --warmup_steps"},
    {"bf16.enabled", "false", "as of a Trainer without --bf16; write true for bf16"},
    {"fp16.enabled", "false", "as of a Trainer without --fp16; write true for fp16"},
    {"amp.enabled", "false", "the Trainer's default"},
    {"zero_optimization.stage", "null", "no stage is needed, one rank has all"},
    {"zero_optimization.offload_optimizer.device", "null", "the budgets decide"},
    {"zero_optimization.offload_param.device", "null", "the budgets decide"},
    {"zero_optimization.offload_optimizer.nvme_path", "null", "sluice.nvme names the drives"},
    {"zero_optimization.offload_param.nvme_path", "null", "sluice.nvme names the drives"},
};

struct ToWrite {
  std::string_view path;
  std::string_view what;
};
constexpr ToWrite kToWrite[] = {
    {"optimizer.params.lr", "write the rate (the Trainer's default is 5e-5)"},
    {"scheduler.params.total_num_steps", "write the number of steps of the whole run"},
    {"fp16.loss_scale", "write the scale, or 0 for a dynamic one"},
    {"fp16.initial_scale_power", "write the power, or leave it out for 16"},
    {"fp16.loss_scale_window", "write the number of steps, or leave it out for 1000"},
    {"fp16.hysteresis", "write the number of overflows, or leave it out for 2"},
    {"fp16.min_loss_scale", "write the scale, or leave it out for 1"},
};

Json::json_pointer pointer_of(std::string_view path) {
  std::string text = fmt::format("/{}", path);
  std::ranges::replace(text, '.', '/');
  return Json::json_pointer(text);
}

bool is_auto(const Json& document, std::string_view path) {
  const Json::json_pointer at = pointer_of(path);
  return document.contains(at) && document.at(at) == "auto";
}

}  // namespace

std::string fill_in_auto(const std::string& text, const std::string& name, std::vector<std::string>& notes) {
  Json document = Json::parse(text);
  std::vector<std::string> to_write;
  for (const ToWrite& each : kToWrite) {
    if (is_auto(document, each.path)) to_write.push_back(fmt::format("\"{}\": {}", each.path, each.what));
  }
  if (!to_write.empty()) {
    throw ConfigError(fmt::format("{}: \"auto\" that is not filled in here: {}", name, fmt::join(to_write, "; ")));
  }
  for (const Filled& each : kFilled) {
    if (!is_auto(document, each.path)) continue;
    const Json value = Json::parse(each.value);
    document[pointer_of(each.path)] = value;
    notes.push_back(value.is_null()
                        ? fmt::format("\"{}\" \"auto\" is not needed: {}", each.path, each.why)
                        : fmt::format("\"{}\" \"auto\": {} is taken, {}", each.path, value.dump(), each.why));
  }
  return document.dump();
}

}  // namespace sluice
