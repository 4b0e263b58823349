// Products in blocks against their definition, for every instruction set and with tiles: every bit.

#include "fakequant/core/backend/cpu/engines/chain_kernels.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "fakequant/core/backend/cpu/engines/chain_operands.h"
#include "fakequant/core/backend/cpu/engines/row_code_kernels.h"
#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "vector_patterns.h"

namespace fq::chain_kernels_test {
namespace {

constexpr std::int64_t kOffset = 128;

class Numbers {
 public:
  int next(int lowest, int highest) {
    state_ = state_ * 1664525U + 1013904223U;
    return lowest + static_cast<int>((state_ >> 12) % static_cast<unsigned>(highest - lowest + 1));
  }
  template <class T>
  std::vector<T> codes(std::int64_t count, int lowest, int highest) {
    std::vector<T> out;
    for (std::int64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(next(lowest, highest)));
    return out;
  }
  std::vector<float> floats(std::int64_t count) {
    std::vector<float> out;
    for (std::int64_t i = 0; i < count; ++i)
      out.push_back(std::ldexp(static_cast<float>(next(-4096, 4096)), next(-20, -8)));
    return out;
  }

 private:
  unsigned state_ = 1;
};

struct Product {
  std::int64_t rows, outputs, columns, block;
  std::vector<std::int8_t> x, w;  // [rows, columns], [outputs, columns]
  std::vector<float> x_scale, w_scale, first, first_factor, last_factor, last_bias;

  Product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t b)
      : rows(m), outputs(n), columns(k), block(b) {
    Numbers numbers;
    x = numbers.codes<std::int8_t>(m * k, -128, 127);
    w = numbers.codes<std::int8_t>(n * k, -8, 7);
    x_scale = numbers.floats(m * (k / b));
    w_scale = numbers.floats(n * (k / b));
    first = numbers.floats(n);
    first_factor = numbers.floats(m);
    last_factor = numbers.floats(m);
    last_bias = numbers.floats(n);
  }
  [[nodiscard]] std::int64_t blocks() const { return columns / block; }
  [[nodiscard]] std::int32_t sum(std::int64_t m, std::int64_t n, std::int64_t b, int offset) const {
    std::int32_t out = 0;
    for (std::int64_t k = b * block; k < (b + 1) * block; ++k)
      out += (x[std::size_t(m * columns + k)] + offset) * w[std::size_t(n * columns + k)];
    return out;
  }
  /// The expected sums of each output, starting with its initial value.
  template <class Begin, class End>
  [[nodiscard]] std::vector<float> expected(int offset, bool scaled, Begin begin, End end) const {
    std::vector<float> out;
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < outputs; ++n) {
        float y = begin(m, n);
        for (std::int64_t b = 0; b < blocks(); ++b) {
          const float factor = scaled ? x_scale[std::size_t(m * blocks() + b)] : 1.0f;
          y = std::fma(static_cast<float>(sum(m, n, b, offset)),
                       factor * w_scale[std::size_t(n * blocks() + b)], y);
        }
        out.push_back(end(m, n, y));
      }
    return out;
  }
};

/// Memory as `chain_blocks` reads it.
struct Operands {
  std::vector<std::uint8_t> x;
  cpu::ArenaVector<std::int8_t> w;
  std::vector<float> w_scale, y;
  std::vector<std::int32_t> subtract;
  cpu::BlockChains chains;

  explicit Operands(const Product& p)
      : w(p.w.size()),
        w_scale(p.w_scale.size()),
        y(std::size_t(p.rows * p.outputs), -1.0f),
        subtract(p.w_scale.size()),
        chains{.x = nullptr,
               .w = w.data(),
               .w_scale = w_scale.data(),
               .y = y.data(),
               .columns = p.columns,
               .pitch = p.outputs,
               .block = p.block} {
    for (const std::int8_t code : p.x) x.push_back(static_cast<std::uint8_t>(code + kOffset));
    chains.x = x.data();
    constexpr std::int64_t width = cpu::chain_width;
    for (std::int64_t n = 0; n < p.outputs; ++n) {
      const std::int64_t strip = n / width * width, lane = n % width;
      for (std::int64_t k = 0; k < p.columns; ++k)
        w[std::size_t(strip * p.columns + k / 4 * 4 * width + lane * 4 + k % 4)] =
            p.w[std::size_t(n * p.columns + k)];
      for (std::int64_t b = 0; b < p.blocks(); ++b) {
        const auto at = std::size_t(strip * p.blocks() + b * width + lane);
        w_scale[at] = p.w_scale[std::size_t(n * p.blocks() + b)];
        for (std::int64_t k = b * p.block; k < (b + 1) * p.block; ++k)
          subtract[at] += static_cast<std::int32_t>(kOffset * p.w[std::size_t(n * p.columns + k)]);
      }
    }
  }
};

