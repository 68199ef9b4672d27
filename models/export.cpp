// Hugging Face folders, out.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "core/sync_folder.h"
#include "models/hugging_face.h"
#include "models/safetensors.h"

namespace sluice {
namespace {

// A file that appears under its name whole or not at all.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), temporary_(fmt::format("{}.tmp-{}", path, getpid())) {
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("open", -1, -1, errno);
  }
  ~NewFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("write", offset_, static_cast<int64_t>(bytes.size()), written < 0 ? errno : 0);
      offset_ += written;
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }

  void finish() {
    if (fsync(descriptor_) != 0) fail("fsync", -1, -1, errno);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename", -1, -1, errno);
    close(std::exchange(descriptor_, -1));
  }

 private:
  [[noreturn]] void fail(const char* action, int64_t offset, int64_t bytes, int error_number) const {
    throw IoError({.action = action,
                   .path = temporary_,
                   .offset = offset,
                   .bytes = bytes,
                   .error_number = error_number,
                   .reason = error_number == 0 ? "the file system took no byte of it and gave no error" : "",
                   .advice = "export to a folder on a drive with room"});
  }

  std::string path_, temporary_;
  int descriptor_ = -1;
  int64_t offset_ = 0;
};

// Fills `into` with a whole parameter, of elements of `element` bytes, from its parts.
void put_together(const WholeParameter& whole, int64_t element, const ParameterReader& read,
                  std::vector<std::byte>& scratch, std::span<std::byte> into) {
  for (const auto& [parameter, name, tile] : whole.parts) {
    if (tile == nullptr) {
      read(parameter, into);
      continue;
    }
    const auto run_bytes = static_cast<size_t>(tile->run * element);
    scratch.resize(run_bytes * static_cast<size_t>(tile->runs));
    read(parameter, scratch);
    for (int64_t run = 0; run < tile->runs; ++run) {
      std::memcpy(into.data() + (tile->first + run * tile->stride) * element,
                  scratch.data() + static_cast<size_t>(run) * run_bytes, run_bytes);
    }
  }
}

// Into a folder that is there.
void write_export(const ExportOptions& options, const Gpt2& model, const ParameterReader& read) {
  std::vector<SafetensorsEntry> entries;
  const std::vector<WholeParameter> parameters = whole_parameters(model.spec(), model.tiles());
  for (const WholeParameter& parameter : parameters) {
    const auto& [name, shape] = parameter.spec;
    entries.push_back({.name = name, .dtype_name = {}, .dtype = options.dtype, .shape = shape});
  }
  NewFile weights(options.folder + "/model.safetensors");
  weights.write(safetensors_header(entries));
  std::vector<std::byte> values, scratch;
  for (const WholeParameter& parameter : parameters) {
    values.resize(static_cast<size_t>(parameter.spec.elements() * bytes_of(options.dtype)));
    put_together(parameter, bytes_of(options.dtype), read, scratch, values);
    weights.write(values);
  }
  NewFile text(options.folder + "/config.json");
  text.write(config_json_text(model.config(), options.dtype));
  weights.finish();
  text.finish();
  sync_folder(options.folder);
}

}  // namespace

void export_hugging_face(const ExportOptions& options, const Gpt2& model, const ParameterReader& read) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(options.folder, error);
  if (error) {
    throw IoError(
        {.action = "mkdir", .path = options.folder, .error_number = error.value(), .advice = "name another folder"});
  }
  try {
    write_export(options, model, read);
  } catch (...) {
    if (made) std::filesystem::remove(options.folder, error);  // where nothing is in it
    throw;
  }
}

}  // namespace sluice
