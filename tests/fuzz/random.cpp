#include "random.h"

#include <cmath>
#include <limits>

namespace fq::fuzz {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f32,     DType::f32,     DType::f16,     DType::bf16,
                             DType::f64, DType::i8,      DType::u8,      DType::i16,     DType::u16,
                             DType::i32, DType::i64,     DType::i2,      DType::u2,      DType::i4,
                             DType::u4,  DType::f8_e4m3, DType::f8_e5m2, DType::f8_e8m0, DType::f4_e2m1};
constexpr double kIntegers[] = {0,  1,  -1, 2,   3,   4,   5,    7,    8,   9,  15,    16,     17,
                                31, 32, 64, 127, 128, 255, -127, -128, 300, -2, 32767, -32768, 65535};
constexpr double kNumbers[] = {0.0,    -0.0, 0x1p-24, 0x1p-25, 1e-42, 1e-30,    -1e-30,    1e30, -1e30,
                               3.4e38, 448,  464,     -6,      1,     INFINITY, -INFINITY, NAN};

NumBits num_bits(Random& random) {
  const NumBits all[] = {8,      8,      4,      16,     2,      1,      17,    {4, 3},
                         {4, 3}, {2, 1}, {5, 2}, {3, 2}, {2, 3}, {8, 0}, {1, 1}};
  return random.pick(all);
}

}  // namespace

double Random::number() {
  if (chance(8)) return pick(kNumbers);
  return std::ldexp(std::normal_distribution<double>()(engine_), static_cast<int>(integer(-6, 6)));
}

Shape Random::shape() {
  Shape out(static_cast<std::size_t>(integer(0, 4)));
  for (auto& size : out) size = chance(30) ? 0 : integer(1, 9);
  return out;
}

DType Random::dtype() { return pick(kDTypes); }

Tensor Random::tensor(const Shape& shape, DType dtype) {
  Tensor out = Tensor::zeros(shape, dtype);
  if (dtype == DType::f32) {
    auto* values = out.mutable_data<float>();
    for (std::int64_t i = 0; i < out.numel(); ++i) values[i] = static_cast<float>(number());
    return out;
  }
  if (is_floating(dtype)) return tensor(shape, DType::f32).to(dtype);
  auto* bytes = static_cast<std::uint8_t*>(out.mutable_raw());
  for (std::int64_t i = 0; i < out.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(integer(0, 255));
  return out;
}

Axes Random::axes() {
  std::vector<int> out(static_cast<std::size_t>(integer(0, 2)));
  for (auto& axis : out) axis = static_cast<int>(chance(20) ? integer(-100, 100) : integer(-4, 4));
  return out;
}

BlockSizes Random::blocks() {
  BlockSizes out;
  for (auto n = integer(0, 2); n > 0; --n)
    out.lengths[static_cast<int>(integer(-3, 2))] = chance(9) ? integer(-3, 0) : integer(1, 40);
  out.type = chance(2) ? BlockType::dynamic : BlockType::fixed;
  if (chance(3)) out.scale_bits = num_bits(*this);
  if (chance(6)) out.scale_block_sizes[static_cast<int>(integer(-2, 2))] = integer(-1, 8);
  return out;
}

Amax Random::amax() {
  if (chance(3)) return std::fabs(number());
  return tensor(shape(), DType::f32);
}

QuantDescriptorOptions Random::descriptor() {
  constexpr std::string_view methods[] = {"max",       "percentile",     "entropy", "mse",
                                          "histogram", "moving_average", "maximum", ""};
  QuantDescriptorOptions out;
  out.num_bits = num_bits(*this);
  if (chance(4)) out.name = chance(9) ? "\xff\xfe" : "layer.weight \"1\"\n";
  out.fake_quant = !chance(4);
  if (chance(3)) out.axis = axes();
  if (chance(3)) out.block_sizes = blocks();
  if (chance(4)) out.amax = amax();
  out.learn_amax = chance(8);
  if (chance(8)) out.scale_amax = number();
  if (chance(4)) out.calib_method = pick(methods);
  out.is_unsigned = chance(3);
  out.narrow_range = chance(3);
  out.dynamic = chance(6);
  return out;
}

void Random::mutate(Tensor& t) {
  const Shape other = shape();
  switch (integer(0, 4)) {
    case 0:
      t = tensor(t.shape(), t.dtype());
      break;
    case 1:
      t = tensor(other, t.dtype());
      break;
    case 2:
      t = tensor(t.shape(), dtype());
      break;
    case 3:
      t = tensor(other, dtype());
      break;
    default:
      t = Tensor();
  }
}

void Random::mutate(std::vector<double>& numbers) {
  if (numbers.size() != 1 && chance(3)) numbers.push_back(pick(kIntegers));
  if (numbers.size() > 1 && chance(4)) numbers.pop_back();
  if (numbers.empty()) return;
  auto& changed =
      numbers[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(numbers.size()) - 1))];
  changed = changed == std::rint(changed) ? pick(kIntegers) : number();
}

golden::Case Random::mutated(golden::Case c, const std::map<std::string, std::vector<std::string>>& texts) {
  for (auto& [name, value] : c.inputs)
    if (chance(3)) mutate(value.tensor);
  if (chance(2)) {
    const Shape shared = shape();
    for (auto& [name, value] : c.inputs)
      if (value.tensor.defined() && (name == "x" || name == "grad_y" || name == "codes"))
        value.tensor = tensor(shared, value.tensor.dtype());
  }
  std::erase_if(c.inputs, [](const auto& input) { return !input.second.tensor.defined(); });
  for (auto& [name, numbers] : c.numbers)
    if (chance(4)) mutate(numbers);
  for (auto& [name, text] : c.texts)
    if (name != "function" && chance(4)) text = chance(10) ? "nothing known" : pick(texts.at(name));
  if (!c.numbers.empty() && chance(6))
    c.numbers.erase(
        std::next(c.numbers.begin(), integer(0, static_cast<std::int64_t>(c.numbers.size()) - 1)));
  return c;
}

}  // namespace fq::fuzz
