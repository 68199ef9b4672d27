#include "core/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/errors.h"
#include "core/machine_advice.h"
#include "core/retried.h"

namespace sluice {

namespace {

[[noreturn]] void fail(const char* action, const InputFile::InErrors& in_errors, int64_t offset = -1) {
  const int error_number = errno;
  const char* const theirs = in_errors.advice.c_str();  // the drive's faults are theirs, too
  throw IoError({.action = action,
                 .path = in_errors.path.string(),
                 .offset = offset,
                 .error_number = error_number,
                 .advice = error_number == EIO ? theirs : advice_of_machine(error_number, theirs)});
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path, InErrors in_errors)
    : in_errors_(std::move(in_errors)), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) fail("open", in_errors_);
}

InputFile::~InputFile() {
  if (file_ >= 0) ::close(file_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : in_errors_(std::move(other.in_errors_)), file_(std::exchange(other.file_, -1)) {}

int64_t InputFile::bytes() const {
  struct stat status {};
  if (::fstat(file_, &status) != 0) fail("fstat", in_errors_);
  return status.st_size;
}

size_t InputFile::read(int64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const int64_t from = offset + static_cast<int64_t>(done);
    const ssize_t got =
        retried([&] { return ::pread(file_, into.data() + done, into.size() - done, static_cast<off_t>(from)); });
    if (got < 0) fail("read", in_errors_, from);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void InputFile::read_whole(int64_t offset, std::span<std::byte> into) const {
  const size_t got = read(offset, into);
  if (got == into.size()) return;
  throw IoError({.action = "read",
                 .path = in_errors_.path.string(),
                 .offset = offset + static_cast<int64_t>(got),
                 .bytes = static_cast<int64_t>(into.size() - got),
                 .reason = "the file ends there: it has become shorter since it was opened",
                 .advice = in_errors_.advice_when_shorter});
}

}  // namespace sluice
