// `sluice report DIR`; with `--out -` the page goes to standard output, and nothing else does.
#include <fmt/format.h>

#include "app/commands.h"
#include "app/output_file.h"
#include "app/report_page.h"
#include "app/run_data.h"
#include "app/run_folder.h"
#include "app/what_if.h"
#include "core/errors.h"
#include "core/pending_file.h"

namespace sluice {
namespace {

// The rest of a report depends on neither.
template <typename Read>
auto or_left_out(const char* part, const Log& log, const Read& read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const ConfigError& error) {
    say(log, LogLevel::kWarning, fmt::format("the report leaves out {}: {}", part, error.what()));
    return std::nullopt;
  }
}

// Nothing: standard output.
std::optional<std::filesystem::path> page_file(const ReportCommand& command, const RunFolder& folder) {
  if (command.out == "-") return std::nullopt;
  return output_file(command.out.empty() ? folder.path() / "report.html" : std::filesystem::path(command.out),
                     {.begins_with = "<!doctype html>", .name = "a report"});
}

}  // namespace

void run_report(const ReportCommand& command, Console& console) {
  const RunFolder folder(std::filesystem::absolute(command.folder).lexically_normal());
  const std::optional<std::filesystem::path> out = page_file(command, folder);
  const RunData run = read_run(folder);
  if (run.damaged_lines > 0) {
    say(console.log(), LogLevel::kWarning,
        fmt::format("the report leaves out {} damaged line{} of {}", run.damaged_lines,
                    run.damaged_lines == 1 ? "" : "s", folder.metrics_file().string()));
  }
  const auto timeline =
      or_left_out("a step's timeline", console.log(), [&] { return read_timeline(folder.timeline_file()); });
  const auto help =
      or_left_out("what would help", console.log(), [&] { return read_would_help(folder.would_help_file()); });
  const std::optional<WouldHelp> offers = help.value_or(std::nullopt);
  const std::string page = report_page(run, timeline, offers);
  if (!out) return console.print(page.substr(0, page.find_last_not_of('\n') + 1));
  PendingFile file(*out);
  file.append(page);
  file.publish();
  console.print(what_bound(steady_figures(run), offers));
  console.print(out->string());
}

}  // namespace sluice
