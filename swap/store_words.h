// What the store's messages call things and tell people to do: each program names its own options there.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace sluice {

// A constant of the program, which outlives every store. What begins with a space follows what it explains.
struct StoreWords {
  std::string_view folders = "";       // " (--folder)": behind "give another folder"
  std::string_view io_backend = "";    // " (--backend)": behind "take the I/O backend threads"
  std::string_view less_room = "";     // "; a smaller --size takes less": behind what a scratch file would need
  std::string_view earlier_step = "";  // " (--from-step goes on from it)": behind the newest step that can be read
  std::string_view step_before = "";   // " (verify)": behind "see whether the step before is whole"
  std::string_view go_on = "open the store again, which is at the last committed step";
  std::string_view start_over = "start over with a new store";
  // Of a folder that the program has made for the store: the one that its user has given, which this lies in. Null: the
  // store's folder is the user's.
  std::filesystem::path (*users_folder)(const std::filesystem::path& folder) = nullptr;

  std::filesystem::path name_of_folder(const std::filesystem::path& folder) const {
    return users_folder == nullptr ? folder : users_folder(folder);
  }
  std::string name_of(const std::filesystem::path& file) const {
    return users_folder == nullptr ? file.string()
                                   : "a file of its own in " + users_folder(file.parent_path()).string();
  }
};
inline constexpr StoreWords kPlainWords{};

}  // namespace sluice
