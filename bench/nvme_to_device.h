// A drive's bytes on their way to the device: read into registered host memory and uploaded from there, block by block.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "offload/device.h"
#include "swap/bare_io.h"

namespace sluice {

// Takes the device's sink. Whatever fails throws IoError or DeviceError. All figures are GB/s.
class NvmePath final : private CopySink {
 public:
  struct Options {
    std::filesystem::path folder;
    const StoreWords& words;
    Device& device;
    std::span<std::byte> host;  // registered; half of it is as much as the file has
  };
  explicit NvmePath(const Options& options);
  ~NvmePath() override;  // waits for the uploads under way

  double run();
  double read_alone();
  double upload_alone();

 private:
  enum class Reads : uint8_t { kDone, kLeftOut };
  double pass(Reads reads);
  void start_upload(uint64_t block);
  void finish_read(const IoCompletion& completion);
  void take_ended();
  void copied(uint64_t block, std::exception_ptr error) noexcept override;

  Device& device_;
  std::span<std::byte> host_;
  ScratchFile file_;
  std::unique_ptr<IoQueue> queue_;
  std::vector<uint64_t> free_blocks_;  // of host memory
  int64_t uploaded_ = 0;               // blocks
  std::mutex mutex_;                   // guards what follows
  std::condition_variable all_ended_;
  int under_way_ = 0;  // uploads
  std::vector<uint64_t> ended_;
  std::exception_ptr error_;
};

}  // namespace sluice
