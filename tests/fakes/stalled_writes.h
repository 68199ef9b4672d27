// While one of these lives, write() and pwrite() of the program it is linked into take no byte and report no error, as
// some network and user-space file systems do. Not where a sanitizer has put itself in front of these calls.
#pragma once
#include <string>

namespace sluice {

class StalledWrites {
 public:
  StalledWrites();
  ~StalledWrites();
  StalledWrites(StalledWrites&&) = delete;
  static std::string reason();  // why writes cannot be stalled here; empty: they can
};

}  // namespace sluice
