// A trace of hops as Chrome/Perfetto JSON ("Trace Event Format", complete events): one row per lane. Complete events of
// one thread may nest and not overlap, so a row is as many threads as it has events at once: "read", "read 2", ...
// Not thread-safe: one thread at a time.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class TraceWriter {
 public:
  // Throws ConfigError where another file is, IoError when the file cannot be created. A trace that is there is
  // replaced as the first row is named: whoever is refused before that leaves it as it was. The file is valid JSON
  // after the destructor (or close()); one that was made here is gone again where no row was named.
  explicit TraceWriter(const std::string& path);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Names a row. Call once a lane before its first event.
  void name_row(int row, std::string_view name);
  // Times in nanoseconds from any fixed origin; a row's events come in the order in which they begin. `name` is escaped
  // here.
  void event(int row, std::string_view name, int64_t begin_ns, int64_t end_ns);
  // Throws IoError if anything of the trace could not be written.
  void close();

 private:
  struct Row {
    std::string name;
    std::vector<int64_t> end_ns;  // of each thread's last event
  };

  Row& row_at(int row);
  int free_thread(int row, int64_t begin_ns);
  void name_thread(int row, int thread);
  void write(std::string_view text);
  void write_record(std::string_view record);

  std::FILE* file_ = nullptr;
  std::string path_;
  std::vector<Row> rows_;
  bool first_ = true, is_new_ = false;
  int error_number_ = 0;  // of the first write that failed
};

}  // namespace sluice
