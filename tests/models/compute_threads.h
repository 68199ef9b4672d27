// Of the tests that compute with LibTorch: one setting a process. A sanitizer's runs take two thirds as long with one.
#pragma once

namespace sluice::testing {

constexpr int kComputeThreads = SLUICE_IS_SANITIZED ? 1 : 2;

}  // namespace sluice::testing
