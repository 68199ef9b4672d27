// Opening: what is refused, what is repaired, what is never used twice.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "swap/record_checksums.h"
#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"
#include "tests/swap/store_fixture.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class StoreOpening : public StoreOnADrive {};

TEST_F(StoreOpening, names_every_difference_to_the_run_that_opens_it) {
  make_steps(0);
  StoreIdentity other = run_.identity;
  other.model = "first: a 30x100, b 78\nsecond: c 4500\n";
  other.world_size = 2;
  const auto message = message_of<ConfigError>([&] { RecordStore::open(run_.geometry, other, options()); });
  EXPECT_THAT(
      message,
      AllOf(HasSubstr(file().string()), HasSubstr("\"first: a 30x100, b 77\""), HasSubstr("\"first: a 30x100, b 78\""),
            HasSubstr("world size: the store has 1, this run 2"), HasSubstr("start over with a new store")));
  EXPECT_THAT(message, Not(HasSubstr("::")));  // the command's users see it
  other = run_.identity;
  other.optimizer = Optimizer::kSgd;
  EXPECT_THAT(message_of<ConfigError>([&] { RecordStore::open(run_.geometry, other, options()); }),
              HasSubstr("optimizer: the store has Adam or AdamW, this run SGD"));
  const TestRun fp32(Precision::kFp32);
  EXPECT_THAT(message_of<ConfigError>([&] { RecordStore::open(fp32.geometry, fp32.identity, options()); }),
              HasSubstr("precision: the store has bf16, this run fp32"));
  const Geometry finer(std::vector<PartitionSpec>{{"first", {{"a", {3000}}}}}, 256);
  StoreIdentity cut = run_.identity;
  cut.chunk_elements = 256;
  cut.chunk_count = static_cast<int64_t>(finer.chunks().size());
  EXPECT_THAT(message_of<ConfigError>([&] { RecordStore::open(finer, cut, options()); }),
              AllOf(HasSubstr("chunk_elements: the store has 2000, this run 256"), HasSubstr("chunk count")));
  std::filesystem::copy_file(file(), folder_.path() / "sluice-1.swap");
  other = run_.identity;
  other.rank = 1;
  EXPECT_THAT(message_of<ConfigError>([&] { RecordStore::open(run_.geometry, other, options()); }),
              HasSubstr("rank: the store has 0, this run 1"));
  expect_step(*open(), run_, 0);
}

// The model's text is the embedder's, and may say nothing of shapes.
TEST_F(StoreOpening, of_chunks_of_other_sizes_under_the_same_name_is_refused_and_nothing_is_cut_off) {
  const auto geometry = [](int64_t last) {
    return Geometry(std::vector<PartitionSpec>{{"first", {{"a", {3000}}}}, {"second", {{"b", {last}}}}}, 2000);
  };
  const Geometry larger = geometry(1900), smaller = geometry(1000);
  ASSERT_EQ(larger.chunks().size(), smaller.chunks().size());
  run_.identity = {
      .model = "mine", .chunk_elements = 2000, .chunk_count = static_cast<int64_t>(larger.chunks().size())};
  for (const auto& [made, given] : {std::pair(larger, smaller), {smaller, larger}}) {
    run_.geometry = made;
    make_steps(1);
    const auto bytes = std::filesystem::file_size(file());
    EXPECT_THAT(message_of<ConfigError>([&] { RecordStore::open(given, run_.identity, options()); }),
                AllOf(HasSubstr(file().string()), HasSubstr("shapes: the store's chunks have other sizes")));
    EXPECT_EQ(std::filesystem::file_size(file()), bytes);
    expect_step(*open(), run_, 1);
  }
}

TEST_F(StoreOpening, a_difference_beyond_the_text_that_the_header_keeps_is_found_as_well) {
  run_.identity.model = std::string(5000, 'x') + "a";
  make_steps(0);
  run_.identity.model.back() = 'b';
  EXPECT_THAT(message_of<ConfigError>([&] { open(); }), HasSubstr("model: the store's is another one"));
}

