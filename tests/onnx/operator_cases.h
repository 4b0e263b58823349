#pragma once

/// Graphs of single operators, with the outputs of this library.

#include <functional>
#include <set>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"
#include "layers/networks.h"

namespace fq::test {

using Weights = std::vector<Variable>;
using Function = std::function<Variable(const Variable&, const Weights&)>;

/// Runs a function as a model with these parameters.
class Case : public Module {
 public:
  Case(Function f, const std::vector<Tensor>& weights) : f_(std::move(f)) {
    for (const auto& w : weights) weights_.push_back(add_parameter("w" + std::to_string(weights_.size()), w));
  }
  [[nodiscard]] std::string type() const override { return "case"; }

 protected:
  Variable forward(const Variable& x) override { return f_(x, weights_); }
  using Module::forward;

 private:
  Function f_;
  Weights weights_;
};

class Cases {
 public:
  explicit Cases(std::string folder, std::int64_t batch = 5) : folder_(std::move(folder)), batch_(batch) {}

  void add(const std::string& name, const Shape& sample, Function f,
           const std::vector<Tensor>& weights = {}) {
    Shape shape{batch_};
    shape.insert(shape.end(), sample.begin(), sample.end());
    const Tensor x = random_tensor(shape, -3, 3, static_cast<unsigned>(state_.size()));
    write(name, sample, x, std::move(f), weights);
  }
  void write(const std::string& name, const Shape& sample, const Tensor& x, Function f,
             const std::vector<Tensor>& weights) {
    const NoGrad no_grad;
    Case model(std::move(f), weights);
    Shape shape{1};
    shape.insert(shape.end(), sample.begin(), sample.end());
    for (const auto& node : trace(model, shape).nodes) operators_.insert(node.op);
    save_onnx(folder_ + "/" + name + ".onnx", export_onnx(model, sample));
    state_.set(name + "/x", x);
    state_.set(name + "/y", model(Variable(x)).tensor().to(Layout::row_major).to(DType::f32));
  }
  void finish(const std::string& file) const { save_state(folder_ + "/" + file, state_, "cases"); }

  [[nodiscard]] bool has(const std::string& name) const { return state_.contains(name + "/x"); }
  /// All that were written so far.
  [[nodiscard]] const std::set<std::string>& operators() const noexcept { return operators_; }

 private:
  std::string folder_;
  std::int64_t batch_;
  StateDict state_;
  std::set<std::string> operators_;
};

/// Numbers from low to high, the same each time.
inline Tensor row(std::int64_t n, float low = -1, float high = 1) { return random_tensor({n}, low, high, 7); }

void add_arithmetic(Cases& cases);
void add_functions(Cases& cases);
void add_norms(Cases& cases);
void add_resizes(Cases& cases);
void add_recurrent(Cases& cases);

}  // namespace fq::test
