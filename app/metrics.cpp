#include "app/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "core/errors.h"
#include "core/pending_file.h"
#include "core/retried.h"
#include "core/topology.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json lanes_json(const StepLanes& lanes) {
  Json json;
  for (int i = 0; i < kLaneCount; ++i) {
    const auto lane = static_cast<Lane>(i);
    Json& of_lane = json[std::string(name_of(lane))];
    of_lane = {{"ms", lanes[lane].busy_ms}, {"bytes", lanes[lane].bytes}};
    if (lane != Lane::kRead && lane != Lane::kWrite) continue;
    for (const Group group : {Group::kState, Group::kWeights, Group::kGradient, Group::kActivations}) {
      of_lane[fmt::format("{}_bytes", name_of(group))] = lanes.bytes(lane, group);
    }
  }
  return json;
}

// Beside each lane's time, what was predicted.
void add_prediction(Json& json, const Prediction& predicted) {
  json["predicted_step_ms"] = predicted.step_ms;
  for (int i = 0; i < kLaneCount; ++i) {
    const auto lane = static_cast<Lane>(i);
    json["lanes"][std::string(name_of(lane))]["predicted_ms"] = predicted.busy(lane);
  }
}

Json memory_json(const Ledger& ledger, DeviceKind device) {
  Json json;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    const int64_t budget = ledger.budget(tier);
    json[std::string(name_of(tier))] = {{"budget_bytes", budget < 0 ? Json(nullptr) : Json(budget)},
                                        {"peak_bytes", ledger.peak(tier)}};
  }
  const int64_t rss = resident_bytes();
  json["rss_bytes"] = rss;
  json["runtime_bytes"] = runtime_bytes(rss, ledger.now(Tier::kDevice), ledger.now(Tier::kHost), device);
  return json;
}

}  // namespace

std::ifstream open_metrics(const std::filesystem::path& path) {
  std::error_code none;
  const bool is_folder = std::filesystem::is_directory(path, none);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if ((!file && errno != ENOENT) || is_folder) {
    throw IoError({.action = "open",
                   .path = path.string(),
                   .error_number = is_folder ? EISDIR : errno,
                   .advice = "make it readable, or move it away: what it says of the steps so far is then not shown"});
  }
  return file;
}

void check_read(const std::ifstream& file, const std::filesystem::path& path) {
  if (!file.bad()) return;
  throw IoError({.action = "read",
                 .path = path.string(),
                 .reason = "the system gave no more of it",
                 .advice = "look at the drive and its file system, or move the file away: what it says of the steps so "
                           "far is then not shown"});
}

int64_t runtime_bytes(int64_t resident, int64_t device, int64_t host, DeviceKind kind) {
  return std::max<int64_t>(0, resident - host - (kind == DeviceKind::kHost ? device : 0));
}

MetricsFile::MetricsFile(std::filesystem::path path, int64_t last_step, const Log& log)
    : path_(std::move(path)), log_(log) {
  keep_until(last_step, log);
  open_at_end("name another --out");
}

MetricsFile::~MetricsFile() {
  give_room_back();
  std::fclose(file_);
}

void MetricsFile::open_at_end(const char* advice) {
  std::FILE* const file = std::fopen(path_.c_str(), "a+b");
  if (file == nullptr) {
    throw IoError({.action = "open", .path = path_.string(), .error_number = errno, .advice = advice});
  }
  if (file_ != nullptr) {
    give_room_back();
    std::fclose(file_);
  }
  file_ = file;
}

namespace {

enum class LineOf : uint8_t { kStep, kLaterStep, kEnd, kNothing };

LineOf line_of(const Json& json, int64_t last_step) {
  if (json.is_object() && json.contains("final")) return LineOf::kEnd;
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return LineOf::kNothing;
  return json["step"] > last_step ? LineOf::kLaterStep : LineOf::kStep;
}

// Line by line: a long run's file is larger than the memory that it may take.
void for_each_line(const std::filesystem::path& path, const std::function<void(const std::string&)>& use) {
  std::ifstream file = open_metrics(path);
  std::string line;
  for (; std::getline(file, line) && !file.eof(); line.clear()) use(line);
  check_read(file, path);
}

void keep_steps(const std::filesystem::path& path, int64_t last_step) {
  PendingFile whole(path);
  std::string kept;
  for_each_line(path, [&](const std::string& line) {
    if (line_of(Json::parse(line, nullptr, false), last_step) != LineOf::kStep) return;
    kept += line + "\n";
    if (kept.size() < (size_t{1} << 20)) return;
    whole.append(kept);
    kept.clear();
  });
  whole.append(kept);
  whole.publish();
}

}  // namespace

// Of a run that went down with its system the last lines may be missing, or another program has written into the file:
// the run goes on all the same.
void MetricsFile::keep_until(int64_t last_step, const Log& log) {
  if (!open_metrics(path_)) {
    if (last_step == 0) return;
    return say(log, LogLevel::kWarning,
               fmt::format("{} is not there: nothing is known of the {} steps so far", path_.string(), last_step));
  }
  int64_t steps = 0, damaged = 0;
  size_t kept_bytes = 0;
  for_each_line(path_, [&](const std::string& line) {
    const Json json = Json::parse(line, nullptr, false);
    const LineOf what = line_of(json, last_step);
    damaged += what == LineOf::kNothing ? 1 : 0;
    if (what != LineOf::kStep) return;
    ++steps;
    kept_bytes += line.size() + 1;
    const Json loss = json.value("loss", Json());
    if (!loss.is_number()) return;
    if (!first_loss_) first_loss_ = loss.get<double>();
    last_loss_ = loss.get<double>();
  });
  if (damaged > 0 || steps < last_step) {
    say(log, LogLevel::kWarning,
        fmt::format("{} has lines of {} of the {} steps so far{}", path_.string(), steps, last_step,
                    damaged > 0 ? fmt::format("; {} that are damaged are dropped", damaged) : std::string()));
  }
  if (std::filesystem::file_size(path_) != kept_bytes) keep_steps(path_, last_step);
}

