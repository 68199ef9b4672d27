// metrics.jsonl: one JSON object a step, numbers with full precision, each line handed to the system before the next
// step. It is not synced: of a machine that goes down the last lines may be missing.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "core/log.h"
#include "engine/engine.h"
#include "engine/predict.h"

namespace sluice {

struct StepMetrics {
  StepEnd end;
  double learning_rate = 0;
  int64_t tokens = 0;  // trained on since the start of the run
  double samples_per_s = 0, tokens_per_s = 0, step_ms = 0;
  StepLanes lanes;
  std::optional<Prediction> predicted;
  DeviceKind device = DeviceKind::kHost;  // kHost: the device tier is memory of this process
};

// Open for reading; where there is none it is not open. Throws IoError where what is there cannot be read.
std::ifstream open_metrics(const std::filesystem::path& path);
// After its last line: throws IoError where that is not the file's end but where reading failed.
void check_read(const std::ifstream& file, const std::filesystem::path& path);

// Of so many resident bytes of this process, those that are in neither tier.
int64_t runtime_bytes(int64_t resident, int64_t device, int64_t host, DeviceKind kind);

class MetricsFile {
 public:
  // Keeps the lines of steps up to `last_step`; drops later ones, a final line and a torn one. Says what else is not
  // there or cannot be understood. Throws IoError.
  MetricsFile(std::filesystem::path path, int64_t last_step, const Log& log);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Before each step: a full drive shows before anything is trained whose line it could not hold. A file that was
  // moved, removed or replaced since is begun anew, with a warning. Throws IoError where there is no room, or no
  // folder.
  void make_room();
  void step(const StepMetrics& metrics, const Ledger& ledger);
  void final_line(const Digests& digests);
  // The first loss of the run; nullopt before its first step.
  std::optional<double> first_loss() const { return first_loss_; }
  std::optional<double> last_loss() const { return last_loss_; }

 private:
  void keep_until(int64_t last_step, const Log& log);
  void open();
  void reserve();
  void write(const std::string& line);
  std::filesystem::path path_;
  Log log_;
  std::FILE* file_ = nullptr;
  int64_t room_bytes_ = 0;  // up to there the file has blocks; what is left of them it gives back at its end
  std::optional<double> first_loss_, last_loss_;
  int64_t since_start_ = 0;  // steps of this process
};

}  // namespace sluice
