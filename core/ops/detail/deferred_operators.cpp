#include "fakequant/core/ops/detail/deferred_operators.h"

#include <mutex>
#include <utility>

#include "fakequant/core/context.h"
#include "fakequant/core/detail/device_traits.h"

namespace fq::detail {
namespace {

/// Only CUDA has the kernels. A trace needs the values.
bool may_defer(const Variable& x) {
  return x.defined() && recorder() == nullptr && device_traits(x.device()).launches;
}

/// Returns the sums of x if one number per channel makes them floats. Null for any other value.
const Accumulator* channel_sums(const Variable& x) {
  const Accumulator* sums = x.defined() ? x.accumulator() : nullptr;
  if (sums == nullptr || sums->relu) return nullptr;
  const bool channels =
      std::holds_alternative<ProductSums>(sums->value) || std::holds_alternative<NormalizedSums>(sums->value);
  return channels ? sums : nullptr;
}

void quantize_floats(const Tensor& values, QuantizedTensor& out, const std::string& nan_text) {
  const QuantizeCall call{values, out, nan_text};
  run(values.device(), &Kernels::quantize, std::span(&call, 1));
}

/// Sums plus floats. The total is kept: it is the residual that later operators and the backward pass read.
class SumAndFloats final : public Deferred {
 public:
  SumAndFloats(Accumulator sums, const Tensor& x)
      : Deferred(x.shape(), x.layout(), x.device()), sums_(std::move(sums)), x_(x) {}

  Tensor floats() override {
    return total([](const Accumulator& sums, const Tensor& x, Tensor& out) {
      run(out.device(), &Kernels::add_sums, sums, x, out);
    });
  }
  void codes(QuantizedTensor& out, const std::string& nan_text) override {
    quantize_floats(floats(), out, nan_text);
  }
  /// Returns the total. If it is not known yet, add(sums, x, total) computes it.
  template <class Add>
  Tensor total(const Add& add) {
    const std::scoped_lock lock(mutex_);
    if (!sums_) return total_;
    const Tensor& x = x_.get();
    Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device(), x.layout());
    add(*sums_, x, out);
    total_ = std::move(out);
    sums_.reset();
    x_ = {};
    return total_;
  }

 private:
  std::mutex mutex_;
  std::optional<Accumulator> sums_;  ///< until the total is known
  Saved x_;
  Tensor total_;
};

/// A function of sums. `input`, unless null, receives the values of the sums for the backward pass, in the
/// number format of that pass.
class ActivatedSums final : public Deferred {
 public:
  ActivatedSums(Accumulator sums, Activation f, std::shared_ptr<Tensor> input)
      : Deferred(sums.shape(), sums.layout(), sums.device()),
        sums_(std::move(sums)),
        f_(f),
        input_type_(backward_type() == BackwardType::bf16 ? DType::bf16 : DType::f32),
        input_(std::move(input)) {}

  Tensor floats() override {
    Tensor y = Tensor::empty(shape(), DType::f32, device(), layout());
    compute(&y, nullptr, {});
    return y;
  }
  void codes(QuantizedTensor& out, const std::string& nan_text) override { compute(nullptr, &out, nan_text); }

 private:
  void compute(Tensor* y, QuantizedTensor* codes, const std::string& nan_text) {
    const std::scoped_lock lock(mutex_);
    const bool first = input_ && !input_->defined();
    if (first) *input_ = Tensor::empty(shape(), input_type_, device(), layout());
    run(device(), &Kernels::activate_sums, sums_, f_, first ? input_.get() : nullptr, y, codes, nan_text);
  }

  std::mutex mutex_;  // guards the input
  Accumulator sums_;
  Activation f_;
  DType input_type_;
  std::shared_ptr<Tensor> input_;
};

/// Returns the deferred sum that is the value of x; null for other values.
std::shared_ptr<SumAndFloats> deferred_sum(const Variable& x) {
  const Accumulator* sums = x.accumulator();
  if (sums == nullptr || !sums->is_deferred()) return nullptr;
  return std::dynamic_pointer_cast<SumAndFloats>(std::get<DeferredFloats>(sums->value).result);
}

/// Normalized rows. Their kernel also adds a residual that is not known yet.
class NormalizedRows final : public Deferred {
 public:
  NormalizedRows(const Variable& x, RowNorm norm, std::shared_ptr<RowNumbers> numbers)
      : Deferred(x.shape(), Layout::row_major, x.device()),
        sum_(deferred_sum(x)),
        norm_(std::move(norm)),
        numbers_(std::move(numbers)) {
    if (!sum_) numbers_->x.emplace(x);
  }

