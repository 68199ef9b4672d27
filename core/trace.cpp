#include "core/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "core/errors.h"

namespace sluice {
namespace {

constexpr int kThreadsOfRow = 10'000;  // a row's threads have neighbouring numbers, and so stand together

// From 1 on: process 0 is the kernel's, and special to Perfetto (https://github.com/google/perfetto/issues/394).
constexpr int kProcess = 1;
int number_of(int row, int thread) { return 1 + row * kThreadsOfRow + thread; }

constexpr std::string_view kBegin = "{\"traceEvents\":[\n";

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
TraceWriter::TraceWriter(const std::string& path) : path_(path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error) && !begins_as_a_trace(path)) {
    throw ConfigError(path + ": a file is there that is no trace: name another one for the trace");
  }
  is_new_ = !std::filesystem::exists(path, error);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  file_ = file < 0 ? nullptr : ::fdopen(file, "w");
  if (file_ == nullptr) {
    const int error_number = errno;
    if (file >= 0) ::close(file);
    throw IoError({.action = "open",
                   .path = path,
                   .error_number = error_number,
                   .advice = "name a trace file that can be written"});
  }
}

TraceWriter::~TraceWriter() {
  try {
    close();
  } catch (const IoError&) {
    // A destructor has nobody to tell; who wants to know calls close().
  }
}

void TraceWriter::write(std::string_view text) {
  if (file_ == nullptr || error_number_ != 0) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) error_number_ = errno != 0 ? errno : EIO;
}

void TraceWriter::write_record(std::string_view record) {
  if (first_ && file_ != nullptr && ::ftruncate(::fileno(file_), 0) != 0 && errno != EINVAL) error_number_ = errno;
  write(first_ ? kBegin : ",\n");
  first_ = false;
  write(record);
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
  write_record(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}{}"}}}})",
                           kProcess, number_of(row, thread), row_at(row).name, number));
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

void TraceWriter::event(int row, std::string_view name, int64_t begin_ns, int64_t end_ns) {
  const int thread = free_thread(row, begin_ns);
  row_at(row).end_ns[static_cast<size_t>(thread)] = end_ns;
  // The format counts in microseconds.
  write_record(fmt::format(R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})", escaped(name),
                           kProcess, number_of(row, thread), static_cast<double>(begin_ns) / 1e3,
                           static_cast<double>(end_ns - begin_ns) / 1e3));
}

void TraceWriter::close() {
  if (file_ == nullptr) return;
  if (!first_) write("\n]}\n");
  errno = 0;
  if (std::fclose(file_) != 0 && error_number_ == 0) error_number_ = errno != 0 ? errno : EIO;
  file_ = nullptr;
  if (first_ && is_new_) ::unlink(path_.c_str());
  if (error_number_ != 0) {
    throw IoError(
        {.action = "write", .path = path_, .error_number = error_number_, .advice = "the trace is incomplete"});
  }
}

}  // namespace sluice
