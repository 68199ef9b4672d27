// Recovery: which of the two generations on the drive is the newest that is whole.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/bytes.h"
#include "core/checksum.h"
#include "swap/record_store_impl.h"

namespace sluice {

RecordStore::Impl::Superblocks RecordStore::Impl::read_superblocks() {
  Superblocks found;
  for (int i : {0, 1}) {
    FoundSuperblock& each = found[static_cast<size_t>(i)];
    try {
      run_block(IoOp::kRead, kSuperblockOffset[i]);
    } catch (const IoError& error) {
      each.unread = error;
      continue;
    }
    each.state = read_superblock(block.span(), fingerprint, each.superblock);
    // One that belongs in the other's place was written, or is read, where it should not be.
    const bool is_misplaced = each.superblock.table_offset != layout.table_offset(i);
    if (each.state == BlockState::kValid && is_misplaced) each.state = BlockState::kDamaged;
  }
  for (size_t i : {0, 1}) {
    FoundSuperblock& each = found[i];
    const FoundSuperblock& other = found[1 - i];
    each.is_emptied =
        each.state == BlockState::kBlank && other.state == BlockState::kValid && other.superblock.generation > 1;
    if (each.is_emptied) each.state = BlockState::kDamaged;  // it may have been the last commit's
  }
  return found;
}

// Once it is known what is lost with it.
void RecordStore::Impl::warn_of_damaged(int area, const FoundSuperblock& found) const {
  std::string end = "there is no other that is whole together with its table";
  if (has_generation) {
    end = fmt::format("the other one, of step {}, is used", committed.step);
    if (lost_step) {
      end += fmt::format("; step {}, which may have been committed after it, is lost", *lost_step);
    } else if (!found.tells_table) {
      end += "; whether a later step was committed cannot be told";
    }
  }
  say(options.log, LogLevel::kWarning,
      fmt::format("superblock {} of {} {}: {}", area, drives[0].name(),
                  found.is_emptied ? "has been emptied" : "is damaged", end));
}

// Reads an area into the table buffer. False: it is not the table that the superblock wrote.
bool RecordStore::Impl::read_table(int area, const Superblock& superblock) {
  const int64_t bytes = superblock.table_bytes;
  if (bytes > layout.table_area_bytes() || bytes < table_payload_bytes(record_count(), 0)) return false;
  grow_table_buffer(bytes);
  read_caller_bytes = std::max(read_caller_bytes, bytes - table_payload_bytes(record_count(), 0));
  const Extent at{.offset = layout.table_offset(area), .bytes = round_up(bytes, kStoreBlockBytes)};
  transfers.run_now({.op = IoOp::kRead, .memory = table.data()}, {&at, 1});
  return crc32c(0, table.span().first(static_cast<size_t>(bytes))) == superblock.table_crc;
}

void RecordStore::Impl::adopt_table(int area, const Superblock& superblock) {
  committed = read_table_state(table.span().first(static_cast<size_t>(superblock.table_bytes)), record_count());
  const std::span<const TableEntry> on_disk = table_entries(table.span(), record_count());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto slot = static_cast<uint8_t>(on_disk[i].slot & 1);
    Entry& e = entries[i];
    e = {.step = on_disk[i].step,
         .committed_slot = slot,
         .working_slot = slot,
         .has_content = true,
         .is_committed = true,
         .has_committed = true,
         .has_checksums = true};
    std::copy(std::begin(on_disk[i].crc), std::end(on_disk[i].crc), std::begin(e.written));
    std::copy(std::begin(on_disk[i].crc), std::end(on_disk[i].crc), std::begin(e.next));
    std::copy(std::begin(on_disk[i].crc), std::end(on_disk[i].crc), std::begin(e.committed));
  }
  committed.caller.reserve(static_cast<size_t>(options.caller_bytes));
  current_area = area;
  has_generation = true;
}

// Numbers already used must never be used again: a superblock whose write was under way at a crash may have one that no
// reader has seen. There is one such write at the most, so leaving out one number beyond the highest seen is enough,
// once that is durable. It is written beside the superblocks, to the older of two blocks of its own: a crash in the
// middle of it touches neither a superblock nor a table nor the newer opening, so the committed step cannot be lost to
// it. What the drive does not give had a number less than kUnread higher than what it gives.
void RecordStore::Impl::burn_generation() {
  constexpr uint64_t kUnread = uint64_t{1} << 32;
  OpeningBlock openings[2];
  bool all_read = all_superblocks_read;
  for (int i = 0; i < 2; ++i) {
    try {
      run_block(IoOp::kRead, kOpeningOffset[i]);
      if (read_opening(block.span(), openings[i]) == BlockState::kDamaged) all_read = false;
    } catch (const IoError& error) {
      say(options.log, LogLevel::kWarning, error.what());
      all_read = false;
    }
  }
  const uint64_t burnt[2] = {openings[0].generation, openings[1].generation};
  generation = std::max({generation, burnt[0], burnt[1]}) + (all_read ? 1 : kUnread);
  write_opening(block.span(), {.generation = generation, .opener = options.opener});
  run_block(IoOp::kWrite, kOpeningOffset[older_opening(burnt[0], burnt[1])]);
  transfers.run_now({.op = IoOp::kSync}, everywhere().first(1));
}

