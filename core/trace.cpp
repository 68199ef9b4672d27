#include "core/trace.h"

#include <fmt/format.h>

#include <cerrno>

#include "core/errors.h"

namespace sluice {
namespace {

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

TraceWriter::TraceWriter(const std::string& path) : file_(std::fopen(path.c_str(), "w")), path_(path) {
  if (file_ == nullptr) {
    throw IoError(
        {.action = "open", .path = path, .error_number = errno, .advice = "name a trace file that can be written"});
  }
  write("{\"traceEvents\":[\n");
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
  write(first_ ? "" : ",\n");
  first_ = false;
  write(record);
}

void TraceWriter::name_row(int row, std::string_view name) {
  write_record(
      fmt::format(R"({{"name":"thread_name","ph":"M","pid":0,"tid":{},"args":{{"name":"{}"}}}})", row, escaped(name)));
}

void TraceWriter::event(int row, std::string_view name, int64_t begin_ns, int64_t end_ns) {
  // The format counts in microseconds.
  write_record(fmt::format(R"({{"name":"{}","ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f}}})", escaped(name), row,
                           static_cast<double>(begin_ns) / 1e3, static_cast<double>(end_ns - begin_ns) / 1e3));
}

void TraceWriter::close() {
  if (file_ == nullptr) return;
  write("\n]}\n");
  errno = 0;
  if (std::fclose(file_) != 0 && error_number_ == 0) error_number_ = errno != 0 ? errno : EIO;
  file_ = nullptr;
  if (error_number_ != 0) {
    throw IoError(
        {.action = "write", .path = path_, .error_number = error_number_, .advice = "the trace is incomplete"});
  }
}

}  // namespace sluice
