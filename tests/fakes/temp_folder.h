// A folder for a test's files, made under the system's folder for temporary files and removed with all that is in it.
#pragma once
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace sluice {

class TempFolder {
 public:
  explicit TempFolder(const std::filesystem::path& under = std::filesystem::temp_directory_path()) {
    std::string name = (under / "sluice-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(TempFolder&&) = delete;
  const std::filesystem::path& path() const { return path_; }
  // A file of the folder, or of folders in it that are made; returns its path.
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace sluice
