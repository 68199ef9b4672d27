// A trace of hops as Chrome/Perfetto JSON ("Trace Event Format", complete events): one row per lane.
// Not thread-safe: the executor's thread records, and closes it.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace sluice {

class TraceWriter {
 public:
  // Throws IoError when the file cannot be created. The file is valid JSON after the destructor (or close()).
  explicit TraceWriter(const std::string& path);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Names a row. Call once a lane before its first event.
  void name_row(int row, std::string_view name);
  // Times in nanoseconds from any fixed origin. `name` is escaped here.
  void event(int row, std::string_view name, int64_t begin_ns, int64_t end_ns);
  // Throws IoError if anything of the trace could not be written.
  void close();

 private:
  void write(std::string_view text);
  void write_record(std::string_view record);

  std::FILE* file_ = nullptr;
  std::string path_;
  bool first_ = true;
  int error_number_ = 0;  // of the first write that failed
};

}  // namespace sluice
