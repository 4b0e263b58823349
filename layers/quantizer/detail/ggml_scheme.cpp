#include "fakequant/layers/quantizer/detail/ggml_scheme.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/ops/detail/engine_rows.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/lattice.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"

namespace fq::detail {
namespace {

constexpr auto kBlockSize = static_cast<std::size_t>(ggml_block);
using BlockValues = std::span<const float, kBlockSize>;

/// Shares of llama.cpp's code that `mse` tries. Shares above 1 are allowed because -8.4 still rounds to code
/// -8.
constexpr float kFirstShare = 0.625f, kShareStep = 0.025f;
constexpr int kShares = 18;

// Chooses the step of a block of 32 by the code of its largest number (ENGINES §2: any f16 step is valid in a
// file).
class BlockFit {
 public:
  BlockFit(GgmlRounding rounding, bool least_error)
      : rounding_(rounding),
        least_error_(least_error),
        usual_(ggml_extreme_code(rounding)),
        lower_(rounding == GgmlRounding::q4_0 ? -8.0f : -127.0f),
        upper_(rounding == GgmlRounding::q4_0 ? 7.0f : 127.0f) {}

  /// Returns the code of the number of the largest magnitude.
  [[nodiscard]] float operator()(BlockValues x) const {
    const float extreme = block_extreme(x);
    if (extreme == 0 || !std::isfinite(extreme)) return usual_;
    // Both signs of Q4_0's steps reach -7 .. 7; -8 is llama.cpp's code.
    const float step = lattice_step(x, -upper_, upper_), code = step > 0 ? step_code(extreme, step) : 0;
    // A block on a lattice of another quantizer keeps its codes if that reduces the error enough.
    if (code != 0 && lattice_gain * squared_error(x, extreme, code) < squared_error(x, extreme, usual_))
      return code;
    return least_error_ ? best(x, extreme) : usual_;
  }

 private:
  /// Returns the number of the largest magnitude; in Q8_0 its magnitude.
  [[nodiscard]] float block_extreme(BlockValues x) const {
    const float extreme = ggml_extreme(x.data());
    return rounding_ == GgmlRounding::q4_0 ? extreme : std::abs(extreme);
  }
  /// Returns the code that gives the block this step, rounded to float16. Returns 0 if no code does.
  [[nodiscard]] float step_code(float extreme, float step) const {
    // Files store steps as f16, so errors and codes use the rounded step.
    const auto half = static_cast<float>(float16(step));
    const float code = half == 0 ? 0 : extreme / half;
    const bool same =
        code != 0 && static_cast<float>(float16(ggml_step(extreme, code, rounding_).step)) == half;
    return same && std::isfinite(code) && std::abs(code) < -lower_ + 0.5f ? code : 0;
  }
  [[nodiscard]] double squared_error(BlockValues x, float extreme, float code) const {
    const GgmlStep s = ggml_step(extreme, code, rounding_);
    const auto step = static_cast<double>(static_cast<float>(float16(s.step)));
    double sum = 0;
    for (const float v : x) {
      const double error = double(v) - step * double(ggml_code(v, s.factor, rounding_));
      sum += error * error;
    }
    return sum;
  }
  /// Returns the code of the step with the least squared error, for the codes that `code` gives.
  [[nodiscard]] float refined(BlockValues x, float extreme, float code) const {
    const float factor = ggml_step(extreme, code, rounding_).factor;
    double products = 0, squares = 0;
    for (const float v : x) {
      const double k = ggml_code(v, factor, rounding_);
      products += double(v) * k;
      squares += k * k;
    }
    return squares > 0 ? step_code(extreme, static_cast<float>(products / squares)) : 0;
  }
  [[nodiscard]] float best(BlockValues x, float extreme) const {
    float out = usual_;
    double least = squared_error(x, extreme, usual_);
    const int signs = rounding_ == GgmlRounding::q4_0 ? 2 : 1;
    // Q4_0 has one more negative code, so both signs of the step are tried.
    for (int i = 0; i < kShares * signs; ++i) {
      const float share = kFirstShare + kShareStep * static_cast<float>(i / signs);
      const float code = refined(x, extreme, (i % signs == 0 ? usual_ : -usual_) * share);
      if (code == 0) continue;
      if (const double error = squared_error(x, extreme, code); error < least) {
        least = error;
        out = code;
      }
    }
    return out;
  }

