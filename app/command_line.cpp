// The command line, and what becomes of errors.
#include "app/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <regex>
#include <string>

#include "app/bench.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/name_option.h"
#include "app/override_options.h"
#include "app/train.h"
#include "app/whole_number.h"
#include "core/errors.h"

namespace sluice {
namespace {

constexpr int kFailed = 1, kBadInput = 2;

int fail(const std::string& message, int exit_code) {
  fmt::print(stderr, "sluice: {}\n", message);
  return exit_code;
}

// An error is one line. Ours may have several sentences on lines of their own.
std::string joined(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) {
    text.replace(at, std::max<size_t>(text.find_first_not_of(" \n", at), at + 1) - at, " ");
  }
  return text;
}
// What other libraries append to theirs (stack traces) helps nobody here.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string check_temperature(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) && value >= 0 ? "" : text + " is not a number, 0 or more";
}

void add_config(CLI::App& command, std::string& config, std::vector<std::string>& overrides) {
  command.add_option("CONFIG", config, "The configuration file (JSON)")->required();
  add_overrides(command, overrides, "file");
}

void add_machine(CLI::App& command, std::string& file) {
  command
      .add_option("--machine", file,
                  "Predict step times with the speeds of this JSON file (README), not with those measured here")
      ->check(check_name);
}

void add_train(CLI::App& app, TrainOptions& options, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "Train a model, or go on with a run");
  add_config(*command, options.config, options.overrides);
  command->add_option("--data", options.data, "File or folder of UTF-8 text (ids: a NumPy file), in place of data.path")
      ->check(check_name);
  command->add_option("--steps", options.steps, "Steps, counted from the start of the run (default: one epoch)")
      ->check(whole_number(1));
  command->add_option("--out", options.out, "Folder of the run (default: runs/ and the configuration's name)")
      ->check(check_name);
  command->add_option("--seed", options.seed, "Seed of initial values and order of samples, in place of the file's")
      ->check(whole_number(0));
  add_machine(*command, options.machine);
  command->add_option("--trace", options.trace, "Write every hop to this file, for Perfetto or chrome://tracing")
      ->check(check_name);
  CLI::Option* const sample =
      command->add_option("--sample", options.sample, "At the end, print a sampled continuation of this text")
          ->check([](const std::string& text) { return text.empty() ? "a text is needed" : ""; });
  command->add_option("--sample-tokens", options.sample_tokens, "Length of that continuation")
      ->check(whole_number(1))
      ->needs(sample);
  CLI::Option* resume = command->add_flag_callback(
      "--resume", [&options] { options.open = OpenMode::kResume; }, "Go on after the last committed step");
  command
      ->add_option("--from-step", options.from_step,
                   "Go on after this step, the last committed one or the one before (see checkpoint verify)")
      ->check(whole_number(0))
      ->needs(resume);
  command
      ->add_flag_callback(
          "--overwrite", [&options] { options.open = OpenMode::kOverwrite; }, "Replace the run that is there")
      ->excludes(resume);
  command->callback([&options, &exit_code] {
    Console console;
    const TrainEnd end = run_training(options, console);
    if (end.signal == 0) return;
    if (end.stopped == TrainEnd::Stopped::kBeforeAStep) {
      std::fputs("sluice: stopped before a step was trained; begin or go on with the same command\n", stderr);
    } else {
      std::fprintf(stderr, "sluice: stopped after step %lld, committed; go on with the same command and --resume\n",
                   static_cast<long long>(end.step));
    }
    exit_code = 128 + end.signal;
  });
}

void add_plan(CLI::App& app, PlanCommand& options) {
  CLI::App* command = app.add_subcommand("plan", "Print what lives where and what a step moves, without training");
  add_config(*command, options.config, options.overrides);
  add_machine(*command, options.machine);
  command
      ->add_option(
          "--what-if", options.what_if,
          "Predict the step with this host_memory, device_memory, drives or tokens_per_step; +VALUE adds to what there "
          "is")
      ->option_text("KEY=VALUE,...")
      ->allow_extra_args(false);
  command->add_flag_callback(
      "--json", [&options] { options.output = PlanOutput::kJson; }, "As JSON");
  command->callback([&options] {
    Console console;
    run_plan(options, console);
  });
}

void add_tune(CLI::App& app, TuneCommand& options, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "tune",
      "Find the fastest micro-batches, chunks and split of the budgets for a step of as many samples, and write a "
      "configuration with them. Losses differ in their last bits with micro-batches of another size, and with nothing "
      "else");
  add_config(*command, options.config, options.overrides);
  command->add_option("--data", options.data, "Try with this text's tokens (default: made-up ones)")->check(check_name);
  command->add_option("--out", options.out, "The file to write (default: NAME.tuned.json beside NAME.json)")
      ->check(check_name);
  command
      ->add_option("--trials", options.trials, "Configurations that are tried for real, CONFIG among them (default: 3)")
      ->check(whole_number(1, 100));
  command->add_option("--steps", options.steps, "Measured steps in each of a trial's 3 rounds (default: 2)")
      ->check(whole_number(1, 1000));
  command->add_flag_callback(
      "--json", [&options] { options.output = TuneCommand::Output::kJson; }, "As JSON");
  command->callback([&options, &exit_code] {
    Console console;
    if (const int signal = run_tune(options, console)) exit_code = 128 + signal;
  });
}

void add_generate(CLI::App& app, GenerateCommand& options) {
  CLI::App* command = app.add_subcommand("generate", "Continue a text with the model of a run");
  command->add_option("DIR", options.folder, "Folder of the run")->required()->check(check_name);
  command->add_option("--prompt", options.prompt, "The text to continue")->required();
  command->add_option("--tokens", options.tokens, "At most so many tokens")->check(whole_number(1))->required();
  command->add_option("--temperature", options.temperature, "0: always the likeliest token (default: 1)")
      ->check(check_temperature);
  command->add_option("--seed", options.seed, "Seed of the choices (default: 0)")->check(whole_number(0));
  add_overrides(*command, options.overrides, "run");
  command->callback([&options] {
    Console console;
    run_generate(options, console);
  });
}

