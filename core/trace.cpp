#include "core/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

#include "core/errors.h"
#include "core/retried.h"

namespace sluice {
namespace {

constexpr int kThreadsOfRow = 10'000;  // a row's threads have neighbouring numbers, and so stand together

// From 1 on: process 0 is the kernel's, and special to Perfetto (https://github.com/google/perfetto/issues/394).
constexpr int kProcess = 1;
int number_of(int row, int thread) { return 1 + row * kThreadsOfRow + thread; }

constexpr std::string_view kBegin = "{\"traceEvents\":[\n", kEnd = "\n]}\n";

// Or is empty.
bool begins_as_a_trace(const std::string& path) {
  std::string begin(kBegin.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return file.gcount() == 0 || begin == kBegin;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

// What another file of that name holds is not replaced by a trace.
TraceWriter::TraceWriter(const std::string& path, Log log) : path_(path), log_(std::move(log)) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error) && !begins_as_a_trace(path)) {
    throw ConfigError(path + ": a file is there that is no trace: name another one for the trace");
  }
  is_new_ = !std::filesystem::exists(path, error);
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) {
    throw IoError(
        {.action = "open", .path = path, .error_number = errno, .advice = "name a trace file that can be written"});
  }
  is_file_ = std::filesystem::is_regular_file(path, error);
  if (is_new_ && is_file_) write(fmt::format("{}{}", kBegin, kEnd));
  if (error_number_ == 0) return;
  ::close(file_);
  ::unlink(path.c_str());
  throw failure("name a trace file elsewhere");
}

IoError TraceWriter::failure(std::string advice) const {
  return IoError({.action = "write", .path = path_, .error_number = error_number_, .advice = std::move(advice)});
}

TraceWriter::~TraceWriter() {
  if (!has_events_ && written_bytes_ == 0) added_.clear();
  try {
    close();
  } catch (const IoError&) {
    // A destructor has nobody to tell; who wants to know calls close().
  }
}

// At the end of what is written, over what ended the JSON there.
void TraceWriter::write(std::string_view text) {
  if (error_number_ != 0) return;
  const int64_t end = written_bytes_ + std::ssize(text);
  const auto write_at_end = [&](std::string_view left) {
    return is_file_ ? ::pwrite(file_, left.data(), left.size(), end - std::ssize(left))
                    : ::write(file_, left.data(), left.size());
  };
  if (write_whole(text, write_at_end)) return;
  error_number_ = errno != 0 ? errno : EIO;
  if (!is_file_ || ::ftruncate(file_, written_bytes_) != 0) return;
  // What was whole stays so: its end has its place there already.
  const std::string whole = written_bytes_ == 0 ? fmt::format("{}{}", kBegin, kEnd) : std::string(kEnd);
  std::ignore = ::pwrite(file_, whole.data(), whole.size(), written_bytes_);
}

void TraceWriter::flush() {
  if (file_ < 0 || added_.empty()) return;
  const bool was_whole = error_number_ == 0;
  if (written_bytes_ == 0 && is_file_ && ::ftruncate(file_, 0) != 0) error_number_ = errno;
  const size_t bytes = added_.size();
  if (is_file_) added_ += kEnd;
  write(added_);
  written_bytes_ += static_cast<int64_t>(bytes);
  added_.clear();
  if (was_whole && error_number_ != 0)
    say(log_, LogLevel::kWarning, failure("the trace ends here; all else goes on").what());
}

void TraceWriter::add(std::string_view record) {
  added_ += is_empty() ? kBegin : ",\n";
  added_ += record;
}

void TraceWriter::name_row(int row, std::string_view name) {
  row_at(row) = {.name = escaped(name), .end_ns = {INT64_MIN}};
  name_thread(row, 0);
}

TraceWriter::Row& TraceWriter::row_at(int row) {
  const auto at = static_cast<size_t>(row);
  if (rows_.size() <= at) rows_.resize(at + 1);
  return rows_[at];
}

void TraceWriter::name_thread(int row, int thread) {
  const std::string number = thread == 0 ? "" : fmt::format(" {}", thread + 1);
  add(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}{}"}}}})", kProcess,
                  number_of(row, thread), row_at(row).name, number));
}

int TraceWriter::free_thread(int row, int64_t begin_ns) {
  std::vector<int64_t>& ends = row_at(row).end_ns;
  const auto free = std::ranges::find_if(ends, [&](int64_t end) { return end <= begin_ns; });
  const auto thread = static_cast<int>(free - ends.begin());
  if (free == ends.end()) {
    SLUICE_CHECK(thread < kThreadsOfRow, "more events of a row at once than it has threads");
    ends.push_back(INT64_MIN);
    name_thread(row, thread);
  }
  return thread;
}

void TraceWriter::event(int row, const TraceLabel& label, int64_t begin_ns, int64_t end_ns) {
  const int thread = free_thread(row, begin_ns);
  row_at(row).end_ns[static_cast<size_t>(thread)] = end_ns;
  has_events_ = true;
  const std::string step =
      label.during_step < 0 ? "" : fmt::format(R"(,"args":{{"during_step":{}}})", label.during_step);
  // The format counts in microseconds.
  add(fmt::format(R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}{}}})",
                  escaped(label.name), label.category, kProcess, number_of(row, thread),
                  static_cast<double>(begin_ns) / 1e3, static_cast<double>(end_ns - begin_ns) / 1e3, step));
}

void TraceWriter::close() {
  if (file_ < 0) return;
  flush();
  if (!is_empty() && !is_file_) write(kEnd);
  if (::close(file_) != 0 && error_number_ == 0) error_number_ = errno;
  file_ = -1;
  if (is_empty() && is_new_ && is_file_) ::unlink(path_.c_str());
  if (error_number_ != 0) throw failure("the trace is incomplete");
}

}  // namespace sluice
