// Typed errors. Operating errors are thrown as one of these and say what, where, and what to do; a broken promise of
// the program itself is a failed check(), which stays on in release builds.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user's input cannot be used: a configuration, a command line, a file's contents, a budget that is too small.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// The budgets cannot hold the model. `what()` names the smallest that would do.
class BudgetError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// A transfer or a file operation failed. `what()` already names all of the fields.
class IoError : public Error {
 public:
  struct Details {
    std::string action{};  // "read", "write", "fdatasync", "open", "fallocate", ...
    std::string path{};
    int64_t offset = -1;  // bytes; -1 where it has no meaning
    int64_t bytes = -1;
    int error_number = 0;  // errno of this operation; 0: `reason` says what failed
    std::string reason{};  // in words, where there is no errno
    std::string advice{};  // what to do, may be empty
  };
  explicit IoError(Details details);
  const Details& details() const { return details_; }

 private:
  Details details_;
};

// A device (GPU or its twin) refused or failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// Bytes read are not the bytes written: checksum or version mismatch. Nothing was trained on them.
class CorruptionError : public Error {
 public:
  using Error::Error;
};

// Training cannot go on: a non-finite update, ten skipped steps in a row.
class NumericsError : public Error {
 public:
  using Error::Error;
};

// A programmer's error: throws std::logic_error naming the place.
[[noreturn]] void check_failed(const char* condition, const char* file, int line, std::string_view message);

}  // namespace sluice

#define SLUICE_CHECK(condition, message) \
  ((condition) ? void(0) : ::sluice::check_failed(#condition, __FILE__, __LINE__, (message)))
