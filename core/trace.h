// A trace of hops as Chrome/Perfetto JSON ("Trace Event Format", complete events): one row per lane. Complete events of
// one thread may nest and not overlap, so a row is as many threads as it has events at once: "read", "read 2", ...
// Not thread-safe: one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/errors.h"
#include "core/log.h"

namespace sluice {

// What a hop is called, and what it moves or does ("cat" in the file: viewers tell events apart by it).
struct TraceLabel {
  std::string name;
  std::string_view category;
  int64_t during_step = -1;  // among the event's "args"; -1: not said
};

class TraceWriter {
 public:
  // Throws ConfigError where another file is, IoError when the file cannot be created. A trace that is there is
  // replaced by the first flush, and one that was made here has no events until then.
  explicit TraceWriter(const std::string& path, Log log = {});
  // As close(); but whoever is refused before the first event leaves a trace that was there as it was, and none that
  // was not.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Names a row. Call once a lane before its first event.
  void name_row(int row, std::string_view name);
  // Times in nanoseconds from any fixed origin; a row's events come in the order in which they begin. The name is
  // escaped here.
  void event(int row, const TraceLabel& label, int64_t begin_ns, int64_t end_ns);
  // Writes what has been added: a file is valid JSON then, also when the process is killed later. The log is warned
  // once of what cannot be written; close() throws it.
  void flush();
  // Flushes. Throws IoError if anything of the trace could not be written.
  void close();

 private:
  struct Row {
    std::string name;
    std::vector<int64_t> end_ns;  // of each thread's last event
  };

  bool is_empty() const { return written_bytes_ == 0 && added_.empty(); }
  Row& row_at(int row);
  int free_thread(int row, int64_t begin_ns);
  void name_thread(int row, int thread);
  void add(std::string_view record);
  void write(std::string_view text);
  IoError failure(std::string advice) const;

  int file_ = -1;
  std::string path_;
  Log log_;
  std::vector<Row> rows_;
  std::string added_;  // since the last flush
  bool has_events_ = false;
  bool is_new_ = false, is_file_ = false;  // the last: no pipe, no device
  int64_t written_bytes_ = 0;              // without what ends the JSON
  int error_number_ = 0;                   // of the first write that failed
};

}  // namespace sluice
