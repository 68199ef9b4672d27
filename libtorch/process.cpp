#include "libtorch/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <mutex>

#include "core/errors.h"
#include "core/topology.h"

namespace sluice {
namespace {

struct Decided {
  std::mutex mutex;
  int compute_threads = 0;  // 0: nothing decided yet
};
Decided& decided() {
  static Decided kDecided;
  return kDecided;
}

void apply(int threads) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::set_num_threads(threads);
  try {
    at::set_num_interop_threads(threads);
  } catch (const std::exception&) {
    // Its pool runs already: somebody else's settings stand. Ours fills initial values there, whatever its size.
  }
}

// A question of LibTorch's own registry: it has no C++ header.
bool supports(const char* question) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(question, "").typed<bool()>().call();
}

}  // namespace

ProcessSettings set_process(const ProcessSettings& settings) {
  int threads = settings.compute_threads;
  if (threads < 0) {
    throw ConfigError("sluice.compute_threads is " + std::to_string(threads) + ": 1 or more, or 0 for one a core");
  }
  if (threads == 0) threads = usable_cores(*make_topology());
  Decided& before = decided();
  const std::lock_guard lock(before.mutex);
  if (before.compute_threads != 0 && before.compute_threads != threads) {
    throw ConfigError("sluice.compute_threads is " + std::to_string(threads) +
                      ", but this process already computes with " + std::to_string(before.compute_threads) +
                      ": LibTorch has one setting a process; give the same value, or use another process");
  }
  if (before.compute_threads == 0) apply(threads);
  before.compute_threads = threads;
  return {.compute_threads = threads};
}

int compute_threads() { return at::get_num_threads(); }

bool has_product_kernel(DType type) {
  static const bool kBf16 = supports("mkldnn::_is_mkldnn_bf16_supported");
  static const bool kFp16 = supports("mkldnn::_is_mkldnn_fp16_supported");
  return type == DType::kFp32 || (type == DType::kBf16 && kBf16) || (type == DType::kFp16 && kFp16);
}

std::string libtorch_version() { return TORCH_VERSION; }

std::string describe_libtorch() {
  return "LibTorch " + libtorch_version() + ", " + at::get_cpu_capability() + ", " +
         std::to_string(at::get_num_threads()) + " compute threads";
}

}  // namespace sluice
