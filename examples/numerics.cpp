// The numbers printed in the documentation of Tripy, torchao and TensorRT, computed and compared.

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/reference/tensorrt.h"
#include "fakequant/reference/torchao.h"

namespace {

using fq::DType;
using fq::Shape;
using fq::Tensor;

int failures = 0;

void check(const std::string& what, bool same) {
  std::cout << (same ? "  same  " : "DIFFERS ") << what << "\n";
  failures += same ? 0 : 1;
}

Tensor grid(const Shape& shape, float first = 0) {
  std::vector<float> values(static_cast<std::size_t>(fq::numel(shape)));
  for (float& v : values) v = first++;
  return Tensor::from(values, shape);
}

/// Checks equality to the number of printed decimals.
bool printed(const Tensor& y, const std::vector<float>& expected, float tolerance = 0.51e-4f) {
  const auto values = y.to_vector<float>();
  bool same = values.size() == expected.size();
  for (std::size_t i = 0; same && i < values.size(); ++i)
    same = std::fabs(values[i] - expected[i]) <= tolerance;
  return same;
}

void tripy_examples() {
  std::cout << "Tripy quantize and dequantize\n";
  const std::vector<std::int8_t> codes{0, 1, 2, 3, 4, 5};
  const Tensor scale = Tensor::scalar(0.99872), scales = Tensor::from({0.99872f, 0.96125f});
  const Tensor per_tensor = fq::tripy::quantize(grid({2, 3}), scale, DType::i8);
  std::cout << per_tensor << "\n";
  check("quantize per tensor, scale 0.99872", per_tensor.to_vector<std::int8_t>() == codes);
  check("quantize per channel, dim 0",
        fq::tripy::quantize(grid({2, 3}), scales, DType::i8, 0).to_vector<std::int8_t>() == codes);
  const Tensor blocks = Tensor::from({1.0f, 1.0f}, {1, 2});
  const Tensor int4 = fq::tripy::quantize(grid({2, 2}), blocks, DType::i4);
  std::cout << int4 << "\n";
  check("quantize int4 in blocks, and dequantize",
        printed(fq::tripy::dequantize(int4, blocks), {0, 1, 2, 3}, 0));
  const Tensor three = Tensor::from({std::int8_t{1}, std::int8_t{2}, std::int8_t{3}});
  check("dequantize per tensor", printed(fq::tripy::dequantize(three, scale), {0.9987f, 1.9974f, 2.9962f}));
  const Tensor six = grid({2, 3}, 1).to(DType::i8);
  check("dequantize per channel, dim 0", printed(fq::tripy::dequantize(six, scales, DType::f32, 0),
                                                 {0.9987f, 1.9974f, 2.9962f, 3.8450f, 4.8063f, 5.7675f}));
}

void torchao_table() {
  using namespace fq::torchao;
  std::cout << "torchao: block_size of a tensor of shape (3, 3, 10, 10)\n";
  const Shape x{3, 3, 10, 10};
  const auto row = [&](const std::string& name, const Granularity& granularity, const Shape& expected) {
    const Shape block = get_block_size(x, granularity);
    check(name + " " + fq::to_string(block) + ", scales " + fq::to_string(scale_shape(x, block)),
          block == expected);
  };
  row("per_tensor          ", PerTensor{}, {3, 3, 10, 10});
  row("per_axis (axis=0)   ", PerAxis{0}, {1, 3, 10, 10});
  row("per_axis (axis=1)   ", PerAxis{1}, {3, 1, 10, 10});
  row("per_group of 2, last", PerBlock{{3, 3, 10, 2}}, {3, 3, 10, 2});
  row("per_group of 2, rows", PerBlock{{3, 3, 2, 10}}, {3, 3, 2, 10});
}

void tensorrt_examples() {
  std::cout << "TensorRT Quantize\n";
  const Tensor x = Tensor::from({0.56f, 0.89f, 1.4f, -0.56f, 0.39f, 6.0f, 0.67f, 0.11f, -3.6f}, {1, 1, 3, 3});
  const Tensor scale = Tensor::from({1.0f / 127.0f});
  const Tensor y =
      fq::tensorrt::dequantize(fq::tensorrt::quantize(x, scale, DType::i8, 3), scale, DType::f32, 3);
  std::cout << y << "\n";
  // Printed with two decimals, and -128/127 as -1.
  check("int8, one scale", printed(y, {0.56f, 0.89f, 1, -0.56f, 0.39f, 1, 0.67f, 0.11f, -1}, 0.0083f));
  const Tensor blocks = Tensor::from({1.0f, 1.0f, 2.0f, 2.0f, 3.0f, 3.0f, 4.0f, 4.0f,  //
                                      4.0f, 4.0f, 5.0f, 5.0f, 6.0f, 6.0f, 7.0f, 7.0f},
                                     {2, 8});
  const Tensor rows = Tensor::from({1.0f, 1.0f, 2.0f, 2.0f, 3.0f, 3.0f, 4.0f, 4.0f,  //
                                    1.1f, 1.2f, 2.1f, 2.2f, 3.1f, 3.2f, 4.1f, 4.2f,  //
                                    4.0f, 4.0f, 5.0f, 5.0f, 6.0f, 6.0f, 7.0f, 7.0f,  //
                                    4.1f, 4.2f, 5.1f, 5.2f, 6.1f, 6.2f, 7.1f, 7.2f},
                                   {4, 8});
  const std::vector<float> expected{1, 1, 2, 2, 3, 3, 4, 4, 1, 1, 2, 2, 3, 3, 4, 4,
                                    4, 4, 5, 5, 6, 6, 7, 7, 4, 4, 5, 5, 6, 6, 7, 7};
  const Tensor int4 = fq::tensorrt::quantize(rows, blocks, DType::i4);
  check("int4, blocks of two rows", printed(fq::tensorrt::dequantize(int4, blocks), expected, 0));
}

}  // namespace

int main() {
  tripy_examples();
  torchao_table();
  tensorrt_examples();
  std::cout << (failures == 0 ? "every printed number is the same\n" : "there are differences\n");
  return failures == 0 ? 0 : 1;
}
