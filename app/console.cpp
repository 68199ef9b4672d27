#include "app/console.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>

#include "core/clock.h"

namespace sluice {
namespace {

constexpr int kBarWidth = 24;
constexpr int64_t kRedrawNs = 100'000'000;

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// 80 where the terminal does not say.
size_t columns_of(int terminal) {
  winsize size{};
  return ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

struct Console::Impl {
  Impl() : logger("sluice", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    logger.set_pattern("[%H:%M:%S] %^%v%$");
  }
  void wipe() {
    if (drawn) std::fputs("\r\033[K", stderr);
    drawn = false;
  }

  std::mutex mutex;
  spdlog::logger logger;
  bool terminal = isatty(STDERR_FILENO) == 1;
  bool drawn = false;
  int64_t began_ns = -1, began_done = 0, drawn_ns = 0;
};

Console::Console() : impl_(std::make_unique<Impl>()) {}
Console::~Console() { finish_progress(); }

void Console::print(const std::string& text) {
  const std::lock_guard lock(impl_->mutex);
  impl_->wipe();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

Log Console::log() {
  return [this](LogLevel level, const std::string& message) {
    const std::lock_guard lock(impl_->mutex);
    impl_->wipe();
    const char* prefix = level == LogLevel::kWarning ? "warning: " : level == LogLevel::kError ? "error: " : "";
    impl_->logger.log(spdlog_level(level), "{}{}", prefix, message);
    impl_->logger.flush();
  };
}

void Console::progress(int64_t done, int64_t total, const std::string& words) {
  Impl& impl = *impl_;
  if (!impl.terminal || total <= 0) return;
  const std::lock_guard lock(impl.mutex);
  const int64_t now = now_ns();
  if (impl.began_ns < 0) {
    impl.began_ns = now;
    impl.began_done = done;
  }
  if (now - impl.drawn_ns < kRedrawNs && done < total) return;
  impl.drawn_ns = now;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(share * kBarWidth);
  std::string left = "-:--";
  if (done > impl.began_done) {
    const double per_unit =
        static_cast<double>(now - impl.began_ns) / 1e9 / static_cast<double>(done - impl.began_done);
    left = format_duration(per_unit * static_cast<double>(total - done));
  }
  const std::string text = fmt::format("{:3.0f}%  {}  left {}", share * 100, words, left);
  const std::string bar = fmt::format("[{:#<{}}{:.<{}}] ", "", filled, "", kBarWidth - filled);
  fmt::print(stderr, "\r\033[K{}", one_row(bar, text, columns_of(STDERR_FILENO)));
  std::fflush(stderr);
  impl.drawn = true;
}

void Console::finish_progress() {
  const std::lock_guard lock(impl_->mutex);
  impl_->wipe();
  impl_->began_ns = -1;
  impl_->drawn_ns = 0;
}

std::string one_row(const std::string& bar, const std::string& text, size_t columns) {
  if (bar.size() + text.size() < columns) return bar + text;
  return text.substr(0, columns - 1);
}

std::string format_duration(double seconds) {
  const int64_t whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string duration_beside(double seconds) {
  if (seconds < 60) return "";
  return fmt::format(" ({} {})", format_duration(seconds), std::llround(seconds) < 3600 ? "min" : "h");
}

}  // namespace sluice
