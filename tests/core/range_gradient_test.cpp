// Gradients of learned ranges: inputs that are not read, and gradients that are not computed.

#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/ops/detail/learned_range.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/tape.h"
#include "vector_patterns.h"

namespace fq::range_gradient_test {
namespace {

using Rows = std::vector<std::int64_t>;

/// Whole numbers, whose sums are exact in any order.
Tensor whole(const Shape& shape) {
  Tensor out = Tensor::empty(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<float>()[i] = static_cast<float>(i * 7919 % 201 - 100);
  return out;
}

template <class Code>
void expect_ends(int least, int most, Code upper) {
  for (const std::int64_t count : {1, 63, 64, 65, 200, 333})
    for (std::int64_t end = 0; end <= count; end += 7)
      for (const int code : {least, -static_cast<int>(upper), static_cast<int>(upper), most}) {
        if (code < least || (least == 0 && code < upper)) continue;
        std::vector<Code> codes(static_cast<std::size_t>(count), static_cast<Code>(upper - 1));
        if (end < count) codes[static_cast<std::size_t>(end)] = static_cast<Code>(code);
        const std::int64_t expected = end < count ? end / cpu::end_group * cpu::end_group : count;
        run_on_every_target([&](std::int64_t target) {
          ASSERT_EQ(cpu::find_end(codes.data(), count, upper), expected)
              << end << " of " << count << ": " << code << " on " << target;
        });
      }
}

TEST(RangeEnds, AreFoundInTheirBlock) {
  expect_ends<std::int8_t>(-128, 127, 127);
  expect_ends<std::int8_t>(-128, 127, 15);
  expect_ends<std::uint8_t>(0, 255, 255);
  expect_ends<std::uint8_t>(0, 255, 200);
}

TEST(RangeEnds, PartsSumToTheWholeRun) {
  const auto x = test::uniform({1000}, 1).to_vector<float>(),
             dy = test::uniform({1000}, 2).to_vector<float>();
  const detail::GridRow row{0.4f / 127, -128, 127, 0.4f, -0.4f};
  run_on_every_target([&](std::int64_t) {
    double lanes[cpu::share_lanes] = {}, sum = 0;
    for (std::int64_t i = 0; i < 1000; i += 48)
      cpu::add_clip_shares(x.data() + i, dy.data() + i, std::min<std::int64_t>(48, 1000 - i), row, lanes);
    for (const double lane : lanes) sum += lane;
    EXPECT_EQ(sum, cpu::clip_sum(x.data(), dy.data(), 1000, row));
  });
}

/// Element by element, from the floats.
std::vector<float> clip_gradients(const Tensor& x, const Tensor& dy, const Grid& grid) {
  std::vector<double> sums(static_cast<std::size_t>(grid.amax.numel()));
  const auto format = detail::GridFormat::of(grid.format);
  const auto values = x.to_vector<float>(), gradient = dy.to_vector<float>(),
             amax = grid.amax.to_vector<float>(), scale = grid.scale.to_vector<float>();
  const auto inner = static_cast<std::size_t>(x.numel() / x.dim(0));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t range = amax.size() == 1 ? 0 : i / inner;
    const auto row = detail::grid_row(format, scale[range], amax[range]);
    sums[range] += static_cast<double>(gradient[i]) * static_cast<double>(detail::clip_share(values[i], row));
  }
  return {sums.begin(), sums.end()};
}

TEST(RangeGradient, MatchesElementsForEveryFormat) {
  const Shape shape{6, 10, 31, 17};
  Tensor x = test::uniform(shape, 3);
  const Tensor dy = whole(shape);
  const Tensor one = Tensor::scalar(static_cast<double>(0.75f)), zero = Tensor::scalar(0),
               many = Tensor::from({0.1f, 0.9f, 0.0f, 1.0f, 2.0f, 0.5f});
  for (std::int64_t i = 0; i < x.numel(); i += 97)  // at the ends
    x.mutable_data<float>()[i] = i % 2 == 0 ? 0.75f : -0.75f;
  for (const Format& format :
       {Format(IntFormat{}), Format(IntFormat{8, true}), Format(IntFormat{8, false, true}),
        Format(IntFormat{5}), Format(IntFormat{6, true}), Format(IntFormat{12}), Format(FloatFormat{4, 3})})
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      for (const Tensor& amax : {one, zero, many}) {
        if (amax.numel() > 1 && layout == Layout::channels_last) continue;
        const auto by = amax.numel() > 1 ? Granularity::per_axis(0) : Granularity::per_tensor();
        const auto codes = quantize(x.to(layout), Grid::from_amax(format, by, amax, "q"), false);
        const auto found = detail::amax_gradient(x.to(layout), codes, dy.to(layout), AmaxGradient::clip);
        EXPECT_EQ(found.to_vector<float>(), clip_gradients(x, dy, codes.grid))
            << to_string(format) << ' ' << amax << ' ' << static_cast<int>(layout);
      }
}

Tensor integers(const Shape& shape, Layout layout) {
  const Tensor x = whole(shape).to(layout);
  Tensor out = Tensor::empty(shape, DType::i32, Device::cpu(), layout);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    out.mutable_data<std::int32_t>(layout)[i] = static_cast<std::int32_t>(x.data<float>(layout)[i]) * 100;
  return out;
}

TEST(RangeGradient, OfSumsMatchesTheirFloats) {
  const Shape shape{5, 6, 17, 19};
  const Tensor factor = Tensor::from({1e-4f, -2e-4f, 3e-4f, 1e-5f, -1e-4f, 2e-4f}),
               bias = Tensor::from({100, -200, 3000, 0, 1, 50});
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    const Tensor sums = integers(shape, layout), dy = whole(shape).to(layout);
    const auto a = quantize(test::uniform(shape, 5).to(layout),
                            Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1), "a"), false);
    const ProductSums product{sums, bias, Tensor::scalar(1e-4), 1};
    const NormalizedSums normalized{sums, factor, factor, 1};
    for (const auto& value : std::initializer_list<decltype(Accumulator::value)>{
             product, normalized, PooledSums{sums, Tensor::scalar(0.01), 49},
             Averages{test::uniform(shape, 6).to(layout)}, CodeAddition{a, a},
             AccumulatorConcat{{{product, true}, {normalized}}, 0},
             AccumulatorMove{{{product}}, CutMove{0, 0, 5}}})
      for (const bool relu : {false, true})
        for (const bool is_unsigned : {false, true}) {
          const Accumulator x{value, relu};
          const auto grid =
              Grid::from_amax(IntFormat{8, is_unsigned}, {}, Tensor::scalar(static_cast<double>(0.7f)), "q");
          const auto codes = requantize(x, grid, false);
          const Tensor gradient = whole(codes.shape()).to(codes.layout());
          EXPECT_EQ(detail::amax_gradient(x, codes, gradient, AmaxGradient::clip).item(),
                    static_cast<double>(clip_gradients(to_float(x), gradient, grid)[0]))
              << x.value.index() << relu << is_unsigned << static_cast<int>(layout);
          EXPECT_TRUE(bitwise_equal(detail::amax_gradient(x, codes, gradient, AmaxGradient::lsq),
                                    detail::amax_gradient(to_float(x), codes, gradient, AmaxGradient::lsq)));
        }
  }
}

