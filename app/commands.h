// The sub-commands other than train: what the command line says, and what each does. They throw what the layers below
// throw.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "app/console.h"
#include "core/dtype.h"
#include "swap/io_queue.h"

namespace sluice {

enum class PlanOutput { kTable, kJson };
struct PlanCommand {
  std::string config;
  std::vector<std::string> overrides;
  PlanOutput output = PlanOutput::kTable;
  std::string machine;               // --machine
  std::vector<std::string> what_if;  // --what-if: KEY=VALUE,..., all at once
};
void run_plan(const PlanCommand& command, Console& console);

struct TuneCommand {
  std::string config;
  std::vector<std::string> overrides;
  std::string data;  // empty: made-up tokens
  std::string out;   // empty: NAME.tuned.json beside the configuration NAME.json
  int trials = 3, steps = 2;
  enum class Output { kTable, kJson } output = Output::kTable;
  IoQueueFactory make_queue = make_io_queue;  // of the trials; tests wrap a real one
};
// Returns the signal that stopped it, or 0. Handles SIGINT, SIGTERM and SIGHUP while it works.
int run_tune(const TuneCommand& command, Console& console);

struct GenerateCommand {
  std::string folder;
  std::string prompt;
  int64_t tokens = 64;
  double temperature = 1;
  uint64_t seed = 0;
  std::vector<std::string> overrides;  // of the run's configuration
};
void run_generate(const GenerateCommand& command, Console& console);

struct ReportCommand {
  std::string folder;
  std::string out;  // empty: report.html in the folder; -: standard output
};
void run_report(const ReportCommand& command, Console& console);

struct ExportCommand {
  std::string folder, out;
  enum class Values { kWeights, kMaster } values = Values::kWeights;  // kMaster: fp32
  std::vector<std::string> overrides;                                 // of the run's configuration
};
void run_export(const ExportCommand& command, Console& console);

struct TrimCommand {
  std::string folder;
  enum class Consent { kNotGiven, kGiven } consent = Consent::kNotGiven;
};
void run_trim(const TrimCommand& command, Console& console);

struct VerifyCommand {
  std::string folder;
  IoQueueFactory make_queue = make_io_queue;  // of the store; tests wrap a real one
};
enum class Verified { kWhole, kDamaged };
// Prints for each step that the store of the run in the folder has whether it is whole. kDamaged: the last committed is
// not.
Verified run_verify(const VerifyCommand& command, Console& console);

void run_info(Console& console);

}  // namespace sluice
