#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/variable.h"
#include "thrown.h"

namespace fq::undefined_test {
namespace {

/// Operators that accept a tensor without values, and operators that reject it.
enum class Does { returns, throws };

template <class T>
struct Access {
  Does does;
  std::function<void(T&)> call;
};
template <class T>
using Accesses = std::map<std::string, Access<T>>;

template <class T>
void check(const Accesses<T>& accesses, const std::function<T()>& make) {
  for (const auto& [name, access] : accesses) {
    T value = make();
    if (access.does == Does::returns)
      EXPECT_NO_THROW(access.call(value)) << name;
    else
      EXPECT_NE(test::error_message([&] { return access.call(value), 0; }), "") << name;
  }
}

Tensor moved_tensor() {
  Tensor from = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor to = std::move(from);
  EXPECT_EQ(to.numel(), 4);
  return Tensor(std::move(from));  // NOLINT(bugprone-use-after-move): that is the question
}

Tensor assigned_tensor() {
  Tensor from = Tensor::zeros({1, 2, 3, 4}, DType::i8, Device::cpu(), Layout::channels_last), to;
  to = std::move(from);
  EXPECT_EQ(to.layout(), Layout::channels_last);
  Tensor copy = from;  // NOLINT(bugprone-use-after-move)
  return copy;
}

const Tensor& ones() {
  static const Tensor x = Tensor::full({2, 2}, 1);
  return x;
}

Grid make_grid() { return Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4), "x"); }