void add_trim(CLI::App& checkpoint, TrimCommand& options) {
  CLI::App* command = checkpoint.add_subcommand(
      "trim", "Remove the store of a run that is no longer needed; its blocks are given back to the drive (TRIM)");
  command->add_option("DIR", options.folder, "Folder of the run")->required()->check(check_name);
  command->add_flag_callback(
      "--yes", [&options] { options.consent = TrimCommand::Consent::kGiven; }, "The run cannot be resumed afterwards");
  command->callback([&options] {
    Console console;
    run_trim(options, console);
  });
}

void add_report(CLI::App& app, ReportCommand& options) {
  CLI::App* command = app.add_subcommand("report", "One page about a run: what bound it, and what would help");
  command->add_option("DIR", options.folder, "Folder of the run")->required()->check(check_name);
  command
      ->add_option("--out", options.out,
                   "The page to write, - for standard output (default: report.html in the run's folder)")
      ->check(check_name);
  command->callback([&options] {
    Console console;
    run_report(options, console);
  });
}

struct CheckpointCommands {
  ExportCommand export_to;
  TrimCommand trim;
  VerifyCommand verify;
};

void add_verify(CLI::App& checkpoint, VerifyCommand& verify, int& exit_code) {
  CLI::App* command = checkpoint.add_subcommand(
      "verify",
      "Read all that is committed and compare it with its checksums: of the last commit, and of the one before");
  command->add_option("DIR", verify.folder, "Folder of the run")->required()->check(check_name);
  command->callback([&] {
    Console console;
    if (run_verify(verify, console) == Verified::kDamaged) exit_code = kFailed;
  });
}

void add_checkpoint(CLI::App& app, CheckpointCommands& commands, int& exit_code) {
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "Checkpoints of a run")->require_subcommand(1);
  add_trim(*checkpoint, commands.trim);
  add_verify(*checkpoint, commands.verify, exit_code);
  ExportCommand& options = commands.export_to;
  CLI::App* command =
      checkpoint->add_subcommand("export", "Write a Hugging Face folder: config.json, model.safetensors");
  command->add_option("DIR", options.folder, "Folder of the run")->required()->check(check_name);
  command->add_option("OUT", options.out, "Folder to write")->required()->check(check_name);
  command->add_flag_callback(
      "--fp32", [&options] { options.values = ExportCommand::Values::kMaster; }, "The fp32 masters, not the weights");
  add_overrides(*command, options.overrides, "run");
  command->callback([&options] {
    Console console;
    run_export(options, console);
  });
}

// "sluice bench step": as far as the line was understood.
std::string command_in(const CLI::App& app) {
  std::string names = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    names += " " + at->get_name();
  }
  return names;
}

std::string words_of(const CLI::ParseError& error) {
  const std::string text = joined(error.what());
  static const std::regex kRepeated(R"((.*): At Most 1 required but received (\d+))");
  std::smatch of;
  if (!std::regex_match(text, of, kRepeated)) return text;
  return fmt::format("{} is given {} times: give it once", of[1].str(), of[2].str());
}

std::string names_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

bool has_command(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands({});
  return std::any_of(commands.begin(), commands.end(), [&](const CLI::App* each) { return each->get_name() == name; });
}

int run(int argc, const char* const* argv, const IoQueueFactory& make_queue) {
  CLI::App app("Trains models larger than the memory of the device, and larger than the memory of the host.", "sluice");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all sub-commands");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION, "What `info` names first");
  int exit_code = 0;
  TrainOptions train;
  train.make_queue = make_queue;
  PlanCommand plan;
  TuneCommand tune;
  tune.make_queue = make_queue;
  GenerateCommand generate;
  ReportCommand report;
  CheckpointCommands checkpoint;
  checkpoint.verify.make_queue = make_queue;
  add_train(app, train, exit_code);
  add_plan(app, plan);
  add_tune(app, tune, exit_code);
  add_generate(app, generate);
  add_report(app, report);
  add_checkpoint(app, checkpoint, exit_code);
  add_bench(app, exit_code);
  app.add_subcommand("info", "This machine: backends and why, CPU, memory, limits, versions")->callback([] {
    Console console;
    run_info(console);
  });
  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
    return fail(fmt::format("there is no command \"{}\"; allowed: {} (see sluice --help)", argv[1], names_of(app)),
                kBadInput);
  }
  if (argc > 1 && argv[1][0] == '-' && app.get_option_no_throw(argv[1]) == nullptr) {
    return fail(fmt::format("there is no option {} before a command (see sluice --help)", argv[1]), kBadInput);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(fmt::format("{} (see {} --help)", words_of(error), command_in(app)), kBadInput);
  }
  return exit_code;
}

}  // namespace

int run_command_line(int argc, const char* const* argv, const IoQueueFactory& make_queue) {
  try {
    const int exit_code = run(argc, argv, make_queue);
    if (exit_code != 0 || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return exit_code;
    return fail("standard output cannot be written: what was printed is not complete", kFailed);
  } catch (const ConfigError& error) {
    return fail(joined(error.what()), kBadInput);
  } catch (const Error& error) {
    return fail(joined(error.what()), kFailed);
  } catch (const std::bad_alloc&) {
    return fail("out of memory: lower sluice.device_memory and sluice.host_memory", kFailed);
  } catch (const std::exception& error) {
    return fail(first_line(error.what()), kFailed);
  }
}

}  // namespace sluice