  GgmlRounding rounding_;
  bool least_error_;
  float usual_, lower_, upper_;
};

// Returns the number of blocks whose step is 0 in float16 (up to 2^-25 before rounding) although some weights
// are not 0.
std::int64_t underflows(const Tensor& w, const Tensor& codes, GgmlRounding rounding) {
  std::int64_t out = 0;
  for (std::int64_t b = 0; b < w.numel() / ggml_block; ++b) {
    const float extreme = ggml_extreme(w.data<float>() + b * ggml_block);
    const float code = codes.defined() ? codes.data<float>()[b] : ggml_extreme_code(rounding);
    if (extreme != 0 && static_cast<float>(float16(ggml_step(extreme, code, rounding).step)) == 0) ++out;
  }
  return out;
}

}  // namespace

GgmlScheme::GgmlScheme(GgmlRounding rounding) noexcept
    : WeightScheme(rounding == GgmlRounding::q4_0 ? "q4_0" : "q8_0"), rounding_(rounding) {}

QuantizedTensor GgmlScheme::quantize(const Variable& w, const WeightState& state, bool /*with_mask*/) const {
  const Tensor x = w.tensor();
  const std::string& name = state.params.name;
  FQ_CHECK(x.rank() == 2 && x.dim(1) % ggml_block == 0, "quantizer",
           "{} has blocks of {} along rows, its input is {}: use [N, K], K a multiple of {}",
           quantizer_label(name), ggml_block, to_string(x.shape()), ggml_block);
  const Tensor values = x.to(DType::f32).to(Layout::row_major);
  // Throws for NaN and infinity.
  if (!x.device().is_meta()) (void)compute_ranges(values, BlockView(values.shape(), Axes{}), name);
  FQ_CHECK(!state.extreme_codes.defined() || state.extreme_codes.numel() * ggml_block == x.numel(),
           "quantizer", "{} was calibrated for {} blocks, its input {} has {}: calibrate again",
           quantizer_label(name), state.extreme_codes.numel(), to_string(x.shape()), x.numel() / ggml_block);
  const GgmlBlocks blocks = ggml_weight_blocks(values, state.extreme_codes, rounding_);
  Grid grid;
  grid.format = state.params.descriptor.format();
  grid.granularity = Granularity::blocks({{-1, ggml_block}});
  // There is no amax: the steps follow from the values, and their signs may be negative.
  grid.scale = grid.amax = blocks.steps.to(DType::f32);
  grid.name = name;
  grid.pass_through_bwd = true;
  return {blocks.codes, std::move(grid), {}};
}

void GgmlScheme::check_packing(const std::string& quantizer) const {
  throw ArgumentError(
      fmt::format("[compress] {} has ggml's blocks, whose steps have a sign: fakequant export --format gguf "
                  "writes them packed",
                  quantizer_label(quantizer)));
}

const GgmlScheme& ggml_weights(GgmlRounding rounding) noexcept {
  static const GgmlScheme q4_0(GgmlRounding::q4_0), q8_0(GgmlRounding::q8_0);
  return rounding == GgmlRounding::q4_0 ? q4_0 : q8_0;
}

const GgmlScheme* ggml_scheme(const QuantParams& params) noexcept {
  return dynamic_cast<const GgmlScheme*>(params.weight_scheme);
}

Tensor fitted_extreme_codes(const Tensor& w, GgmlRounding rounding, const std::string& method) {
  FQ_CHECK(method == "max" || method == "mse" || method == "mse_search", "calibrate",
           "calib_method {} for weights in blocks of ggml: use max, mse or mse_search", method);
  const BlockFit fit(rounding, method != "max");
  Tensor out = Tensor::empty({w.dim(0), w.dim(1) / ggml_block});
  const auto* x = w.data<float>();
  auto* codes = out.mutable_data<float>();
  const std::int64_t blocks = out.numel();
#pragma omp parallel for schedule(static)
  for (std::int64_t b = 0; b < blocks; ++b) codes[b] = fit(BlockValues(x + b * ggml_block, kBlockSize));
  const float usual = ggml_extreme_code(rounding);
  // llama.cpp's choice everywhere is the default and takes no memory.
  const bool any = std::any_of(codes, codes + blocks, [&](float code) { return code != usual; });
  return any ? out : Tensor();
}

Tensor file_extreme_codes(const Tensor& w, const Tensor& codes, GgmlRounding rounding) {
  Tensor out = Tensor::empty({w.dim(0), w.dim(1) / ggml_block});
  const auto *x = w.data<float>(), *k = codes.data<float>();
  for (std::int64_t b = 0; b < out.numel(); ++b, x += ggml_block, k += ggml_block) {
    // max_element returns the first of equal ones, as ggml_extreme does.
    const auto* largest = std::max_element(
        x, x + ggml_block, [](float a, float other) { return std::abs(a) < std::abs(other); });
    const float code = rounding == GgmlRounding::q4_0 ? k[largest - x] : std::abs(k[largest - x]);
    out.mutable_data<float>()[b] = code != 0 ? code : ggml_extreme_code(rounding);
  }
  return out;
}

std::vector<std::string> fit_ggml_weights(Module& model, bool keep_known) {
  std::vector<std::string> warnings;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* layer = dynamic_cast<const QuantModule*>(module);
    TensorQuantizer* quantizer = layer != nullptr ? layer->weight_quantizer() : nullptr;
    const GgmlScheme* scheme = quantizer != nullptr ? ggml_scheme(quantizer->params()) : nullptr;
    if (scheme == nullptr) continue;
    const Variable weight = layer->quantized_weight();
    const bool known = quantizer->weight_codes().extreme_codes().defined();
    // Packed weights have fixed steps, and `meta` has no values.
    if (holds_codes(weight) || weight.device().is_meta() || (keep_known && known)) continue;
    const Tensor w = weight.tensor().to(Device::cpu()).to(DType::f32).to(Layout::row_major);
    const Tensor codes = fitted_extreme_codes(w, scheme->rounding(), quantizer->descriptor().calib_method());
    quantizer->weight_codes().set_extreme_codes(codes.to(weight.device()));
    if (const std::int64_t lost = underflows(w, codes, scheme->rounding()); lost > 0)
      warnings.push_back(fmt::format(
          "[quantize] {}: {} of {} blocks have steps below 6e-8, the smallest float16, and their weights "
          "become 0. Scale the weights of this layer up, or leave it in floats by a rule",
          quantizer_label(quantizer->name()), lost, w.numel() / ggml_block));
  }
  return warnings;
}

}  // namespace fq::detail
