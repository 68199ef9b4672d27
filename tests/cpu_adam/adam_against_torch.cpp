// Reads a state and the gradients of some steps, runs the update on them, and writes the state it ends in: driven by
// adam_against_torch.py. All numbers in the files are fp32.
// usage: adam_against_torch adamw|adam|adagrad|lion|sgd bf16|fp16|fp32 gradient-dtype
//                           LR BETA1 BETA2 EPSILON DECAY MOMENTUM FIRST_STEP STEPS IN OUT
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "core/errors.h"
#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

template <class Type>
Type named(std::string_view name, std::initializer_list<Type> types) {
  for (const Type type : types) {
    if (name_of(type) == name) return type;
  }
  throw ConfigError("unknown name: " + std::string(name));
}

AdamKind kind_named(std::string_view name) {
  constexpr std::pair<std::string_view, AdamKind> kNames[] = {{"adamw", AdamKind::kAdamW},
                                                              {"adam", AdamKind::kAdam},
                                                              {"adagrad", AdamKind::kAdagrad},
                                                              {"lion", AdamKind::kLion},
                                                              {"sgd", AdamKind::kSgd}};
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  throw ConfigError("unknown optimizer: " + std::string(name));
}

std::vector<float> read_floats(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

int run(char** argument) {
  const AdamFormat format{named<Precision>(argument[2], {Precision::kBf16, Precision::kFp16, Precision::kFp32}),
                          named<DType>(argument[3], {DType::kBf16, DType::kFp16, DType::kFp32})};
  const AdamOptions options{.kind = kind_named(argument[1]),
                            .learning_rate = std::atof(argument[4]),
                            .beta1 = std::atof(argument[5]),
                            .beta2 = std::atof(argument[6]),
                            .epsilon = std::atof(argument[7]),
                            .weight_decay = std::atof(argument[8]),
                            .momentum = std::atof(argument[9])};
  const int64_t first = std::atoll(argument[10]), steps = std::atoll(argument[11]);
  const std::vector<float> in = read_floats(argument[12]);  // p, m, v, then a gradient a step
  const int64_t elements = static_cast<int64_t>(in.size()) / (3 + steps);
  const auto at = [&](int64_t plane, int64_t i) { return in[static_cast<size_t>(plane * elements + i)]; };

  TestState state(format, elements);
  for (int64_t i = 0; i < elements; ++i) state.set(i, {at(0, i), at(1, i), at(2, i), 0.0f});
  for (int64_t k = 0; k < steps; ++k) {
    for (int64_t i = 0; i < elements; ++i) {
      state.set(i, {state.master(i), state.moment1.get(i), state.moment2.get(i), at(3 + k, i)});
    }
    const AdamStep step = adam_step(options, first + k, 1.0);
    if (adam_simd(format)(step, state.planes(), elements) != Finite::kYes) throw NumericsError("a non-finite update");
  }
  std::ofstream out(argument[13], std::ios::binary);
  for (int64_t i = 0; i < elements; ++i) {
    const float p = state.master(i);
    out.write(reinterpret_cast<const char*>(&p), sizeof(p));
  }
  out.close();
  return out ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int count, char** argument) {
  if (count != 14) return 2;
  try {
    return sluice::run(argument);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
