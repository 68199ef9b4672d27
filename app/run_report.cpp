// `sluice report DIR`.
#include <fmt/format.h>

#include "app/commands.h"
#include "app/report_page.h"
#include "app/run_data.h"
#include "app/run_folder.h"
#include "app/what_if.h"
#include "core/errors.h"
#include "data/cache_file.h"

namespace sluice {
namespace {

// The rest of a report does not depend on it.
std::optional<WouldHelp> would_help_of(const RunFolder& folder, const Log& log) {
  try {
    return read_would_help(folder.would_help_file());
  } catch (const ConfigError& error) {
    say(log, LogLevel::kWarning, fmt::format("the report leaves out what would help: {}", error.what()));
    return std::nullopt;
  }
}

}  // namespace

void run_report(const ReportCommand& command, Console& console) {
  const RunFolder folder(std::filesystem::absolute(command.folder).lexically_normal());
  const RunData run = read_run(folder);
  const std::filesystem::path out =
      command.out.empty() ? folder.path() / "report.html" : std::filesystem::path(command.out);
  PendingFile file(out);
  file.append(report_page(run, would_help_of(folder, console.log())));
  file.publish();
  console.print(what_bound(steady_figures(run)));
  console.print(out.string());
}

}  // namespace sluice
