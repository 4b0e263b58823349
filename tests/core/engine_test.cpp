#include <algorithm>
#include <atomic>

#include <gtest/gtest.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "core/products.h"
#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/cpu/engine/loops.h"
#include "fakequant/core/backend/cpu/engine/threads.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/tape.h"
#include "vector_patterns.h"

namespace fq::engine_test {
namespace {

using cpu::ConvShape;

TEST(Engine, MultipliesMatricesAndTransposes) {
  for (const auto& [m, n, k] :
       {std::array{1, 1, 1}, {3, 5, 7}, {129, 65, 300}, {300, 500, 70}, {256, 512, 130}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const Tensor a = test::uniform({m * k}, 1), b = test::uniform({k * n}, 2);
        Tensor c = Tensor::empty({m, n}), right = Tensor::empty({m, n}, DType::f64);
        cpu::gemm({a.raw(), DType::f32, m, k, ta}, {b.raw(), DType::f32, k, n, tb}, c.mutable_data<float>());
        cpu::reference_gemm<double>(m, n, k, a.data<float>(), ta, b.data<float>(), tb,
                                    right.mutable_data<double>());
        EXPECT_LT(test::difference(c, right), test::kRounding) << m << " " << n << " " << k << ta << tb;
      }
}

/// Together or a task of some each, whole or in tiles.
TEST(Engine, BatchMatchesEachPair) {
  using enum cpu::Sharing;
  for (const auto& [batch, m, n, k] : {std::array{33, 7, 5, 9}, {2, 300, 130, 70}, {70, 128, 64, 128}})
    for (const bool transposed : {false, true})
      for (const cpu::Sharing sharing : {by_shape, by_threads}) {
        const Tensor a = test::uniform({batch * m * k}, 1), b = test::uniform({batch * k * n}, 2);
        Tensor c = Tensor::empty({batch, m, n}), right = Tensor::empty({batch, m, n}, DType::f64);
        cpu::gemm({a.raw(), DType::f32, m, k, transposed}, {b.raw(), DType::f32, k, n, !transposed},
                  c.mutable_data<float>(), batch, sharing);
        for (std::int64_t i = 0; i < batch; ++i)
          cpu::reference_gemm<double>(m, n, k, a.data<float>() + i * m * k, transposed,
                                      b.data<float>() + i * k * n, !transposed,
                                      right.mutable_data<double>() + i * m * n);
        EXPECT_LT(test::difference(c, right), test::kRounding) << batch << " " << m << " " << transposed;
      }
}

struct TileCase {
  std::int64_t m, n, k;
  bool ta, tb;
  friend void PrintTo(const TileCase& t, std::ostream* out) {
    *out << t.m << " x " << t.n << " x " << t.k << (t.ta ? " ta" : "") << (t.tb ? " tb" : "");
  }
};
class Tiles : public testing::TestWithParam<TileCase> {
 protected:
  void SetUp() override {
    if (!cpu::tiles_allowed()) GTEST_SKIP() << "no AMX";
  }
  const TileCase t = GetParam();
  const Tensor a = test::uniform({2, t.m*t.k}, 1, DType::bf16),
               b = test::uniform({2, t.k*t.n}, 2, DType::bf16);

  [[nodiscard]] cpu::Matrix left() const { return {a.raw(), DType::bf16, t.m, t.k, t.ta}; }
  [[nodiscard]] cpu::Matrix right() const { return {b.raw(), DType::bf16, t.k, t.n, t.tb}; }
  [[nodiscard]] std::vector<float> product() const {
    std::vector<float> c(static_cast<std::size_t>(t.m * t.n), 7.0f);
    cpu::multiply_by_tiles(left(), right(), c.data());
    return c;
  }
};

/// A batch goes to oneDNN, whose sums of so few terms are in the order of the tiles.
TEST_P(Tiles, MatchOneDnnBitwise) {
  if (t.k > 1024) GTEST_SKIP() << "oneDNN splits the sums";
  std::vector<float> pair(static_cast<std::size_t>(2 * t.m * t.n));
  cpu::gemm(left(), right(), pair.data(), 2, cpu::Sharing::by_threads);
  pair.resize(pair.size() / 2);
  EXPECT_EQ(product(), pair);
}

TEST_P(Tiles, MultiplyEveryShapeOnAnyNumberOfThreads) {
  const Tensor x = a.to(DType::f32), y = b.to(DType::f32);
  Tensor right = Tensor::empty({t.m, t.n}, DType::f64);
  cpu::reference_gemm<double>(t.m, t.n, t.k, x.data<float>(), t.ta, y.data<float>(), t.tb,
                              right.mutable_data<double>());
  const std::vector<float> one = product();
  EXPECT_LT(test::difference(Tensor::from(one, {t.m, t.n}), right), test::kRounding);
  test::run_with_threads({1, 3}, [&](int) { EXPECT_EQ(product(), one); });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Tiles,
    testing::Values(TileCase{64, 32, 32, false, true}, TileCase{64, 33, 45, false, true},
                    TileCase{67, 33, 45, true, false}, TileCase{129, 97, 333, false, false},
                    TileCase{129, 97, 333, true, true}, TileCase{70, 200, 37, false, true},
                    TileCase{70, 200, 37, true, false}, TileCase{65, 65, 1024, false, false},
                    TileCase{300, 70, 1024, false, true}, TileCase{70, 300, 1000, true, true},
                    TileCase{96, 70, 2081, true, false}, TileCase{70, 96, 2081, false, true}));

/// Copies matrix i out of a batch in which `batch_size` matrices are interleaved.
Tensor alone(const Tensor& batch, std::int64_t i, std::int64_t rows, std::int64_t columns,
             std::int64_t batch_size) {
  Tensor out = Tensor::empty({rows, columns}, batch.dtype());
  const auto copy = [&]<class T>(const T* from, T* to) {
    from += i / batch_size * batch_size * rows * columns + i % batch_size * columns;
    for (std::int64_t r = 0; r < rows; ++r)
      std::copy_n(from + r * batch_size * columns, columns, to + r * columns);
  };
  batch.dtype() == DType::bf16 ? copy(batch.data<bfloat16>(), out.mutable_data<bfloat16>())
                               : copy(batch.data<float>(), out.mutable_data<float>());
  return out;
}

TEST(Engine, TilesOfAdjacentMatricesMatchEachBitwise) {
  if (!cpu::tiles_allowed()) GTEST_SKIP() << "no AMX";
  constexpr std::int64_t batch = 6, sides = 3;
  for (const auto& [m, n, k] : {std::array{128, 64, 32}, {64, 96, 64}, {70, 33, 45}, {64, 128, 100}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const int batch_size : {1, 2, 4, 7}) {  // bits: a, b, c
          const std::int64_t a_beside = (batch_size & 1) != 0 ? sides : 1,
                             b_beside = (batch_size & 2) != 0 ? sides : 1,
                             c_beside = (batch_size & 4) != 0 ? sides : 1;
          const Tensor a = test::uniform({batch, m * k}, 1, DType::bf16),
                       b = test::uniform({batch, k * n}, 2, DType::bf16);
          Tensor c = Tensor::empty({batch, m, n});
          cpu::gemm({a.raw(), DType::bf16, m, k, ta, a_beside}, {b.raw(), DType::bf16, k, n, tb, b_beside},
                    c.mutable_data<float>(), batch, cpu::Sharing::by_threads, c_beside);
          for (std::int64_t i = 0; i < batch; ++i) {
            const Tensor x = alone(a, i, ta ? k : m, ta ? m : k, a_beside),
                         y = alone(b, i, tb ? n : k, tb ? k : n, b_beside);
            Tensor one = Tensor::empty({m, n});
            cpu::multiply_by_tiles({x.raw(), DType::bf16, m, k, ta}, {y.raw(), DType::bf16, k, n, tb},
                                   one.mutable_data<float>());
            EXPECT_TRUE(bitwise_equal(alone(c, i, m, n, c_beside), one))
                << m << " " << ta << tb << batch_size;
          }
        }
}

TEST(Engine, FusedScalesMatchSeparateScalesBitwise) {
  const DType dtype = cpu::code_factor_dtype();
  for (const auto& [m, n, k] :
       {std::array{64, 32, 32}, {129, 97, 333}, {70, 200, 64}, {200, 70, 1024}, {5, 7, 9}})
    for (const bool channels : {false, true})
      for (const bool biased : {false, true}) {
        const Tensor a = test::uniform({m, k}, 1, dtype), b = test::uniform({n, k}, 2, dtype);
        const Tensor scale = test::uniform(channels ? Shape{n} : Shape{}, 3);
        const Tensor bias = biased ? test::uniform({n}, 4) : Tensor();
        const detail::Factor left{a, m, k}, right{b, k, n, true};
        Tensor y = Tensor::empty({m, n}), behind = Tensor::empty({m, n});
        cpu::multiply_scaled(left, right, scale, bias, y);
        cpu::multiply(left, right, behind, 1, cpu::Sharing::by_shape);
        cpu::scale_products(behind, scale, bias);
        EXPECT_TRUE(bitwise_equal(y, behind)) << m << " " << n << " " << k << channels << biased;
      }
}

TEST(Engine, FusedGradientSumsMatchSeparateSumsBitwise) {
  run_on_every_target([](std::int64_t target) {
    for (const auto& [rows, channels] : {std::array{1, 64}, {257, 77}, {600, 130}, {257, 63}})
      for (const DType dtype : {DType::bf16, DType::f32})
        for (const bool scaled : {false, true}) {
          const Tensor dy = test::uniform({rows, channels}, 1);
          const Tensor scales = test::uniform(scaled ? Shape{channels} : Shape{}, 2);
          Tensor out = Tensor::empty(dy.shape(), dtype), alone = Tensor::empty(dy.shape(), dtype);
          Tensor db = Tensor::empty({channels}), sums = Tensor::empty({channels});
          cpu::scale_gradient(detail::PendingGradient(dy), scales, channels, out, db);
          cpu::scale_to_bf16(dy, scales, channels, alone);
          cpu::bias_gradient(dy, sums);
          EXPECT_TRUE(bitwise_equal(out, alone)) << target << " " << rows << " " << name(dtype);
          EXPECT_TRUE(bitwise_equal(db, sums)) << target << " " << rows << " " << name(dtype);
        }
  });
}

TEST(Engine, EmptySumIsZero) {
  std::vector<float> c(6, 7.0f);
  cpu::gemm({nullptr, DType::f32, 2, 0}, {nullptr, DType::f32, 0, 3}, c.data());
  EXPECT_EQ(c, std::vector<float>(6));
  std::vector<float> dw(18, 7.0f);
  cpu::conv_backward_weights({0, 1, 4, 4, 2, 3, 3, 2, 2}, nullptr, nullptr, DType::f32, dw.data());
  EXPECT_EQ(dw, std::vector<float>(18));
}

TEST(Engine, SmallIntegersAreExactInEveryType) {
  constexpr std::int64_t m = 6, n = 10, k = 64;  // codes within 4 bits: no 16-bit sum of a pair can saturate
  std::vector<std::int8_t> a(m * k), b(n * k);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::int8_t>(i % 15) - 7;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::int8_t>(i % 13) - 6;
  std::vector<std::int32_t> c(m * n), right(m * n);
  cpu::gemm({a.data(), DType::i8, m, k}, {b.data(), DType::i8, k, n, true}, c.data());
  cpu::reference_gemm<std::int64_t>(m, n, k, a.data(), false, b.data(), true, right.data());
  EXPECT_EQ(c, right);
}

TEST(Engine, FailuresAreBackendErrors) {
  if (cpu::exact_type_works(cpu::ExactType::bf16)) GTEST_SKIP() << "this processor multiplies every type";
  std::vector<std::uint16_t> a(64), b(64);
  std::vector<float> c(64);
  EXPECT_THROW(cpu::gemm({a.data(), DType::bf16, 8, 8}, {b.data(), DType::bf16, 8, 8}, c.data()),
               BackendError);
  EXPECT_THROW(cpu::gemm({a.data(), DType::f64, 1, 1}, {b.data(), DType::f64, 1, 1}, c.data()),
               ArgumentError);
}

TEST(Engine, TasksRunOnOneThreadAndKeepTheThreadCount) {
  test::run_with_threads({1, 3}, [](int) {
    struct None {};
    const int count = detail::threads();  // 1 without OpenMP
    std::vector<int> seen(20);
    cpu::parallel_tasks<None>(
        20, [&](None&, std::int64_t i) { seen[static_cast<std::size_t>(i)] = detail::threads(); });
    EXPECT_EQ(std::ranges::count(seen, 1), 20);
    cpu::parallel_tasks<None>(1, [](None&, std::int64_t) {});
    EXPECT_EQ(detail::threads(), count);
  });
}

#if defined(_OPENMP)
/// oneDNN waits for every thread that it plans for: these are never more than a loop gets.
TEST(Engine, ThreadCountMatchesParallelLoops) {
  test::run_with_threads({2, 3}, [](int count) {
    omp_set_dynamic(1);
    EXPECT_EQ(detail::threads(), count);
    EXPECT_EQ(omp_get_dynamic(), 0);
    std::vector<int> inside(2, 0);
#pragma omp parallel for num_threads(2) schedule(static)
    for (int i = 0; i < 2; ++i) {
      omp_set_num_threads(3);  // as a program of one's own may
      inside[static_cast<std::size_t>(i)] = detail::threads();
    }
    EXPECT_EQ(inside, (std::vector<int>{1, 1}));
    EXPECT_EQ(detail::threads(), count);
  });
}
#endif

TEST(Engine, AThrowingTaskDoesNotStopOthers) {
  struct None {};
  std::vector<int> done(8);
  EXPECT_THROW(cpu::parallel_tasks<None>(8,
                                         [&](None&, std::int64_t i) {
                                           if (i == 3) throw NumericError("three");
                                           done[static_cast<std::size_t>(i)] = 1;
                                         }),
               NumericError);
  EXPECT_EQ(std::ranges::count(done, 1), 7);
}

TEST(Engine, SkipsTasksWithoutState) {
  struct Unmade {
    Unmade() { throw NumericError("unmade"); }
  };
  std::atomic<int> done{0};
  EXPECT_THROW(cpu::parallel_tasks<Unmade>(8, [&](Unmade&, std::int64_t) { ++done; }), NumericError);
  EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace fq::engine_test