  Tensor floats() override {
    Tensor y = Tensor::empty(shape(), DType::f32, device());
    compute(&y, nullptr, {});
    return y;
  }
  void codes(QuantizedTensor& out, const std::string& nan_text) override {
    // A byte of the mask must not have bits of two rows.
    if (norm_.length % 8 == 0) return compute(nullptr, &out, nan_text);
    quantize_floats(floats(), out, nan_text);
  }

 private:
  void compute(Tensor* y, QuantizedTensor* codes, const std::string& nan_text) {
    const std::scoped_lock lock(mutex_);
    RowNumbers& own = *numbers_;
    if (!own.inverse.defined()) {
      const Shape rows{norm_.length == 0 ? 0 : numel(shape()) / norm_.length};
      own.inverse = Tensor::empty(rows, DType::f32, device());
      if (!norm_.rms) own.mean = empty_like(own.inverse);
    }
    bool computed = false;
    const auto launch = [&](const Accumulator* sums, const Tensor& x, Tensor* total) {
      const RowNormCall call{x,       norm_.length, norm_.gamma.get(), norm_.beta.get(), norm_.eps, norm_.rms,
                             sums,    total,        &own.mean,         &own.inverse,     y,         codes,
                             nan_text};
      run(device(), &Kernels::normalize_rows, call);
      computed = true;
    };
    if (sum_)
      own.x.emplace(Variable(sum_->total(
          [&](const Accumulator& sums, const Tensor& x, Tensor& total) { launch(&sums, x, &total); })));
    sum_.reset();
    if (!computed) launch(nullptr, own.x->get(), nullptr);
  }

  std::mutex mutex_;
  std::shared_ptr<SumAndFloats> sum_;  ///< until the rows are known
  RowNorm norm_;
  std::shared_ptr<RowNumbers> numbers_;
};

Accumulator deferred(std::shared_ptr<Deferred> result) { return {DeferredFloats{std::move(result)}}; }

}  // namespace

std::optional<Variable> deferred_add(std::string_view op, const Variable& a, const Variable& b) {
  if (!may_defer(a) || !b.defined()) return {};
  const bool first = channel_sums(a) != nullptr;
  const Accumulator* sums = channel_sums(first ? a : b);
  const Variable& other = first ? b : a;
  if (sums == nullptr || other.shape() != sums->shape() || other.device() != sums->device()) return {};
  // A deferred sum stays the input, so that its gradients meet in one node of the tape.
  const bool direct = other.accumulator() != nullptr && other.accumulator()->is_deferred();
  const Variable floats = direct ? other : other.as_float();
  const Tensor x = floats.tensor();
  if (x.dtype() != DType::f32 || x.layout() != sums->layout()) return {};
  const auto backward = [da = a.requires_grad(), db = b.requires_grad()](const Tensor& dy) {
    return std::vector<Tensor>{da ? dy : Tensor(), db ? dy : Tensor()};
  };
  return record(op, deferred(std::make_shared<SumAndFloats>(*sums, x)),
                {first ? a : floats, first ? floats : b}, backward);
}

std::optional<Variable> deferred_activation(std::string_view op, const Variable& x, const Activation& f) {
  const Accumulator* sums = channel_sums(x);
  const bool known = std::visit([]<class F>(const F&) { return follows_products<F>; }, f.f);
  if (sums == nullptr || !known || !may_defer(x)) return {};
  const auto input = needs_grad({x}) ? std::make_shared<Tensor>() : nullptr;
  const auto y = std::make_shared<ActivatedSums>(*sums, f, input);
  // The function does not keep y, which holds the sums.
  const auto backward = [f, input, unread = std::weak_ptr<Deferred>(y)](BackwardCall& call) {
    if (const auto own = unread.lock(); own && !input->defined()) (void)own->floats();
    call.dy.add_slope(std::make_shared<Activation>(f), *input);
    return pass_gradient(call);
  };
  return record(op, deferred(y), {x}, backward);
}

bool defers_norm(const Variable& x) {
  if (!may_defer(x)) return false;
  const auto* floats = std::get_if<Tensor>(&x.value());
  if (floats != nullptr) return floats->dtype() == DType::f32 && floats->layout() == Layout::row_major;
  return deferred_sum(x) != nullptr && x.layout() == Layout::row_major;
}

Accumulator deferred_norm(const Variable& x, const RowNorm& norm,
                          const std::shared_ptr<RowNumbers>& numbers) {
  const auto rows = std::make_shared<NormalizedRows>(x, norm, numbers);
  numbers->rows = rows;
  return deferred(rows);
}

void compute_unread(const RowNumbers& numbers) {
  if (const auto rows = numbers.rows.lock(); rows && !numbers.inverse.defined()) (void)rows->floats();
}

}  // namespace fq::detail