template <class Run>
void run_all_products(const Run& run) {
  for (const std::int64_t rows : {1, 3, 15, 16, 17, 37, 64})
    for (const std::int64_t outputs : {16, 48})
      for (const auto& size : {std::pair<std::int64_t, std::int64_t>{32, 32},
                               {64, 32},
                               {96, 32},
                               {160, 32},
                               {256, 32},
                               {64, 64},
                               {192, 64},
                               {384, 128}}) {
        const std::int64_t columns = size.first, block = size.second;
        const Product p(rows, outputs, columns, block);
        run_on_every_target([&](std::int64_t target) {
          SCOPED_TRACE(testing::Message()
                       << target << ": " << rows << ' ' << outputs << ' ' << columns << ' ' << block);
          run(p);
        });
      }
}

TEST(ChainKernels, MatchTheGgmlOrderBitwise) {
  run_all_products([](const Product& p) {
    for (const bool bias : {false, true}) {
      Operands o(p);
      o.chains.x_scale = p.x_scale.data();
      o.chains.subtract = o.subtract.data();
      o.chains.last_bias = bias ? p.last_bias.data() : nullptr;
      o.chains.tiled_rows = cpu::tiled_rows(p.rows);
      o.chains.codes = p.x.data();
      cpu::chain_blocks(o.chains, 0, p.rows, 0, p.outputs);
      EXPECT_EQ(o.y, p.expected(
                         0, true, [](std::int64_t, std::int64_t) { return 0.0f; },
                         [&](std::int64_t, std::int64_t n, float y) {
                           return bias ? y + p.last_bias[std::size_t(n)] : y;
                         }));
    }
  });
}

TEST(ChainKernels, MatchTheXnnpackOrderBitwise) {
  run_all_products([](const Product& p) {
    Operands o(p);
    o.chains.first = p.first.data();
    o.chains.first_factor = p.first_factor.data();
    o.chains.last_factor = p.last_factor.data();
    o.chains.last_bias = p.last_bias.data();
    o.chains.tiled_rows = cpu::tiled_rows(p.rows);
    cpu::chain_blocks(o.chains, 0, p.rows, 0, p.outputs);
    EXPECT_EQ(o.y, p.expected(
                       kOffset, false,
                       [&](std::int64_t m, std::int64_t n) {
                         return p.first[std::size_t(n)] * p.first_factor[std::size_t(m)];
                       },
                       [&](std::int64_t m, std::int64_t n, float y) {
                         const float scaled = y * p.last_factor[std::size_t(m)];
                         return scaled + p.last_bias[std::size_t(n)];
                       }));
  });
}

/// Blocks of every pattern: of zeros of both signs, of equal magnitudes of both signs, with a NaN.
TEST(RowCodeKernels, FindTheSameExtremeAsTheFormula) {
  std::vector<float> x = patterns();
  x.resize(x.size() / 32 * 32);
  for (int i = 0; i < 32; ++i) x.push_back(i % 2 == 0 ? -0.0f : 0.0f);
  for (int i = 0; i < 32; ++i) x.push_back(i < 5 ? 1.0f : i % 3 == 0 ? -2.0f : 2.0f);
  for (int i = 0; i < 32; ++i) x.push_back(std::numeric_limits<float>::quiet_NaN());
  const auto blocks = static_cast<std::int64_t>(x.size() / 32);
  run_on_every_target([&](std::int64_t target) {
    std::vector<float> found(std::size_t(blocks), -1.0f);
    EXPECT_TRUE(cpu::block_extremes(x.data(), blocks, found.data()));
    for (std::int64_t b = 0; b < blocks; ++b)
      ASSERT_TRUE(same_number(found[std::size_t(b)], detail::ggml_extreme(x.data() + b * 32)))
          << target << ", block " << b;
  });
}

TEST(RowCodeKernels, RoundHalfUpLikeTheFormula) {
  std::vector<float> x;
  for (const float v : patterns())
    if (std::isfinite(v)) x.push_back(v);
  x.resize(x.size() / 32 * 32);
  const auto blocks = static_cast<std::int64_t>(x.size() / 32);
  std::vector<float> factors;
  for (std::int64_t b = 0; b < blocks; ++b) factors.push_back(b % 3 == 0 ? 1.0f : b % 3 == 1 ? -0.7f : 4.0f);
  run_on_every_target([&](std::int64_t target) {
    std::vector<std::int8_t> found(x.size(), 99);
    cpu::halves_up_codes(x.data(), blocks, factors.data(), found.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(found[i], detail::ggml_q4_0_code(x[i], factors[i / 32])) << target << ": " << x[i];
  });
}

}  // namespace
}  // namespace fq::chain_kernels_test
