// The sluice command with a store queue that ends the process, or signals it, in the middle of its traffic:
//   sluice_with_faults FAULT VALUE ARGUMENTS-OF-SLUICE...
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "app/command_line.h"
#include "tests/fakes/faulty_queue.h"

namespace {

using namespace sluice;

// Signals this process once so many bytes have been asked for.
class SignallingQueue : public IoQueue {
 public:
  SignallingQueue(std::unique_ptr<IoQueue> inner, int signal, int64_t after_bytes)
      : IoQueue(inner->depth()), inner_(std::move(inner)), signal_(signal), left_bytes_(after_bytes) {}
  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  void do_submit(const IoRequest& request) override {
    const int64_t before = left_bytes_;
    left_bytes_ -= request.bytes;
    if (before > 0 && left_bytes_ <= 0) std::raise(signal_);
    inner_->submit(request);
  }
  void do_flush() override { inner_->flush(); }
  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override { return inner_->poll(completions, wait); }

  std::unique_ptr<IoQueue> inner_;
  int signal_;
  int64_t left_bytes_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const std::string fault = argv[1];
  const int64_t value = std::atoll(argv[2]);
  const auto faults = std::make_shared<Faults>();
  if (fault == "kill-after-bytes") faults->kill_after_bytes = value;
  if (fault == "kill-at-superblock") faults->kill_at_superblock = value;
  if (fault == "fail-write") faults->list = {{.op = IoOp::kWrite, .nth = value, .error_number = EIO}};
  IoQueueFactory factory = faulty_queue_factory(faults);
  if (fault == "interrupt-after-bytes" || fault == "terminate-after-bytes") {
    const int signal = fault == "interrupt-after-bytes" ? SIGINT : SIGTERM;
    factory = [signal, value](const IoQueueOptions& options) -> std::unique_ptr<IoQueue> {
      return std::make_unique<SignallingQueue>(make_io_queue(options), signal, value);
    };
  }
  argv[2] = argv[0];
  const int exit_code = run_command_line(argc - 2, argv + 2, factory);
  std::printf("traffic %lld\n", static_cast<long long>(faults->read_bytes + faults->written_bytes));
  return exit_code;
}
