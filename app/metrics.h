// metrics.jsonl: one JSON object a step, numbers with full precision, each line with the system before the next step;
// nothing is synced.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "app/batches.h"
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

  // Before a step: its line, and the final one, will have room on the drive. Where the file has lost its name a new one
  // is begun, or the one of that name gone on with, and a warning logged. Throws IoError where there is no room.
  void make_room();
  void step(const StepMetrics& metrics, const Ledger& ledger);
  void final_line(const Digests& digests, const std::optional<Validation>& validation);
  // The first loss of the run; nullopt before its first step.
  std::optional<double> first_loss() const { return first_loss_; }
  std::optional<double> last_loss() const { return last_loss_; }

 private:
  void keep_until(int64_t last_step, const Log& log);
  void open_at_end(const char* advice);
  int reserve(int64_t bytes);
  void give_room_back() noexcept;
  void write(const std::string& line);
  std::filesystem::path path_;
  Log log_;
  std::FILE* file_ = nullptr;
  std::optional<double> first_loss_, last_loss_;
  int64_t since_start_ = 0;  // steps of this process
};

}  // namespace sluice
