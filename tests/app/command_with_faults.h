// The sluice command with a store queue that ends the process, signals it, or harms the drive, in the middle of its
// traffic.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

constexpr int kFaultNotPossible = 77;  // exit code of a fault that cannot be played here

struct CommandFault {
  std::string name = "count";  // nothing happens
  int64_t value = 0;           // bytes, or the number of a request
};

// Runs in this process. Returns the exit code; the traffic is the last line of what it prints.
int run_command_with(const CommandFault& fault, const std::vector<std::string>& arguments);
// The same with the queue that the program takes.
int run_command(const std::vector<std::string>& arguments);

}  // namespace sluice
