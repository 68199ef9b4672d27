#include "app/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <iterator>
#include <string_view>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/folders.h"
#include "core/retried.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little);  // as protobuf and TFRecords have numbers

// Field numbers of event.proto and summary.proto.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;  // of Event
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1, kValueNumber = 2;
constexpr int kSessionStatus = 1, kSessionStarted = 1;

enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
void append_bits(std::string& message, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  message.append(bytes.data(), bytes.size());
}

void append_varint(std::string& message, uint64_t value) {
  for (; value >= 0x80; value >>= 7) message.push_back(static_cast<char>(value | 0x80));
  message.push_back(static_cast<char>(value));
}

void append_key(std::string& message, int field, Wire wire) {
  append_varint(message, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void append_integer(std::string& message, int field, int64_t value) {
  append_key(message, field, Wire::kVarint);
  append_varint(message, static_cast<uint64_t>(value));
}

void append_text(std::string& message, int field, std::string_view text) {
  append_key(message, field, Wire::kBytes);
  append_varint(message, text.size());
  message += text;
}

std::string event_now() {
  std::string event;
  append_key(event, kWallTime, Wire::kFixed64);
  append_bits(event, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  return event;
}

uint32_t masked_sum(std::string_view bytes) { return std::rotr(crc32c(0, bytes), 15) + 0xa282ead8U; }

std::string record_of(const std::string& event) {
  std::string record;
  append_bits(record, uint64_t{event.size()});
  append_bits(record, masked_sum(record));
  record += event;
  append_bits(record, masked_sum(event));
  return record;
}

// Read in the order of their names: the time comes first.
std::string new_file_name() {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("events.out.tfevents.{:010}.{}.{}", std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                     host, getpid());
}

}  // namespace

EventFile::Opened EventFile::open_new(const std::filesystem::path& folder) {
  make_folder(folder, kEventsAdvice);
  const std::filesystem::path path = folder / new_file_name();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) throw IoError({.action = "open", .path = path, .error_number = errno, .advice = kEventsAdvice});
  return {path, file};
}

EventFile::EventFile(const std::filesystem::path& folder) : EventFile(open_new(folder)) {
  std::string event = event_now();
  append_text(event, kFileVersion, "brain.Event:2");
  write(event);
}

EventFile::~EventFile() { close(file_); }

void EventFile::begin_again_at(int64_t step) {
  std::string event = event_now(), session;
  append_integer(event, kStep, step);
  append_integer(session, kSessionStatus, kSessionStarted);
  append_text(event, kSessionLog, session);
  write(event);
}

void EventFile::add(int64_t step, std::span<const EventScalar> scalars) {
  std::string event = event_now(), summary;
  append_integer(event, kStep, step);
  for (const auto& [tag, number] : scalars) {
    std::string value;
    append_text(value, kValueTag, tag);
    append_key(value, kValueNumber, Wire::kFixed32);
    append_bits(value, static_cast<float>(number));
    append_text(summary, kSummaryValue, value);
  }
  append_text(event, kSummary, summary);
  write(event);
}

void EventFile::write(const std::string& event) {
  const std::string record = record_of(event);
  std::string_view left = record;
  if (write_whole(left, [this](std::string_view bytes) { return ::write(file_, bytes.data(), bytes.size()); })) return;
  throw IoError({.action = "write",
                 .path = path_.string(),
                 .bytes = std::ssize(left),
                 .error_number = errno != 0 ? errno : ENOSPC,
                 .advice = "make room on the drive"});
}

}  // namespace sluice