TEST(RangeGradient, FreesUnusedBackwardState) {
  const Variable amax(Tensor::scalar(1), true);
  const auto grid = Grid::from_amax(IntFormat{}, {}, amax.tensor(), "q");
  const ops::LearnedRange learned{amax};
  std::vector<std::weak_ptr<detail::Node>> inputs;
  {
    const Variable x(test::uniform({4, 5}, 1), true);
    const auto codes = quantize(x.tensor(), grid, false);
    for (const Variable& input : {x, Variable(Accumulator{CodeAddition{codes, codes}})}) {
      const Variable y = ops::quantize(input, grid, &learned);
      EXPECT_TRUE(y.requires_grad());
      (void)y.tensor();
      inputs.emplace_back(input.node());
    }
  }
  for (const auto& input : inputs) EXPECT_TRUE(input.expired());
}

using Layer = Variable (*)(const Variable& x, const Variable& w);

struct Network {
  Shape x, w;
  int channels;  ///< axis of the weight's
  Layer layer;
};

Variable matrix(const Variable& x, const Variable& w) { return ops::linear(x, w); }
Variable image(const Variable& x, const Variable& w) {
  ops::ConvOptions options;
  options.stride = {2};
  options.padding = {1};
  return ops::conv2d(x, w, {}, options);
}
Variable grouped(const Variable& x, const Variable& w) {
  ops::ConvOptions options;
  options.groups = 2;
  return ops::conv2d(x, w, {}, options);
}
Variable line(const Variable& x, const Variable& w) { return ops::conv1d(x, w); }
Variable transposed(const Variable& x, const Variable& w) { return ops::conv_transpose2d(x, w); }

