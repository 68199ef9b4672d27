// While one of these lives, pread() of the program it is linked into is what a caller has to reckon with: every other
// call is interrupted (EINTR) and the rest bring no more than seven bytes, or every call fails. Not where a sanitizer
// has put itself in front of that call.
#pragma once
#include <string>

namespace sluice {

class AwkwardReads {
 public:
  enum class Kind { kNone, kInterruptedAndShort, kFailing };  // kFailing: EIO
  explicit AwkwardReads(Kind kind);
  ~AwkwardReads();
  AwkwardReads(AwkwardReads&&) = delete;
  static std::string reason();  // why reads cannot be made so here; empty: they can
};

}  // namespace sluice