TEST_F(StoreOpening, what_is_not_a_store_is_refused) {
  EXPECT_EQ(find_store(folder_.path()), StoreExists::kNo);
  EXPECT_THAT(message_of<IoError>([&] { open(); }),
              AllOf(HasSubstr(file().string()), HasSubstr("no store is there"),
                    HasSubstr("start over with a new store"), Not(HasSubstr("::"))));
  make_steps(0);
  EXPECT_EQ(find_store(folder_.path()), StoreExists::kYes);
  EXPECT_EQ(find_store(folder_.path(), 1), StoreExists::kNo);
  flip_in_both_copies(40);
  EXPECT_THAT(message_of<CorruptionError>([&] { open(); }), HasSubstr("damaged"));
  flip_in_both_copies(40);
  flip_in_both_copies(8);
  EXPECT_THAT(message_of<ConfigError>([&] { open(); }), HasSubstr("version 20, this is version 4"));
  flip_in_both_copies(8);
  expect_step(*open(), run_, 0);
  for (const int64_t offset : kIdentityOffset) change_bytes(offset, std::vector<std::byte>(4096, std::byte{'a'}));
  EXPECT_THAT(message_of<ConfigError>([&] { open(); }), HasSubstr("is not a store of sluice"));
  EXPECT_EQ(RecordStore::identify(folder_.path()), std::nullopt);
}

TEST_F(StoreOpening, a_file_cut_short_is_refused) {
  make_steps(0);
  std::filesystem::resize_file(file(),
                               static_cast<uintmax_t>(RecordStore::file_bytes(run_.geometry, run_.precision) - 512));
  EXPECT_THAT(message_of<CorruptionError>([&] { open(); }), HasSubstr("cut short"));
}

TEST_F(StoreOpening, identify_tells_as_much_of_a_long_model_as_is_kept_and_opening_compares_all_of_it) {
  run_.identity.model = std::string(10000, 'm');
  make_steps(0);
  EXPECT_EQ(RecordStore::identify(folder_.path())->model, std::string(kKeptModelBytes, 'm'));
  EXPECT_NE(open(), nullptr);
  run_.identity.model.back() = 'n';
  EXPECT_THAT(message_of<ConfigError>([&] { open(); }), HasSubstr("another one"));
}

TEST_F(StoreOpening, identify_tells_what_a_store_was_made_with) {
  EXPECT_EQ(RecordStore::identify(folder_.path()), std::nullopt);
  make_steps(0);
  auto store = open();  // held open: looking needs no lock
  const auto found = RecordStore::identify(folder_.path());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->model, run_.identity.model);
  EXPECT_EQ(found->precision, run_.identity.precision);
  EXPECT_EQ(found->chunk_elements, run_.identity.chunk_elements);
  EXPECT_EQ(found->chunk_count, run_.identity.chunk_count);
}

TEST_F(StoreOpening, what_the_system_will_not_open_is_an_error_and_not_a_store_that_is_gone) {
  make_steps(0);
  const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(lowest);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const IoFailure number = failure_of([&] { RecordStore::store_number(folder_.path()); });
  const IoFailure identity = failure_of([&] { RecordStore::identify(folder_.path()); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const IoFailure& failure : {number, identity}) {
    EXPECT_EQ(failure.details.error_number, EMFILE);
    EXPECT_EQ(failure.details.path, file().string());
  }
  EXPECT_NE(RecordStore::store_number(folder_.path()), std::nullopt);
}

TEST_F(StoreOpening, a_number_tells_a_store_from_the_one_that_took_its_place) {
  EXPECT_EQ(RecordStore::store_number(folder_.path()), std::nullopt);
  make_steps(0);
  const auto first = RecordStore::store_number(folder_.path());
  ASSERT_TRUE(first.has_value());
  {
    auto store = open();  // held open: looking needs no lock
    EXPECT_EQ(RecordStore::store_number(folder_.path()), first);
    write_step(*store, run_, 1);
  }
  expect_step(*open(), run_, 1);
  EXPECT_EQ(RecordStore::store_number(folder_.path()), first);
  make_steps(0);
  EXPECT_NE(RecordStore::store_number(folder_.path()), first);
}

TEST_F(StoreOpening, a_store_without_a_commit_does_not_open_and_can_be_made_anew) {
  const std::array files = {file()};
  leave_as_if_killed(create(), files);
  EXPECT_EQ(open(), nullptr);
  auto store = create();
  write_records(*store, run_, 0);
  leave_as_if_killed(std::move(store), files);
  EXPECT_EQ(open(), nullptr);
  std::filesystem::resize_file(file(), 0);  // a creation that was cut off
  EXPECT_EQ(open(), nullptr);
  make_steps(1);
  expect_step(*open(), run_, 1);
}

TEST_F(StoreOpening, creating_replaces_what_is_there) {
  make_steps(5);
  leave_as_if_killed(create(), std::array{file()});
  EXPECT_EQ(open(), nullptr);
}

TEST_F(StoreOpening, a_damaged_superblock_leaves_the_other_one_and_a_warning) {
  make_steps(3);
  flip_bit(kSuperblockOffset[newest()] + 24);
  auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->committed().step, 2);
  EXPECT_THAT(store->openable_steps(), ElementsAre(2));
  EXPECT_THAT(lines_.text(), HasSubstr("superblock"));
  expect_step(*store, run_, 2);  // nothing was written since the commit: its slots are whole
}

