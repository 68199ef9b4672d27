#include "bench/nvme_to_device.h"

#include <array>

#include "core/bytes.h"
#include "core/clock.h"

namespace sluice {
namespace {

constexpr int64_t kBlockBytes = kMiB;
constexpr uint64_t kBlocks = Device::kMaxCopies;  // of host memory, each read, uploaded or free

std::unique_ptr<IoQueue> make_queue(std::span<std::byte> memory) {
  return make_io_queue({.depth = static_cast<int>(kBlocks), .memory = {memory}});
}

}  // namespace

NvmePath::NvmePath(const Options& options)
    : device_(options.device),
      host_(options.host),
      file_(options.folder, static_cast<int64_t>(options.host.size()) / 2 / kBlockBytes * kBlockBytes, options.words),
      queue_(make_queue(options.host)) {
  for (uint64_t block = 0; block < kBlocks; ++block) free_blocks_.push_back(block);
  ended_.reserve(kBlocks);
  device_.set_sink(this);
  // What was never written reads as zeros without the drive.
  run_bare(*queue_, {.op = BareOp::kWrite,
                     .ranges = {file_.whole()},
                     .bytes = file_.bytes(),
                     .block_bytes = kBlockBytes,
                     .depth = static_cast<int>(kBlocks),
                     .memory = host_});
}

NvmePath::~NvmePath() {
  std::unique_lock lock(mutex_);
  all_ended_.wait(lock, [this] { return under_way_ == 0; });
}

double NvmePath::run() { return pass(Reads::kDone); }
double NvmePath::upload_alone() { return pass(Reads::kLeftOut); }

double NvmePath::read_alone() {
  return run_bare(*queue_, {.ranges = {file_.whole()},
                            .bytes = file_.bytes(),
                            .block_bytes = kBlockBytes,
                            .depth = static_cast<int>(kBlocks),
                            .memory = host_.first(kBlocks * kBlockBytes)})
      .gb_per_s();
}

double NvmePath::pass(Reads reads) {
  const int64_t blocks = file_.bytes() / kBlockBytes;
  const int64_t begin_ns = now_ns();
  std::array<IoCompletion, kBlocks> done;
  uploaded_ = 0;
  for (int64_t started = 0; uploaded_ < blocks;) {
    for (; started < blocks && !free_blocks_.empty(); ++started) {
      const uint64_t block = free_blocks_.back();
      free_blocks_.pop_back();
      if (reads == Reads::kLeftOut) {
        start_upload(block);
        continue;
      }
      queue_->submit({.op = IoOp::kRead,
                      .file = file_.file(),
                      .memory = host_.data() + block * kBlockBytes,
                      .bytes = static_cast<uint32_t>(kBlockBytes),
                      .offset = static_cast<uint64_t>(started * kBlockBytes),
                      .tag = block});
    }
    queue_->flush();
    const size_t count = queue_->poll(done, Wait::kUntilOne);
    for (size_t i = 0; i < count; ++i) finish_read(done[i]);
    take_ended();
  }
  return static_cast<double>(file_.bytes()) / static_cast<double>(now_ns() - begin_ns);
}

void NvmePath::finish_read(const IoCompletion& completion) {
  check_whole(completion, kBlockBytes, file_.path());
  start_upload(completion.tag);
}

void NvmePath::start_upload(uint64_t block) {
  {
    std::lock_guard lock(mutex_);
    ++under_way_;
  }
  device_.start({.to = device_.memory() + block * kBlockBytes,
                 .from = host_.data() + block * kBlockBytes,
                 .bytes = kBlockBytes,
                 .tag = block});
}

void NvmePath::take_ended() {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  uploaded_ += static_cast<int64_t>(ended_.size());
  free_blocks_.insert(free_blocks_.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

// The interrupt happens under the lock, so that no pass ends, and its queue with it, before it has.
void NvmePath::copied(uint64_t block, std::exception_ptr error) noexcept {
  std::lock_guard lock(mutex_);
  ended_.push_back(block);
  if (error) error_ = std::move(error);
  queue_->interrupt();
  if (--under_way_ == 0) all_ended_.notify_one();
}

}  // namespace sluice
