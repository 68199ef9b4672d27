#include "tests/app/command_with_faults.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "app/command_line.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

// Does something once so many bytes have been asked for, before the request that passes that count.
class ActingQueue : public IoQueue {
 public:
  using Action = std::function<void(const IoRequest&)>;
  ActingQueue(std::unique_ptr<IoQueue> inner, Action action, int64_t after_bytes)
      : IoQueue(inner->depth()), inner_(std::move(inner)), action_(std::move(action)), left_bytes_(after_bytes) {}
  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  void do_submit(const IoRequest& request) override {
    const int64_t before = left_bytes_;
    left_bytes_ -= request.bytes;
    if (before > 0 && left_bytes_ <= 0) action_(request);
    inner_->submit(request);
  }
  void do_flush() override { inner_->flush(); }
  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override { return inner_->poll(completions, wait); }

  std::unique_ptr<IoQueue> inner_;
  Action action_;
  int64_t left_bytes_;
};

// The run's token ids, beside its store: cut off, or other bytes in every block of them.
void damage_tokens(int store, const std::string& fault) {
  const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", store));
  const int tokens = open((path.parent_path() / "tokens.cache").c_str(), O_RDWR | O_CLOEXEC);
  if (tokens < 0) std::_Exit(kFaultNotPossible);
  const off_t end = fault == "cut-tokens-after-bytes" ? 0 : lseek(tokens, 0, SEEK_END);
  if (end == 0 && ftruncate(tokens, 64) != 0) std::_Exit(kFaultNotPossible);
  constexpr std::array<char, 4096> kOther{};
  for (off_t at = 64; at < end; at += std::ssize(kOther)) {
    const off_t bytes = std::min<off_t>(std::ssize(kOther), end - at);
    if (pwrite(tokens, kOther.data(), static_cast<size_t>(bytes), at) != bytes) std::_Exit(kFaultNotPossible);
  }
  close(tokens);
}

// No file gets a name any more, as on a file system whose journal has failed.
void refuse_names() {
  for (const uint32_t call : {SYS_linkat, SYS_renameat,
#ifdef SYS_rename
                              SYS_rename,
#endif
                              SYS_renameat2})
    forbid({.number = call, .error_number = EIO});
}

ActingQueue::Action action_named(const std::string& fault) {
  if (fault == "interrupt-after-bytes") return [](const IoRequest&) { std::raise(SIGINT); };
  if (fault == "terminate-after-bytes") return [](const IoRequest&) { std::raise(SIGTERM); };
  if (fault == "hang-up-after-bytes") return [](const IoRequest&) { std::raise(SIGHUP); };
  if (fault == "terminate-twice-after-bytes") {
    return [](const IoRequest&) {
      std::raise(SIGTERM);
      std::raise(SIGTERM);
    };
  }
  if (fault == "cut-to-nothing-after-bytes" || fault == "cut-in-half-after-bytes") {
    return [whole = fault == "cut-to-nothing-after-bytes"](const IoRequest& request) {
      const off_t bytes = lseek(request.file, 0, SEEK_END);
      if (ftruncate(request.file, whole ? 0 : bytes / 8192 * 4096) != 0) std::_Exit(kFaultNotPossible);
    };
  }
  if (fault == "change-tokens-after-bytes" || fault == "cut-tokens-after-bytes") {
    return [fault](const IoRequest& request) { damage_tokens(request.file, fault); };
  }
  if (fault == "refuse-names-after-bytes") return [](const IoRequest&) { refuse_names(); };
  if (fault == "pull-drive-after-bytes") {
    return [](const IoRequest& request) {
      if (shut_down_ext4(request.file) != ShutDown::kDone) std::_Exit(kFaultNotPossible);
    };
  }
  return {};
}

int run(const std::vector<std::string>& arguments, const IoQueueFactory& make_queue) {
  std::vector<const char*> argv = {"sluice"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return run_command_line(static_cast<int>(argv.size()), argv.data(), make_queue);
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) { return run(arguments, make_io_queue); }

int run_command_with(const CommandFault& fault, const std::vector<std::string>& arguments) {
  const auto faults = std::make_shared<Faults>();
  if (fault.name == "kill-after-bytes") faults->kill_after_bytes = fault.value;
  if (fault.name == "kill-at-superblock") faults->kill_at_superblock = fault.value;
  if (fault.name == "fail-read") faults->list = {{.op = IoOp::kRead, .nth = fault.value, .error_number = EIO}};
  if (fault.name == "fail-write") faults->list = {{.op = IoOp::kWrite, .nth = fault.value, .error_number = EIO}};
  IoQueueFactory factory = faulty_queue_factory(faults);
  if (const ActingQueue::Action named = action_named(fault.name)) {
    // Once, in whichever of the command's queues comes so far.
    const auto action = [named, acted = std::make_shared<bool>(false)](const IoRequest& request) {
      if (!std::exchange(*acted, true)) named(request);
    };
    factory = [action, &fault](const IoQueueOptions& options) -> std::unique_ptr<IoQueue> {
      return std::make_unique<ActingQueue>(make_io_queue(options), action, fault.value);
    };
  }
  const int exit_code = run(arguments, factory);
  std::printf("traffic %lld\n", static_cast<long long>(faults->read_bytes + faults->written_bytes));
  return exit_code;
}

}  // namespace sluice
