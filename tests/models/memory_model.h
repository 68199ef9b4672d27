// A GPT-2 with everything in ordinary memory: runs visits without the engine, and keeps every gradient whole.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libtorch/workspace.h"
#include "models/gpt2.h"
#include "models/gpt2_visits.h"

namespace sluice::testing {

struct Bytes {  // 256-byte aligned
  explicit Bytes(int64_t bytes);
  std::byte* data() const { return memory.get(); }
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory;
};

class MemoryModel {
 public:
  MemoryModel(const Gpt2Config& config, const Gpt2Options& options, const ParameterSource& source);

  // Forward and backward of one micro-batch; gradients are those of this call alone. Temporaries come from `workspace`
  // where one is given. The input gradient shares its input's memory, as it may in the engine.
  double train(const Gpt2Tokens& tokens, Workspace* workspace = nullptr);
  double evaluate(const Gpt2Tokens& tokens);
  void set_loss_scale(double scale) { loss_scale_ = scale; }        // of the backwards that follow
  std::vector<float> gradient(const std::string& parameter) const;  // of a whole one: its tiles put together
  const ModelSpec& spec() const { return model_.spec(); }

 private:
  class Turn;
  double run(Pass pass, const Gpt2Tokens& tokens);
  void run_visit(int visit, Pass pass, const Gpt2Tokens& tokens, double& loss);

  Gpt2 model_;
  double loss_scale_ = 1;
  DType dtype_;
  Geometry geometry_;
  Gpt2Visits visits_;
  std::map<std::string, Bytes> weights_;
  std::map<std::string, std::vector<float>> open_;
  ModelUses uses_;
  std::vector<Bytes> boundary_, boundary_gradient_;
  std::vector<std::vector<float>> sums_;  // of the gradients of tensors that several visits take
};

}  // namespace sluice::testing
