#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/setup.h"
#include "core/bytes.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of_home(Home home) {
  return home == Home::kDevice ? "device" : home == Home::kHost ? "host" : "nvme";
}

// Chunks, elements and bytes of each group by home.
Json homes_json(const Plan& plan) {
  Json json = Json::object();
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const ChunkHomes& homes = plan.chunks[i];
    const int64_t elements = plan.geometry.chunks()[i].elements;
    const auto add = [&](Group group, Home home, int64_t bytes_each) {
      Json& row = json[std::string(name_of(group))][std::string(name_of_home(home))];
      if (row.is_null()) row = {{"chunks", 0}, {"bytes", 0}};
      row["chunks"] = row["chunks"].get<int64_t>() + 1;
      row["bytes"] = row["bytes"].get<int64_t>() + elements * bytes_each;
    };
    const RecordFormat format = plan.options.format();
    add(Group::kWeights, homes.weights, bytes_per_element(format, Group::kWeights));
    add(Group::kState, homes.state, bytes_per_element(format, Group::kState));
    add(Group::kGradient, homes.gradient, bytes_of(plan.options.gradient_dtype));
  }
  return json;
}

Json plan_json(const RunSetup& setup, const Plan& plan, const WorkspaceNeed& workspace) {
  Json json;
  json["parameters"] = setup.model.parameter_count();
  json["precision"] = std::string(name_of(plan.options.precision));
  json["budgets"] = {{"device", plan.options.device_bytes}, {"host", plan.options.host_bytes}};
  json["workspace"] = {{"bytes", workspace.bytes}, {"measured", workspace.from == WorkspaceNeed::From::kMeasured}};
  json["chunk_elements"] = plan.geometry.chunk_elements();
  json["chunks"] = plan.chunks.size();
  json["kept_on_device"] =
      std::count_if(plan.kept_offset.begin(), plan.kept_offset.end(), [](int64_t offset) { return offset >= 0; });
  json["commit_interval"] = plan.commit_interval;
  json["disk_bytes"] = plan.disk_bytes;
  json["homes"] = homes_json(plan);
  json["uses"] = Json::array();
  for (const UseRow& row : plan.uses) {
    json["uses"].push_back({{"tier", std::string(name_of(row.tier))}, {"use", row.use}, {"bytes", row.bytes}});
  }
  json["moves_per_step"] = Json::array();
  for (const MoveRow& row : plan.moves) {
    json["moves_per_step"].push_back({{"link", row.link}, {"what", row.what}, {"bytes", row.bytes}});
  }
  return json;
}

}  // namespace

void run_plan(const PlanCommand& command, Console& console) {
  RunConfig config = load_config(command.config, command.overrides);
  make_paths_absolute(config);
  RunSetup setup = set_up(std::move(config));
  const WorkspaceNeed workspace = find_workspace(setup);
  const Plan plan = make_plan(setup.model.spec(), plan_options(setup, workspace.bytes));
  if (command.output == PlanOutput::kJson) {
    console.print(plan_json(setup, plan, workspace).dump(2));
    return;
  }
  console.print(fmt::format("{} parameters in {}; workspace {} ({})", setup.model.parameter_count(),
                            name_of(plan.options.precision), format_bytes(workspace.bytes),
                            workspace.from == WorkspaceNeed::From::kMeasured ? "measured" : "by the closed form"));
  console.print(plan.table());
}

}  // namespace sluice