TEST(Undefined, MovedFromTensorsAreUndefined) {
  for (const Tensor& x : {Tensor(), moved_tensor(), assigned_tensor()}) {
    EXPECT_FALSE(x.defined());
    EXPECT_EQ(x.shape(), Shape{});
    EXPECT_EQ(x.numel(), 0);
    EXPECT_EQ(x.nbytes(), 0);
    EXPECT_EQ(x.dtype(), DType::f32);
    EXPECT_EQ(x.layout(), Layout::row_major);
    EXPECT_EQ(x.raw(), nullptr);
    EXPECT_EQ(x.describe(), "undefined tensor");
  }
  Tensor same = Tensor::full({3}, 2);
  Tensor& alias = same;
  same = std::move(alias);
  EXPECT_EQ(same.to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

TEST(Undefined, TensorsReturnOrThrow) {
  const Accesses<Tensor> accesses = {
      {"dim", {Does::throws, [](Tensor& x) { (void)x.dim(0); }}},
      {"rank", {Does::returns, [](Tensor& x) { (void)x.rank(); }}},
      {"device", {Does::returns, [](Tensor& x) { (void)x.device(); }}},
      {"storage", {Does::returns, [](Tensor& x) { (void)x.storage().bytes(); }}},
      {"version", {Does::returns, [](Tensor& x) { (void)x.version(); }}},
      {"data", {Does::throws, [](Tensor& x) { (void)x.data<float>(); }}},
      {"data by layout", {Does::throws, [](Tensor& x) { (void)x.data<float>(Layout::row_major); }}},
      {"mutable_data", {Does::throws, [](Tensor& x) { (void)x.mutable_data<float>(); }}},
      {"mutable_raw", {Does::returns, [](Tensor& x) { (void)x.mutable_raw(); }}},
      {"mark_written", {Does::returns, [](Tensor& x) { x.mark_written(); }}},
      {"clone", {Does::returns, [](Tensor& x) { (void)x.clone(); }}},
      {"to dtype", {Does::returns, [](Tensor& x) { (void)x.to(DType::i8); }}},
      {"to device", {Does::returns, [](Tensor& x) { (void)x.to(Device::meta()); }}},
      {"to layout", {Does::returns, [](Tensor& x) { (void)x.to(Layout::channels_last); }}},
      {"reshape", {Does::throws, [](Tensor& x) { (void)x.reshape({-1}); }}},
      {"slice", {Does::throws, [](Tensor& x) { (void)x.slice(0, 0); }}},
      {"copy_from", {Does::throws, [](Tensor& x) { x.copy_from(Tensor::scalar(1)); }}},
      {"copied from", {Does::throws, [](Tensor& x) { Tensor::scalar(1).copy_from(x); }}},
      {"to_vector", {Does::throws, [](Tensor& x) { (void)x.to_vector<float>(); }}},
      {"to_vector of another", {Does::throws, [](Tensor& x) { (void)x.to_vector<std::int8_t>(); }}},
      {"item", {Does::throws, [](Tensor& x) { (void)x.item(); }}},
      {"print", {Does::returns, [](Tensor& x) { std::ostringstream() << x; }}},
      {"equal", {Does::returns, [](Tensor& x) { EXPECT_FALSE(bitwise_equal(x, Tensor::scalar(0))); }}},
      {"equal there", {Does::returns, [](Tensor& x) { EXPECT_FALSE(bitwise_equal(Tensor::scalar(0), x)); }}},
      {"equal to itself", {Does::returns, [](Tensor& x) { EXPECT_TRUE(bitwise_equal(x, x)); }}},
      {"amax",
       {Does::throws, [](Tensor& x) { (void)Grid::from_amax(IntFormat{}, Granularity::per_tensor(), x); }}},
      {"amax of blocks",
       {Does::throws,
        [](Tensor& x) {
          (void)Grid::block_scaled(IntFormat{}, Granularity::per_tensor(), x, NumBits(8, 0), 1);
        }}},
      {"quantize", {Does::throws, [](Tensor& x) { (void)quantize(x, make_grid()); }}},
      {"quantize several",
       {Does::throws,
        [](Tensor& x) {
          const QuantizeRequest one{x, make_grid()};
          (void)quantize(std::span(&one, 1));
        }}},
      {"gradient",
       {Does::throws, [](Tensor& x) { (void)apply_mask(x, quantize(ones(), make_grid()).mask); }}},
      {"no mask", {Does::returns, [](Tensor& x) { (void)apply_mask(ones(), x); }}},
      {"pack", {Does::throws, [](Tensor& x) { (void)pack_codes(x, DType::i4); }}},
      {"unpack", {Does::throws, [](Tensor& x) { (void)unpack_codes(x); }}},
  };
  check<Tensor>(accesses, [] { return Tensor(); });
  check<Tensor>(accesses, moved_tensor);
  check<Tensor>(accesses, assigned_tensor);
}

const Accesses<Variable>& variable_accesses() {
  static const Accesses<Variable> accesses = {
      {"shape", {Does::throws, [](Variable& x) { (void)x.shape(); }}},
      {"dim", {Does::throws, [](Variable& x) { (void)x.dim(0); }}},
      {"rank", {Does::throws, [](Variable& x) { (void)x.rank(); }}},
      {"numel", {Does::throws, [](Variable& x) { (void)x.numel(); }}},
      {"device", {Does::throws, [](Variable& x) { (void)x.device(); }}},
      {"layout", {Does::throws, [](Variable& x) { (void)x.layout(); }}},
      {"value", {Does::throws, [](Variable& x) { (void)x.value(); }}},
      {"quantized", {Does::returns, [](Variable& x) { EXPECT_EQ(x.quantized(), nullptr); }}},
      {"accumulator", {Does::returns, [](Variable& x) { EXPECT_EQ(x.accumulator(), nullptr); }}},
      {"as_float", {Does::throws, [](Variable& x) { (void)x.as_float(); }}},
      {"tensor", {Does::throws, [](Variable& x) { (void)x.tensor(); }}},
      {"item", {Does::throws, [](Variable& x) { (void)x.item(); }}},
      {"requires_grad", {Does::returns, [](Variable& x) { EXPECT_FALSE(x.requires_grad()); }}},
      {"set_requires_grad", {Does::throws, [](Variable& x) { x.set_requires_grad(true); }}},
      {"is_leaf", {Does::returns, [](Variable& x) { EXPECT_FALSE(x.is_leaf()); }}},
      {"grad", {Does::throws, [](Variable& x) { (void)x.grad(); }}},
      {"set_grad", {Does::throws, [](Variable& x) { x.set_grad(ones()); }}},
      {"zero_grad", {Does::returns, [](Variable& x) { x.zero_grad(); }}},
      {"set_tensor", {Does::throws, [](Variable& x) { x.set_tensor(ones()); }}},
      {"mutable_tensor", {Does::throws, [](Variable& x) { (void)x.mutable_tensor(); }}},
      {"detach", {Does::throws, [](Variable& x) { (void)x.detach(); }}},
      {"backward", {Does::throws, [](Variable& x) { x.backward(); }}},
      {"backward of a seed", {Does::throws, [](Variable& x) { x.backward(ones()); }}},
      {"node", {Does::returns, [](Variable& x) { EXPECT_EQ(x.node(), nullptr); }}},
  };
  return accesses;
}

TEST(Undefined, VariablesReturnOrThrow) {
  check<Variable>(variable_accesses(), [] { return Variable(); });
  check<Variable>(variable_accesses(), [] {
    Variable from(ones(), true);
    const Variable to = std::move(from);
    EXPECT_TRUE(to.defined());
    return Variable(from);  // NOLINT(bugprone-use-after-move)
  });
}

TEST(Undefined, RejectsCodesAndSumsWithoutTensors) {
  const Accesses<QuantizedTensor> codes = {
      {"shape", {Does::returns, [](QuantizedTensor& x) { (void)x.shape(); }}},
      {"layout", {Does::returns, [](QuantizedTensor& x) { (void)x.layout(); }}},
      {"dequantize", {Does::throws, [](QuantizedTensor& x) { (void)dequantize(x); }}},
      {"code_values", {Does::throws, [](QuantizedTensor& x) { (void)code_values(x); }}},
      {"as floats", {Does::throws, [](QuantizedTensor& x) { (void)Variable(x).tensor(); }}},
  };
  check<QuantizedTensor>(codes, [] { return QuantizedTensor{}; });
  check<QuantizedTensor>(codes, [] {
    QuantizedTensor from = quantize(ones(), make_grid());
    const QuantizedTensor to = std::move(from);
    EXPECT_TRUE(to.codes.defined());
    return QuantizedTensor(from);  // NOLINT(bugprone-use-after-move)
  });
  EXPECT_THROW((void)quantize(ones(), Grid{}), ArgumentError);
  const Accesses<Accumulator> sums = {
      {"any_relu", {Does::returns, [](Accumulator& x) { (void)x.any_relu(); }}},
      {"to_float", {Does::throws, [](Accumulator& x) { (void)to_float(x); }}},
      {"requantize", {Does::throws, [](Accumulator& x) { (void)requantize(x, make_grid(), true); }}},
      {"as floats", {Does::throws, [](Accumulator& x) { (void)Variable(x).tensor(); }}},
  };
  check<Accumulator>(sums, [] { return Accumulator{}; });
  check<Accumulator>(sums, [] { return Accumulator{AccumulatorConcat{}}; });
  check<Accumulator>(sums, [] { return Accumulator{AccumulatorMove{{}, ReshapeMove{{1}}}}; });
  check<Accumulator>(sums, [] { return Accumulator{CodeAddition{}}; });
}

TEST(Undefined, MessagesOmitEmptyNamesAndRanges) {
  const auto negative = [](const char* name) {
    return test::error_message(
        [&] { return Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(-1), name); });
  };
  EXPECT_EQ(negative("").find("''"), std::string::npos) << negative("");
  EXPECT_NE(negative("").find("amax of the quantizer is"), std::string::npos) << negative("");
  EXPECT_NE(negative("fc").find("amax of 'fc' is"), std::string::npos) << negative("fc");
  const std::string none = test::error_message([] { return normalize_axis(0, 0, "f"); });
  EXPECT_EQ(none, "[f] axis 0 of a rank of 0: it has one element and no axes");
}

}  // namespace
}  // namespace fq::undefined_test
