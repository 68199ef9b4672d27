// The look of a run's report, light and dark.
#pragma once
#include <string_view>

namespace sluice {

extern const std::string_view kReportStyle;

}  // namespace sluice