// Whole in itself, as a block that a drive wrote to the wrong place is, and of a later step. That of a run of the same
// model differs in nothing but the sum of its table.
TEST_F(StoreOpening, a_superblock_of_another_run_is_taken_for_a_damaged_one) {
  const auto takes_that_of = [&](const TestRun& other, const char* warning) {
    make_steps(3);
    const TempFolder elsewhere;
    StoreOptions there = options();
    there.folder = elsewhere.path();
    {
      auto store = RecordStore::create(other.geometry, other.identity, there);
      for (int64_t step = 0; step <= 9; ++step) write_step(*store, other, step);
    }
    const std::vector<std::byte> theirs = read_bytes(elsewhere.path() / "sluice-0.swap");
    const auto block = theirs.begin() + kSuperblockOffset[newest()];
    change_bytes(kSuperblockOffset[newest()], {block, block + kStoreBlockBytes});
    auto store = open();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->committed().step, 2);
    EXPECT_THAT(lines_.text(), HasSubstr(warning));
    expect_step(*store, run_, 2);
    write_step(*store, run_, 3);
    expect_step(*store, run_, 3);
  };
  takes_that_of(TestRun(Precision::kBf16, 1200), "is damaged: the other one, of step 2, is used");
  takes_that_of(run_, "the table of step 9");
}

TEST_F(StoreOpening, a_damaged_table_leaves_the_other_one_and_a_warning) {
  make_steps(3);
  flip_bit(superblock(newest()).table_offset + 100);
  auto store = open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(lines_.text(), HasSubstr("the table of step 3"));
  expect_step(*store, run_, 2);
  write_step(*store, run_, 3);
  expect_step(*store, run_, 3);
}

TEST_F(StoreOpening, is_taken_back_to_the_step_that_all_ranks_have) {
  make_steps(3);
  auto store = open();
  EXPECT_THAT(store->openable_steps(), ElementsAre(3, 2));
  EXPECT_THROW(store->open_step(1), std::logic_error);
  store->open_step(3);
  expect_step(*store, run_, 3);
  store->open_step(2);
  EXPECT_THAT(store->openable_steps(), ElementsAre(2));
  expect_step(*store, run_, 2);
  EXPECT_THROW(store->open_step(3), std::logic_error);
  store.reset();
  store = open();
  EXPECT_THAT(store->openable_steps(), ElementsAre(2));
  write_step(*store, run_, 3);
  expect_step(*store, run_, 3);
  EXPECT_THROW(store->open_step(1), std::logic_error);
  EXPECT_EQ(lines_.text(), "");
}

TEST_F(StoreOpening, a_step_whose_table_was_damaged_meanwhile_is_not_gone_back_to) {
  make_steps(3);
  auto store = open();
  flip_bit(superblock(1 - newest()).table_offset + 100);
  EXPECT_THAT(message_of<CorruptionError>([&] { store->open_step(2); }), HasSubstr("the table of step 2"));
  store.reset();
  expect_step(*open(), run_, 3);
}

TEST_F(StoreOpening, a_step_that_has_been_written_over_in_part_is_not_gone_back_to) {
  make_steps(3);
  {
    auto store = open();
    const RecordId last = run_.records().back();
    AlignedBuffer buffer(run_.layout(last).bytes);
    fill_content(run_, last, 4, buffer.span());
    write_now(*store, last, buffer.data());  // of a step that is cut off
  }
  auto store = open();
  EXPECT_THAT(store->openable_steps(), ElementsAre(3, 2));
  EXPECT_THAT(message_of<CorruptionError>([&] { store->open_step(2); }),
              AllOf(HasSubstr("step 2 is not whole"), HasSubstr("chunk 4, state"), HasSubstr(file().string()),
                    HasSubstr("opens at step 3 only")));
  EXPECT_THAT(store->openable_steps(), ElementsAre(3));
  expect_step(*store, run_, 3);
  store.reset();
  expect_step(*open(), run_, 3);
}

TEST_F(StoreOpening, damage_to_the_older_copy_costs_nothing) {
  make_steps(3);
  flip_bit(kSuperblockOffset[1 - newest()] + 24);
  expect_step(*open(), run_, 3);
}

