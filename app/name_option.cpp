#include "app/name_option.h"

namespace sluice {

std::string check_name(const std::string& text) { return text.empty() ? "a name is needed" : ""; }

}  // namespace sluice
