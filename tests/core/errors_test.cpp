#include "core/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <system_error>

#include "core/threads.h"

namespace sluice {
namespace {

TEST(IoError, names_action_path_place_errno_and_advice) {
  const IoError error({.action = "write",
                       .path = "/drive/sluice-0.swap",
                       .offset = 8192,
                       .bytes = 4096,
                       .error_number = ENOSPC,
                       .advice = "free some space"});
  EXPECT_STREQ(error.what(),
               "write of /drive/sluice-0.swap failed (4096 bytes at offset 8192): No space left on device (errno 28); "
               "free some space");
  EXPECT_EQ(error.details().error_number, ENOSPC);
}

TEST(IoError, leaves_out_what_has_no_meaning) {
  EXPECT_STREQ(IoError({.action = "open", .path = "/a", .error_number = EACCES}).what(),
               "open of /a failed: Permission denied (errno 13)");
  EXPECT_STREQ(IoError({.action = "seek", .path = "/a", .offset = 7, .error_number = EIO}).what(),
               "seek of /a failed (at offset 7): Input/output error (errno 5)");
  EXPECT_STREQ(IoError({.action = "fallocate", .path = "/a", .bytes = 5, .error_number = EIO}).what(),
               "fallocate of /a failed (5 bytes): Input/output error (errno 5)");
}

TEST(IoError, without_errno_gives_its_reason_in_words_and_makes_none_up) {
  EXPECT_STREQ(IoError({.action = "read", .path = "/a", .offset = 0, .bytes = 512, .reason = "100 bytes moved"}).what(),
               "read of /a failed (512 bytes at offset 0): 100 bytes moved");
  EXPECT_STREQ(IoError({.action = "read", .path = "/a", .advice = "look"}).what(), "read of /a failed; look");
}

TEST(Errors, are_all_caught_as_one_kind_and_told_apart) {
  EXPECT_THROW(throw ConfigError("x"), Error);
  EXPECT_THROW(throw DeviceError("x"), Error);
  EXPECT_THROW(throw CorruptionError("x"), Error);
  EXPECT_THROW(throw NumericsError("x"), Error);
  EXPECT_THROW(throw IoError({.action = "read", .path = "/a"}), Error);
}

TEST(Check, that_holds_does_nothing) { EXPECT_NO_THROW(SLUICE_CHECK(1 + 1 == 2, "arithmetic")); }

TEST(Check, that_fails_is_a_logic_error_with_place_condition_and_message) {
  try {
    SLUICE_CHECK(1 + 1 == 3, "arithmetic is broken");
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("errors_test.cpp:"));
    EXPECT_THAT(error.what(), testing::HasSubstr("check failed: 1 + 1 == 3: arithmetic is broken"));
  }
}

TEST(Threads, that_cannot_be_started_are_refused_with_the_limit_to_raise) {
  const std::system_error why(EAGAIN, std::generic_category());
  try {
    refuse_thread("a thread for a test", why, "or do without");
  } catch (const IoError& error) {
    const std::string message = error.what();
    for (const char* words : {"start of a thread for a test failed", "ulimit -u", "or do without"}) {
      EXPECT_NE(message.find(words), std::string::npos) << message;
    }
  }
  int run = 0;
  start_thread("a thread", [&run] { run = 1; }).join();
  EXPECT_EQ(run, 1);
}

}  // namespace
}  // namespace sluice