TEST_F(StoreOpening, with_both_copies_damaged_is_refused_and_not_begun_anew) {
  make_steps(3);
  flip_bit(kSuperblockOffset[0]);
  flip_bit(kSuperblockOffset[1]);
  EXPECT_THAT(message_of<CorruptionError>([&] { open(); }),
              AllOf(HasSubstr(file().string()), HasSubstr("steps were committed")));
  EXPECT_THAT(lines_.text(), HasSubstr("there is no other"));
  EXPECT_THAT(lines_.text(), testing::Not(HasSubstr("is used")));
}

TEST_F(StoreOpening, a_flipped_bit_in_any_plane_is_found_and_named) {
  make_steps(1);
  auto store = open();
  const StoreLayout layout(run_.geometry, run_.precision, std::array{1u});
  const RecordId record{1, Group::kState};
  for (int plane = 0; plane < 3; ++plane) {
    const int64_t in_slot = run_.layout(record).plane_offset[plane] + 33;
    for (int slot : {0, 1}) flip_bit(layout.place_of(record, slot, in_slot).offset);
    const auto message = message_of<CorruptionError>([&] { read_verified(*store, run_, record); });
    const std::array<const char*, 3> names = {"residual", "moment1", "moment2"};
    EXPECT_THAT(message, AllOf(HasSubstr("block of the test"), HasSubstr("chunk 1"), HasSubstr("state"),
                               HasSubstr(names[plane]), HasSubstr("expected"), HasSubstr(file().string())));
    for (int slot : {0, 1}) flip_bit(layout.place_of(record, slot, in_slot).offset);
  }
  expect_step(*store, run_, 1);
}

TEST_F(StoreOpening, a_generation_number_is_never_used_twice) {
  std::set<uint64_t> used;
  auto use = [&](uint64_t generation) { EXPECT_TRUE(used.insert(generation).second) << generation; };
  make_steps(0);
  use(superblock(0).generation);
  for (int64_t step = 1; step < 4; ++step) {
    for (int openings = 0; openings < 3; ++openings) open();
    {
      auto store = open();
      // Its superblock is on its way and lost: nobody will ever see the number.
      auto faults = std::make_shared<Faults>();
      store.reset();
      StoreOptions lossy = options();
      lossy.make_queue = faulty_queue_factory(faults);
      store = RecordStore::open(run_.geometry, run_.identity, lossy);
      faults->list = {{.op = IoOp::kWrite, .nth = faults->writes + 1, .error_number = EIO}};
      EXPECT_THROW(commit_now(*store, run_.state(step)), IoError);
    }
    auto store = open();
    write_step(*store, run_, step);
    store.reset();
    const uint64_t newest_generation = superblock(newest()).generation;
    EXPECT_GT(newest_generation, *used.rbegin() + 1);
    use(newest_generation);
  }
}

TEST_F(StoreOpening, burning_a_number_leaves_the_last_one_burnt_where_it_is) {
  make_steps(1);
  uint64_t highest = 0;
  for (int openings = 0; openings < 5; ++openings) {
    open();
    OpeningBlock blocks[2];
    for (int i : {0, 1}) read_opening(bytes_at(kOpeningOffset[i], kStoreBlockBytes), blocks[i]);
    const uint64_t burnt[2] = {blocks[0].generation, blocks[1].generation};
    EXPECT_EQ(std::min(burnt[0], burnt[1]), highest);  // a burning that is cut off would have left this one
    EXPECT_GT(std::max(burnt[0], burnt[1]), highest);
    highest = std::max(burnt[0], burnt[1]);
  }
}

TEST_F(StoreOpening, keeps_the_number_of_whoever_was_the_last_to_open_it_to_write) {
  const auto last = [this] { return RecordStore::last_opener(folder_.path()); };
  EXPECT_EQ(last(), std::nullopt) << "no store is there";
  make_steps(1);
  EXPECT_EQ(last(), 0u) << "it has only been created";
  StoreOptions opening = options();
  for (const uint32_t opener : {7u, 5u, 9u}) {
    opening.opener = opener;
    const auto store = RecordStore::open(run_.geometry, run_.identity, opening);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(last(), opener);
  }
  opening.opener = 11;
  opening.access = StoreOptions::Access::kRead;
  ASSERT_NE(RecordStore::open(run_.geometry, run_.identity, opening), nullptr);
  EXPECT_EQ(last(), 9u);
  flip_bit(kOpeningOffset[0] + 9);
  EXPECT_EQ(last(), std::nullopt) << "the damaged block may be the newer one";
}

