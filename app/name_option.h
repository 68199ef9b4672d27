// Options that take the name of a file or folder.
#pragma once
#include <string>

namespace sluice {

// For CLI::Option::check: an empty name, as of a variable that is not set, would be taken for an option not given.
std::string check_name(const std::string& text);

}  // namespace sluice
