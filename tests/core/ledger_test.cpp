#include "core/ledger.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {
namespace {

TEST(Ledger, counts_what_is_taken_and_the_most_that_was) {
  Ledger ledger;
  ledger.charge(Tier::kHost, "weights", 100);
  ledger.charge(Tier::kHost, "state", 50);
  ledger.release(Tier::kHost, "weights", 60);
  ledger.charge(Tier::kHost, "state", 20);
  EXPECT_EQ(ledger.now(Tier::kHost), 110);
  EXPECT_EQ(ledger.peak(Tier::kHost), 150);
  EXPECT_EQ(ledger.now(Tier::kDevice), 0);
  const auto rows = ledger.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].use, "state");
  EXPECT_EQ(rows[0].now_bytes, 70);
  EXPECT_EQ(rows[1].use, "weights");
  EXPECT_EQ(rows[1].now_bytes, 40);
  EXPECT_EQ(rows[1].peak_bytes, 100);
}

TEST(Ledger, fills_a_budget_to_its_last_byte_and_not_beyond) {
  Ledger ledger;
  ledger.set_budget(Tier::kDevice, 64 * kMiB);
  ledger.charge(Tier::kDevice, "weights", 64 * kMiB - 1);
  ledger.charge(Tier::kDevice, "workspace", 1);
  EXPECT_THROW(ledger.charge(Tier::kDevice, "workspace", 1), ConfigError);
  EXPECT_EQ(ledger.now(Tier::kDevice), 64 * kMiB);
  EXPECT_EQ(ledger.peak(Tier::kDevice), 64 * kMiB);
}

TEST(Ledger, refuses_with_the_bytes_that_are_missing_and_charges_nothing) {
  Ledger ledger;
  ledger.set_budget(Tier::kHost, 1000);
  ledger.charge(Tier::kHost, "weights", 700);
  try {
    ledger.charge(Tier::kHost, "update ring", 400);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "the host budget of 1000 bytes (1000 B) cannot hold 400 bytes more for update ring: 700 bytes are "
                 "taken; raise the budget by 100 bytes");
  }
  EXPECT_EQ(ledger.now(Tier::kHost), 700);
  EXPECT_EQ(ledger.rows().size(), 1u);
}

TEST(Ledger, caps_each_tier_alone) {
  Ledger ledger;
  ledger.set_budget(Tier::kHost, 10);
  EXPECT_NO_THROW(ledger.charge(Tier::kNvme, "records", kGiB));
  EXPECT_EQ(ledger.budget(Tier::kNvme), -1);
  EXPECT_EQ(ledger.budget(Tier::kHost), 10);
}

TEST(Ledger, survives_a_charge_near_the_end_of_int64) {
  Ledger ledger;
  ledger.set_budget(Tier::kHost, 100);
  ledger.charge(Tier::kHost, "weights", 100);
  EXPECT_THROW(ledger.charge(Tier::kHost, "weights", INT64_MAX), ConfigError);
}

TEST(Ledger, calls_a_release_of_more_than_was_charged_a_programmers_error) {
  Ledger ledger;
  ledger.charge(Tier::kHost, "weights", 10);
  EXPECT_THROW(ledger.release(Tier::kHost, "weights", 11), std::logic_error);
  EXPECT_THROW(ledger.release(Tier::kHost, "state", 1), std::logic_error);
  EXPECT_THROW(ledger.charge(Tier::kHost, "weights", -1), std::logic_error);
  EXPECT_THROW(ledger.set_budget(Tier::kHost, 5), std::logic_error);
}

TEST(Ledger, never_exceeds_its_budget_under_many_threads) {
  constexpr int64_t kBudget = 1000;
  constexpr int kThreads = 4, kRounds = 2000;
  Ledger ledger;
  ledger.set_budget(Tier::kHost, kBudget);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&ledger, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const int64_t bytes = 100 + 97 * ((round + thread) % 5);
        try {
          ledger.charge(Tier::kHost, "slots", bytes);
        } catch (const ConfigError&) {
          continue;
        }
        ledger.release(Tier::kHost, "slots", bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.now(Tier::kHost), 0);
  EXPECT_LE(ledger.peak(Tier::kHost), kBudget);
  EXPECT_GT(ledger.peak(Tier::kHost), 0);
}

}  // namespace
}  // namespace sluice