namespace {

constexpr int64_t kRoomBytes = int64_t{64} << 10, kLeastRoomBytes = 4096;  // of some tens of lines, of two

// Errors that a write would meet as well. Others are of file systems that reserve nothing.
constexpr int kNoRoom[] = {ENOSPC, EDQUOT, EFBIG, EROFS, EIO};

// Whether another file, or none, has the name now. What cannot be told is no reason to begin another.
bool has_lost_its_name(int file, const std::filesystem::path& path) {
  struct stat ours {};
  struct stat named {};
  if (fstat(file, &ours) != 0) return false;
  if (stat(path.c_str(), &named) != 0) return errno == ENOENT || errno == ENOTDIR;
  return ours.st_dev != named.st_dev || ours.st_ino != named.st_ino;
}

// Of what somebody else has put there.
bool ends_within_a_line(std::FILE* file) {
  struct stat status {};
  char last = '\n';
  return fstat(fileno(file), &status) == 0 && status.st_size > 0 &&
         pread(fileno(file), &last, 1, status.st_size - 1) == 1 && last != '\n';
}

const char* advice_for(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT
             ? "make room and go on with --resume"
             : "look at the drive and its file system (dmesg), then go on with --resume";
}

}  // namespace

void MetricsFile::make_room() {
  if (has_lost_its_name(fileno(file_), path_)) {
    open_at_end("bring the run's folder back and go on with --resume");
    if (ends_within_a_line(file_)) write("");
    say(log_, LogLevel::kWarning,
        fmt::format("{} was moved, removed or replaced: further steps are written to what has that name now",
                    path_.string()));
  }
  if (reserve(kRoomBytes) == 0) return;
  const int error_number = reserve(kLeastRoomBytes);
  if (error_number == 0) return;
  throw IoError({.action = "reservation of room",
                 .path = path_.string(),
                 .bytes = kLeastRoomBytes,
                 .error_number = error_number,
                 .advice = advice_for(error_number)});
}

// Behind the file's end, which stays where it is. 0, or why there is no room: what was granted of it is given back.
int MetricsFile::reserve(int64_t bytes) {
  struct stat now {};
  if (fstat(fileno(file_), &now) != 0) return errno;
  if (retried([&] { return fallocate(fileno(file_), FALLOC_FL_KEEP_SIZE, now.st_size, bytes); }) == 0) return 0;
  const int error_number = errno;
  if (std::ranges::find(kNoRoom, error_number) == std::end(kNoRoom)) return 0;
  give_room_back();
  return error_number;
}

// Blocks behind the end of the file go where its length is set to what it is. Where that fails they stay the file's.
void MetricsFile::give_room_back() noexcept {
  struct stat now {};
  if (fstat(fileno(file_), &now) == 0) std::ignore = ftruncate(fileno(file_), now.st_size);
}

void MetricsFile::write(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fputc('\n', file_) != EOF &&
      std::fflush(file_) == 0) {
    return;
  }
  throw IoError({.action = "write",
                 .path = path_.string(),
                 .bytes = static_cast<int64_t>(line.size()) + 1,
                 .error_number = errno,
                 .advice = advice_for(errno)});
}

void MetricsFile::step(const StepMetrics& metrics, const Ledger& ledger) {
  const StepEnd& end = metrics.end;
  Json json = {{"step", end.step},
               {"since_start", ++since_start_},
               {"loss", end.loss},
               {"grad_norm", end.grad_norm},
               {"lr", metrics.learning_rate},
               {"loss_scale", end.loss_scale},
               {"skipped", end.skipped},
               {"speculated", name_of(end.speculated)},
               {"tokens", metrics.tokens},
               {"samples_per_s", metrics.samples_per_s},
               {"tokens_per_s", metrics.tokens_per_s},
               {"step_ms", metrics.step_ms},
               {"lanes", lanes_json(metrics.lanes)},
               {"drive_ms", metrics.lanes.drive_busy_ms},
               {"memory", memory_json(ledger, metrics.device)}};
  if (metrics.predicted) add_prediction(json, *metrics.predicted);
  write(json.dump());
  if (!first_loss_) first_loss_ = end.loss;
  last_loss_ = end.loss;
}

void MetricsFile::final_line(const Digests& digests, const std::optional<Validation>& validation) {
  Json json = {{"final", true},
               {"weights_crc32c", fmt::format("{:08x}", digests.weights_crc32c)},
               {"state_crc32c", fmt::format("{:08x}", digests.state_crc32c)}};
  if (validation) {
    json["validation_loss"] = validation->loss;
    json["validation_tokens"] = validation->tokens;
    json["unigram_nats"] = validation->unigram_nats;
  }
  write(json.dump());
}

}  // namespace sluice
