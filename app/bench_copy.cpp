#include "app/bench_copy.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "app/choice.h"
#include "app/console.h"
#include "app/device_kinds.h"
#include "app/measured_folders.h"
#include "app/name_option.h"
#include "app/store_words.h"
#include "app/whole_number.h"
#include "bench/copy_bench.h"
#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

struct CopyArguments {
  CopyBenchOptions options;
  std::string size = "256MiB", folder;
  enum class Print { kText, kJson } print = Print::kText;
};

void read_options(CopyArguments& arguments) {
  CopyBenchOptions& options = arguments.options;
  options.words = &kBenchCopyWords;
  try {
    options.size_bytes = parse_bytes(arguments.size);
  } catch (const ConfigError&) {
    throw ConfigError(fmt::format("--size is \"{}\": allowed are bytes, as \"256MiB\"", arguments.size));
  }
  if (options.size_bytes < 64 * kMiB)
    throw ConfigError(fmt::format("--size is {}: allowed are 64MiB and more", arguments.size));
  if (!arguments.folder.empty()) options.folder = std::filesystem::absolute(arguments.folder).lexically_normal();
}

Json json_of(const CopyFigure& figure) {
  return {{"gb_per_s", figure.gb_per_s},
          {"ceiling_gb_per_s", figure.ceiling_gb_per_s},
          {"percent_of_ceiling", figure.percent_of_ceiling()}};
}

void print_json(Console& console, const CopyBenchEnd& end) {
  Json json = {{"device", end.device}, {"copies", Json::array()}};
  for (const CopyRow& row : end.rows) {
    json["copies"].push_back({{"bytes", row.copy_bytes},
                              {"upload", json_of(row.upload)},
                              {"download", json_of(row.download)},
                              {"both", json_of(row.both)}});
  }
  if (end.from_nvme) {
    json["nvme_to_device"] = json_of(end.from_nvme->figure);
    json["nvme_to_device"]["read_gb_per_s"] = end.from_nvme->read_gb_per_s;
    json["nvme_to_device"]["upload_gb_per_s"] = end.from_nvme->upload_gb_per_s;
  }
  console.print(json.dump());
}

std::string words_of(const CopyFigure& figure) {
  return fmt::format("{:>7.2f} GB/s {:>6.1f} % of {:.2f}", figure.gb_per_s, figure.percent_of_ceiling(),
                     figure.ceiling_gb_per_s);
}

void print_text(Console& console, const CopyArguments& arguments, const CopyBenchEnd& end) {
  console.print(fmt::format("{}; the best of {} rounds; the ceiling is plain copies of the same memory", end.device,
                            arguments.options.rounds));
  for (const CopyRow& row : end.rows) {
    console.print(fmt::format("  {:>9}  upload {}   download {}   both {}", format_bytes(row.copy_bytes),
                              words_of(row.upload), words_of(row.download), words_of(row.both)));
  }
  if (!end.from_nvme) return;
  console.print(fmt::format("  NVMe to device {}, the slower of reads ({:.2f}) and uploads ({:.2f}) of 1 MiB alone",
                            words_of(end.from_nvme->figure), end.from_nvme->read_gb_per_s,
                            end.from_nvme->upload_gb_per_s));
}

void run(CopyArguments& arguments) {
  read_options(arguments);
  Console console;
  std::optional<MeasuredFolders> folders;
  if (!arguments.options.folder.empty()) folders.emplace(std::span(&arguments.options.folder, 1), console.log());
  const CopyBenchEnd end =
      run_copy_bench(arguments.options, [&](int done, int total) { console.progress(done, total, "measuring"); });
  console.finish_progress();
  if (arguments.print == CopyArguments::Print::kJson) return print_json(console, end);
  print_text(console, arguments, end);
}

}  // namespace

void add_bench_copy(CLI::App& bench) {
  auto arguments = std::make_shared<CopyArguments>();
  CopyBenchOptions& options = arguments->options;
  CLI::App* copy =
      bench.add_subcommand("copy", "Copies to and from the device, beside plain copies of the same memory");
  add_choice(*copy, {"--device", "auto (a GPU where one answers), cuda or cpu (default: auto)"}, options.device,
             device_kinds());
  copy->add_option("--size", arguments->size, "Bytes of host and of device memory; half of it goes each way")
      ->capture_default_str();
  copy->add_option("--path", arguments->folder,
                   "Folder of a drive: also measures the way from there to the device; half of --size is taken")
      ->check(check_name);
  copy->add_option("--rounds", options.rounds, "Of which the best is taken")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  copy->add_flag_callback(
      "--json", [arguments] { arguments->print = CopyArguments::Print::kJson; },
      "One JSON object in place of the text");
  copy->callback([arguments] { run(*arguments); });
}

}  // namespace sluice