// The newest valid generation. The other one, when it is valid too, can be opened as long as nothing has been written:
// no rank writes records of step k+1 before k is durable on all of them, so the slots of k-1 are whole wherever k is
// missing on some rank. Elsewhere they may have been written to; open_step() looks.
RecordStore::Impl::Content RecordStore::Impl::load() {
  Superblocks found = read_superblocks();
  all_superblocks_read =
      std::ranges::none_of(found, [](const FoundSuperblock& each) { return each.unread.has_value(); });
  const auto at = [&](int area) -> FoundSuperblock& { return found[static_cast<size_t>(area)]; };
  std::vector<int> areas;  // newest first
  for (int area : {0, 1}) {
    if (at(area).state == BlockState::kValid) areas.push_back(area);
  }
  std::ranges::sort(areas, std::ranges::greater(), [&](int area) { return at(area).superblock.generation; });
  for (int area : areas) load_generation(area, at(area).superblock);
  for (int area : {0, 1}) {
    if (at(area).state == BlockState::kDamaged) look_for_lost_step(area, at(area));
  }
  // Where two commits are of one step, between steps, nothing of it is lost with either.
  if (has_generation && lost_step && *lost_step <= committed.step) lost_step.reset();
  for (int area : {0, 1}) {
    if (at(area).state == BlockState::kDamaged && !at(area).unread) warn_of_damaged(area, at(area));
  }
  if (unread && (!has_generation || options.unread == StoreOptions::Unread::kRefused)) refuse_unread();
  if (!has_generation && steps_were_committed(found)) refuse_damaged_steps();
  for (const FoundSuperblock& each : found) {
    if (!each.unread) continue;
    say(options.log, LogLevel::kWarning, fmt::format("{}; step {} is used", each.unread->what(), committed.step));
  }
  return has_generation ? Content::kSome : Content::kNone;
}

// A valid superblock's: adopts it where no newer one is whole.
void RecordStore::Impl::load_generation(int area, const Superblock& superblock) {
  generation = std::max(generation, superblock.generation);
  std::optional<IoError> error;
  try {
    if (read_table(area, superblock)) {
      if (has_generation) {
        previous_step = superblock.step;
      } else {
        adopt_table(area, superblock);
      }
      return;
    }
  } catch (const IoError& failed_read) {
    error = failed_read;
  }
  const std::string state = error ? error->what() : has_generation ? "it is not whole" : "it is damaged";
  const char* const end = has_generation ? "the newer one is whole; a commit that was cut off may have begun there"
                                         : "the other one is used if it is whole";
  say(options.log, has_generation && !error ? LogLevel::kInfo : LogLevel::kWarning,
      fmt::format("the table of step {} in {}: {}: {}", superblock.step, drives[0].name(), state, end));
  if (has_generation) return;
  lost_step = superblock.step;
  is_newer_damaged = !error;
  if (error) unread = error;
}

// Where a superblock tells nothing, the table that was begun before it does: a later one is of a step that is lost.
void RecordStore::Impl::look_for_lost_step(int area, FoundSuperblock& found) {
  bool may_be_later = !has_generation;
  try {
    run_block(IoOp::kRead, layout.table_offset(area));
    const std::optional<BegunTable> begun = begun_table(block.span());
    found.tells_table = begun.has_value();
    if (has_generation && begun && begun->generation > generation) {
      lost_step = begun->step;
      may_be_later = true;
    }
    if (!begun && !is_blank(block.span())) may_be_later = true;  // damaged: nothing tells whose it is
    is_newer_damaged = is_newer_damaged || (!found.unread && (may_be_later || !begun));
  } catch (const IoError& error) {
    say(options.log, LogLevel::kWarning, error.what());
    unread = error;  // nothing tells whose it is
    found.tells_table = false;
  }
  if (found.unread && may_be_later) unread = found.unread;
}

// The second area takes a table only when a step has been committed.
bool RecordStore::Impl::steps_were_committed(const Superblocks& found) {
  if (!std::ranges::all_of(found, [](const FoundSuperblock& each) { return each.state == BlockState::kBlank; })) {
    return true;
  }
  run_block(IoOp::kRead, layout.table_offset(1));
  return begun_table(block.span()).has_value();
}

// No creation that is cut off leaves this: the first table is durable before its superblock, which lies in one sector.
void RecordStore::Impl::refuse_damaged_steps() const {
  throw CorruptionError(
      fmt::format("{}: steps were committed, and no superblock is whole together with its table: bring back the file, "
                  "or {}",
                  drives[0].name(), options.words->start_over));
}

// The drive may give it the next time, and then it is what was committed last.
void RecordStore::Impl::refuse_unread() const {
  IoError::Details details = unread->details();
  details.advice = "what was committed last may stand there: look at the drive's health (dmesg) and try again";
  if (has_generation) {
    details.advice += fmt::format("; if the drive never gives it, step {} is the newest that can be read{}",
                                  committed.step, options.words->earlier_step);
  }
  throw IoError(details);
}

}  // namespace sluice
