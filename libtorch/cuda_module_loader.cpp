#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/errors.h"
#include "libtorch/cuda_module.h"
#include "libtorch/workspace.h"

namespace sluice {
namespace {

constexpr const char* kFile = "libsluice_torch_cuda.so";

[[noreturn]] void refuse(const std::string& what) {
  throw DeviceError("device cuda: LibTorch cannot compute on the GPU: " + what +
                    "; build where nvcc and a LibTorch with CUDA are, and keep the file beside the program, or use the "
                    "CPU (--device cpu)");
}

CudaModule* load() {
  set_blas_configuration();
  std::error_code error;
  const auto file = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / kFile;
  if (!std::filesystem::exists(file, error)) refuse(file.string() + " is not there");
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse(dlerror());
  const auto make = reinterpret_cast<MakeCudaModule>(dlsym(library, kMakeCudaModule));
  if (make == nullptr) refuse(dlerror());
  return make({.take = &take_for_visit, .give_back = &give_back_of_visit});
}

}  // namespace

void set_blas_configuration() {
  constexpr const char* kName = "CUBLAS_WORKSPACE_CONFIG";
  setenv(kName, ":4096:8", /*overwrite=*/0);
  const std::string value = std::getenv(kName);
  if (value == ":4096:8" || value == ":16:8") return;
  throw DeviceError("device cuda: the environment's " + std::string(kName) + " is \"" + value +
                    "\", with which cuBLAS does not give the same bits twice: unset it, or set :4096:8 or :16:8");
}

CudaModule& cuda_module() {
  static CudaModule* const kModule = load();
  return *kModule;
}

}  // namespace sluice
