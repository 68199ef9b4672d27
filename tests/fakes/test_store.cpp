#include "tests/fakes/test_store.h"

#include <algorithm>
#include <cstring>

#include "core/checksum.h"

namespace sluice {

Log LogLines::log() {
  return [kept = kept_](LogLevel, const std::string& line) {
    std::lock_guard lock(kept->mutex);
    kept->text += line + "\n";
  };
}

std::string LogLines::text() const {
  std::lock_guard lock(kept_->mutex);
  return kept_->text;
}

IoFailure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const IoError& error) {
    return {.details = error.details(), .message = error.what()};
  }
  ADD_FAILURE() << "no IoError";
  return {};
}

namespace {

Geometry test_geometry(int64_t chunk_elements) {
  const std::vector<PartitionSpec> partitions = {{.name = "first", .parameters = {{"a", {30, 100}}, {"b", {77}}}},
                                                 {.name = "second", .parameters = {{"c", {4500}}}}};
  return Geometry(partitions, chunk_elements);
}

}  // namespace

TestRun::TestRun(Precision precision_of_run, int64_t chunk_elements)
    : precision(precision_of_run),
      geometry(test_geometry(chunk_elements)),
      identity{.model = "first: a 30x100, b 77\nsecond: c 4500\n",
               .precision = precision,
               .chunk_elements = chunk_elements,
               .chunk_count = static_cast<int64_t>(geometry.chunks().size())} {}

std::vector<RecordId> TestRun::records() const {
  std::vector<RecordId> all;
  for (uint32_t chunk = 0; chunk < geometry.chunks().size(); ++chunk) {
    all.push_back({chunk, Group::kWeights});
    all.push_back({chunk, Group::kState});
  }
  return all;
}

RecordLayout TestRun::layout(RecordId record) const {
  return record_layout(precision, record.group, geometry.chunks()[record.chunk].elements);
}

StepState TestRun::state(int64_t step) const {
  StepState state{.step = step,
                  .applied_steps = step - step / 5,
                  .skipped_steps = step / 5,
                  .skipped_in_a_row = step % 2,
                  .loss_scale = 1024.0 + static_cast<double>(step),
                  .good_steps = step % 3,
                  .hysteresis_left = step % 4,
                  .data_position = step * 48};
  state.caller.assign(100 + static_cast<size_t>(step % 7), std::byte(step));
  return state;
}

void fill_content(const TestRun& run, RecordId record, int64_t step, std::span<std::byte> into) {
  const RecordLayout layout = run.layout(record);
  std::memset(into.data(), 0, static_cast<size_t>(layout.bytes));
  for (int plane = 0; plane < layout.plane_count; ++plane) {
    uint64_t word =
        plane_seed(record.chunk, record.group, plane) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step) + 1;
    for (int64_t at = 0; at < layout.plane_bytes[plane]; ++at) {
      word = word * 6364136223846793005u + 1442695040888963407u;
      into[static_cast<size_t>(layout.plane_offset[plane] + at)] = std::byte(word >> 56);
    }
  }
}

std::vector<uint32_t> plane_crcs(const TestRun& run, RecordId record, std::span<const std::byte> bytes) {
  const RecordLayout layout = run.layout(record);
  std::vector<uint32_t> crcs;
  for (int plane = 0; plane < layout.plane_count; ++plane) {
    const auto first = static_cast<size_t>(layout.plane_offset[plane]);
    crcs.push_back(crc32c(plane_seed(record.chunk, record.group, plane),
                          bytes.subspan(first, static_cast<size_t>(layout.plane_bytes[plane]))));
  }
  return crcs;
}

void write_records(RecordStore& store, const TestRun& run, int64_t step) {
  for (RecordId record : run.records()) {
    AlignedBuffer buffer(run.layout(record).bytes);
    fill_content(run, record, step, buffer.span());
    store.set_checksums(record, plane_crcs(run, record, buffer.span()));
    write_now(store, record, buffer.data());
  }
}

void write_step(RecordStore& store, const TestRun& run, int64_t step) {
  write_records(store, run, step);
  commit_now(store, run.state(step));
}

std::vector<std::byte> read_verified(RecordStore& store, const TestRun& run, RecordId record) {
  AlignedBuffer buffer(run.layout(record).bytes);
  read_now(store, record, buffer.data());
  const std::vector<uint32_t> found = plane_crcs(run, record, buffer.span());
  for (size_t plane = 0; plane < found.size(); ++plane) {
    if (found[plane] != store.checksums(record)[plane]) {
      throw store.corruption(record, static_cast<int>(plane), found[plane], "block of the test");
    }
  }
  return {buffer.span().begin(), buffer.span().end()};
}

void leave_as_if_killed(std::unique_ptr<RecordStore> store, std::span<const std::filesystem::path> files) {
  const auto away = [](const std::filesystem::path& file) { return std::filesystem::path(file.string() + ".away"); };
  for (const auto& file : files) std::filesystem::rename(file, away(file));
  store.reset();  // takes away what has its name
  for (const auto& file : files) std::filesystem::rename(away(file), file);
}

void expect_step(RecordStore& store, const TestRun& run, int64_t step) {
  const StepState expected = run.state(step);
  const StepState& found = store.committed();
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.applied_steps, expected.applied_steps);
  EXPECT_EQ(found.skipped_steps, expected.skipped_steps);
  EXPECT_EQ(found.skipped_in_a_row, expected.skipped_in_a_row);
  EXPECT_EQ(found.loss_scale, expected.loss_scale);
  EXPECT_EQ(found.good_steps, expected.good_steps);
  EXPECT_EQ(found.hysteresis_left, expected.hysteresis_left);
  EXPECT_EQ(found.data_position, expected.data_position);
  EXPECT_EQ(found.caller, expected.caller);
  for (RecordId record : run.records()) {
    std::vector<std::byte> content(static_cast<size_t>(run.layout(record).bytes));
    fill_content(run, record, step, content);
    EXPECT_TRUE(read_verified(store, run, record) == content)
        << "chunk " << record.chunk << ", " << name_of(record.group) << ", step " << step;
  }
}

}  // namespace sluice
