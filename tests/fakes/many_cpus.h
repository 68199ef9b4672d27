// While one of these lives, the system knows as many CPUs as two cpu_set_t hold, to sched_getaffinity() of the program
// it is linked into: a smaller set is refused. Not where a sanitizer has put itself in front of that call.
#pragma once
#include <string>

namespace sluice {

class ManyCpus {
 public:
  ManyCpus();
  ~ManyCpus();
  ManyCpus(ManyCpus&&) = delete;
  static std::string reason();  // why there cannot be so many here; empty: there can
};

}  // namespace sluice
