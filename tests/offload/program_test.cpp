// What a program says of itself and of its hops.
#include "offload/program.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace sluice {
namespace {

TEST(Programs, take_no_hop_once_they_are_finished_and_count_what_they_then_keep) {
  constexpr Range kCell{Place::kHost, 0, 8};
  Program program;
  program.emit({.verb = Verb::kUpdate}, {}, {&kCell, 1});
  program.emit({.verb = Verb::kUpload}, {&kCell, 1}, {});
  program.finish();
  EXPECT_THROW(program.emit({.verb = Verb::kUpdate}, {}, {&kCell, 1}), std::logic_error);
  // Two hops; where the lists of each hop begin, twice; one hop that waits, and who waits for it; two hops in lanes.
  EXPECT_EQ(program.memory_bytes(), static_cast<int64_t>(2 * sizeof(Hop) + (2 * 3 + 2 * 1 + 2) * sizeof(int32_t)));
}

TEST(Programs, refuse_ranges_of_nothing) {
  for (const Place place : {Place::kHost, Place::kControl}) {
    const Range nothing{place, 8, 8};
    Program program;
    EXPECT_THROW(program.emit({}, {&nothing, 1}, {}), std::logic_error);
    EXPECT_THROW(program.emit({}, {}, {&nothing, 1}), std::logic_error);
  }
}

TEST(Programs, say_of_a_hop_what_it_moves_or_does) {
  const auto category = [](Verb verb) { return Program::category({.verb = verb, .group = Group::kState}); };
  for (const Verb verb : {Verb::kSwapIn, Verb::kSwapOut, Verb::kUpload, Verb::kDownload}) {
    EXPECT_EQ(category(verb), "state");
  }
  for (const Verb verb : {Verb::kVerify, Verb::kSeal}) EXPECT_EQ(category(verb), "checksum");
  for (const Verb verb : {Verb::kClip, Verb::kCommit}) EXPECT_EQ(category(verb), "control");
  EXPECT_EQ(category(Verb::kCompute), "compute");
  EXPECT_EQ(category(Verb::kUpdate), "update");
  EXPECT_EQ(category(Verb::kClose), "gradient");
}

TEST(Programs, describe_a_hop_by_its_visit_or_chunk) {
  EXPECT_EQ(Program::describe({.verb = Verb::kSwapIn, .group = Group::kState, .chunk = 12}, "h.3"),
            "swap_in h.3 state 12");
  EXPECT_EQ(Program::describe({.verb = Verb::kUpload, .group = Group::kGradient, .visit = 3, .partition = 4}, "h.3"),
            "upload h.3 gradient 4");
  EXPECT_EQ(Program::describe({.visit = 3, .micro_batch = 1}, "h.3"), "compute h.3 #1");
  EXPECT_EQ(Program::describe({.verb = Verb::kClose, .visit = 3, .partition = 2}, "h.3"), "close h.3 partition 2");
  EXPECT_EQ(Program::describe({.verb = Verb::kCommit}, ""), "commit");
}

}  // namespace
}  // namespace sluice