// But for scratch extents, which lie behind the records.
TEST_F(StoreOpening, to_read_changes_no_byte_and_writes_no_record) {
  make_steps(3);
  flip_bit(kIdentityOffset[1] + 20);
  const auto length = static_cast<int64_t>(std::filesystem::file_size(file()));
  const std::vector<std::byte> before = bytes_at(0, static_cast<size_t>(length));
  for (const int64_t scratch_bytes : {int64_t{0}, 3 * kStoreBlockBytes}) {
    StoreOptions reading = options();
    reading.access = StoreOptions::Access::kRead;
    if (scratch_bytes > 0) reading.scratch_bytes = {scratch_bytes};
    const auto store = RecordStore::open(run_.geometry, run_.identity, reading);
    store->verify(3);
    expect_step(*store, run_, 3);
    EXPECT_THAT(failure_of([&] { write_step(*store, run_, 4); }).message, HasSubstr("opened to be read"));
    EXPECT_THAT(failure_of([&] { commit_now(*store, run_.state(4)); }).message, HasSubstr("opened to be read"));
    EXPECT_THAT(failure_of([&] { store->open_step(2); }).message, HasSubstr("opened to be read"));
    if (scratch_bytes > 0) {
      AlignedBuffer kept(scratch_bytes), read(scratch_bytes);
      std::ranges::fill(kept.span(), std::byte{7});
      StoreCompletion done;
      store->write_scratch(0, kept.data(), 1);
      while (store->poll({&done, 1}, Wait::kUntilOne) == 0) {
      }
      EXPECT_EQ(done.error, nullptr);
      store->read_scratch(0, read.data(), 2);
      while (store->poll({&done, 1}, Wait::kUntilOne) == 0) {
      }
      EXPECT_TRUE(std::ranges::equal(read.span(), kept.span()));
    }
    EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(file())), length + scratch_bytes);
    EXPECT_EQ(bytes_at(0, static_cast<size_t>(length)), before);
    EXPECT_THAT(lines_.text(), AllOf(HasSubstr("copy 1 of the identity header"), HasSubstr("is left as it is")));
  }
  const auto longer = static_cast<int64_t>(std::filesystem::file_size(file()));
  StoreOptions reading = options();
  reading.access = StoreOptions::Access::kRead;
  RecordStore::open(run_.geometry, run_.identity, reading);
  EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(file())), longer) << "a training run's room is cut by none";
  open();
  EXPECT_THAT(lines_.text(), HasSubstr("it is mended"));
}

TEST_F(StoreOpening, a_second_opening_is_refused_in_this_process_and_in_another) {
  make_steps(1);
  auto store = open();
  const auto message = message_of<ConfigError>([&] { open(); });
  EXPECT_THAT(message, AllOf(HasSubstr(file().string()), HasSubstr("in use"), HasSubstr("another folder")));
  EXPECT_THAT(message_of<ConfigError>([&] { create(); }), HasSubstr("in use"));
  const pid_t child = fork();
  if (child == 0) {
    int refused = 1;
    try {
      open();
    } catch (const ConfigError&) {
      refused = 0;
    }
    _exit(refused);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  expect_step(*store, run_, 1);
  store.reset();
  expect_step(*open(), run_, 1);
}

TEST_F(StoreOpening, a_store_that_is_just_being_let_go_is_waited_for) {
  make_steps(1);
  auto store = open();
  std::unique_ptr<RecordStore> next;
  std::thread opener([&] { next = open(); });
  store.reset();
  opener.join();
  expect_step(*next, run_, 1);
}

TEST_F(StoreOpening, programmers_errors_are_checked) {
  const AlignedBuffer buffer(run_.layout({0, Group::kState}).bytes);  // outlives the store, which writes from it
  auto store = create();
  EXPECT_THROW(store->read({0, Group::kState}, buffer.data(), 0), std::logic_error);  // never written
  EXPECT_THROW(store->read({99, Group::kState}, buffer.data(), 0), std::logic_error);
  EXPECT_THROW(store->write({0, Group::kState}, nullptr, 0), std::logic_error);
  EXPECT_THROW(store->write({0, Group::kState}, buffer.data(), 0), std::logic_error);  // nobody could verify it
  EXPECT_EQ(store->in_flight(), 0);
  sum_record(*store, {0, Group::kState}, buffer.data());
  EXPECT_THROW(commit_now(*store, run_.state(0)), std::logic_error);  // a commit covers every record
  store->write({0, Group::kState}, buffer.data(), 0);
  EXPECT_THROW(store->write({0, Group::kState}, buffer.data(), 1), std::logic_error);
  EXPECT_THROW(store->read({0, Group::kState}, buffer.data(), 1), std::logic_error);
  EXPECT_THROW(store->commit(run_.state(0), 1), std::logic_error);
}

}  // namespace
}  // namespace sluice