std::vector<Network> networks() {
  return {{{256, 784}, {1024, 784}, 0, matrix},       {{97, 50}, {300, 50}, 0, matrix},
          {{128, 2048}, {512, 2048}, 0, matrix},      {{40, 3, 128}, {64, 128}, 0, matrix},
          {{64, 3, 28, 28}, {32, 3, 3, 3}, 0, image}, {{9, 16, 14, 14}, {32, 8, 3, 3}, 0, grouped},
          {{17, 4, 60}, {8, 4, 5}, 0, line},          {{6, 4, 9, 9}, {4, 8, 3, 3}, 1, transposed}};
}

/// An input of [-1, 1) with numbers beyond 2 in these rows.
Tensor input(const Shape& shape, const Rows& beyond) {
  Tensor x = test::uniform(shape, 1);
  const std::int64_t length = x.numel() / shape[0];
  for (const std::int64_t row : beyond) {
    x.mutable_data<float>()[row * length] = -5;
    x.mutable_data<float>()[(row + 1) * length - 1] = 2;
  }
  return x;
}

struct Trained {
  Tensor range, weight;
  detail::Rows reads;
};

Trained train(const Network& network, const Tensor& x, bool with_input, AmaxGradient gradient, int threads) {
  const int before = detail::threads();
  detail::set_threads(threads);
  Variable amax(Tensor::scalar(2), true), w(test::uniform(network.w, 2), true);
  const ops::LearnedRange learned{amax, gradient};
  const auto weights =
      Grid::from_amax(IntFormat{8, false, true}, Granularity::per_axis(network.channels),
                      Tensor::full({network.w[static_cast<std::size_t>(network.channels)]}, 1.0), "w");
  const Variable codes =
      ops::quantize(Variable(x, with_input), Grid::from_amax(IntFormat{}, {}, amax.tensor(), "x"), &learned);
  const Variable y = network.layer(codes, ops::quantize(w, weights)).as_float();
  const detail::Rows reads = codes.node()->gradient->reads;
  y.backward(test::uniform(y.shape(), 3));
  detail::set_threads(before);
  return {amax.grad(), w.grad(), reads};
}

/// An input that takes a gradient gets a whole one; the range's is the same.
TEST(InputRangeGradient, MatchesTheFullGradientBitwise) {
  for (const Network& network : networks()) {
    const std::int64_t last = network.x[0] - 1;
    Rows all;
    for (std::int64_t i = 0; i <= last; ++i) all.push_back(i);
    for (const Rows& beyond : {Rows{}, Rows{2}, Rows{0, 3, last}, all}) {
      const Tensor x = input(network.x, beyond);
      for (const int threads : {1, 2}) {
        const Trained few = train(network, x, false, AmaxGradient::clip, threads),
                      whole_one = train(network, x, true, AmaxGradient::clip, threads);
        EXPECT_EQ(few.reads, detail::Rows(beyond)) << to_string(network.x);
        EXPECT_EQ(whole_one.reads, std::nullopt);
        EXPECT_TRUE(bitwise_equal(few.range, whole_one.range))
            << to_string(network.x) << ' ' << beyond.size() << ": " << few.range << whole_one.range;
        EXPECT_TRUE(bitwise_equal(few.weight, whole_one.weight)) << to_string(network.x);
        EXPECT_EQ(few.range.item() != 0, !beyond.empty());
      }
    }
  }
}

TEST(InputRangeGradient, ReadsAllElementsIfRequired) {
  const Network network = networks()[0];
  const Tensor x = input(network.x, {2});
  const Trained few = train(network, x, false, AmaxGradient::lsq, 1),
                whole_one = train(network, x, true, AmaxGradient::lsq, 1);
  EXPECT_EQ(few.reads, std::nullopt);
  EXPECT_TRUE(bitwise_equal(few.range, whole_one.range));
}

}  // namespace
}  // namespace fq::range_gradient_test
