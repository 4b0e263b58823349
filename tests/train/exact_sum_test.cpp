#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/train/ranks/detail/gradient_sums.h"
#include "thrown.h"

namespace fq::exact_sum_test {
namespace {

/// Normal times log-normal, as gradients are: magnitudes over some 40 powers of two.
std::vector<std::vector<Tensor>> random_terms(std::int64_t terms, std::int64_t size) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<Tensor>> out;
  for (std::int64_t i = 0; i < terms; ++i) {
    Tensor x = Tensor::empty({size});
    for (auto* p = x.mutable_data<float>(); p != x.data<float>() + size; ++p)
      *p = normal(random) * std::exp(3 * normal(random));
    out.push_back({x});
  }
  return out;
}

Tensor sum(const std::vector<std::vector<Tensor>>& terms, std::int64_t size) {
  return exact_sums(*one_rank(), terms, std::int64_t(terms.size()), {Tensor::empty({size})})[0];
}

TEST(ExactSum, IsInvariantToOrder) {
  constexpr std::int64_t kSize = 20003;
  auto terms = random_terms(28, kSize);
  const Tensor first = sum(terms, kSize);
  std::mt19937 random(1);
  for (int i = 0; i < 5; ++i) {
    std::ranges::shuffle(terms, random);
    EXPECT_TRUE(bitwise_equal(sum(terms, kSize), first));
  }
}

TEST(ExactSum, IsCorrectlyRounded) {
  constexpr std::int64_t kSize = 20003;
  const auto terms = random_terms(28, kSize);
  const Tensor found = sum(terms, kSize);
  std::int64_t other = 0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    long double exact = 0;  // 64 bits: no sum of these loses a bit that counts
    for (const auto& term : terms) exact += static_cast<long double>(term[0].data<float>()[i]);
    other += found.data<float>()[i] != static_cast<float>(exact);
  }
  EXPECT_LE(other, 1);  // an element far below the largest one loses digits; one such element was observed
}

TEST(ExactSum, KeepsOneTermAndExtremes) {
  const Tensor x = Tensor::from({0x1.8p90f, -0x1.fffffep127f, 0.0f, 0x1p100f}, {4});
  EXPECT_TRUE(bitwise_equal(sum({{x}}, 4), x));
  EXPECT_EQ(sum({{Tensor::from({0x1p63f, 1.0f}, {2})}}, 2).to_vector<float>(),
            (std::vector<float>{0x1p63f, 0}));  // below half of the unit, 2^2
  const Tensor tiny = Tensor::from({0x1p-149f, -0x1p-149f, 0x1.8p-140f, 0.0f}, {4});
  EXPECT_TRUE(bitwise_equal(sum({{tiny}}, 4), tiny));
  const std::vector<std::vector<Tensor>> most(64, {Tensor::full({1}, double{0x1.fffffep120f})});
  EXPECT_EQ(sum(most, 1).item(), double{0x1.fffffep126f});
  EXPECT_EQ(sum({{Tensor::zeros({3})}, {Tensor::zeros({3})}}, 3).to_vector<float>(),
            (std::vector<float>{0, 0, 0}));
}

TEST(ExactSum, HandlesMissingAndNonFiniteTerms) {
  const Tensor one = Tensor::full({2}, 1.0);
  const auto found = exact_sums(*one_rank(), {{one, {}, one}, {{}, {}, Tensor::from({INFINITY, 0.0f}, {2})}},
                                2, {one, one, one});
  EXPECT_EQ(found[0].to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_FALSE(found[1].defined());
  EXPECT_TRUE(std::isnan(found[2].to_vector<float>()[0]) && std::isnan(found[2].to_vector<float>()[1]));
}

TEST(CudaExactSum, MatchesTheCpuBitwise) {
  FQ_NEEDS_CUDA();
  const Tensor absent;
  const std::vector<Tensor> like{Tensor::zeros({20003}), Tensor::zeros({5}), Tensor::zeros({2, 2})};
  auto terms = random_terms(11, 20003);  // more than one launch adds
  for (auto& term : terms) term.insert(term.end(), {Tensor::zeros({5}), absent});
  terms[3][2] = Tensor::from({1.0f, NAN, -2.0f, 0.0f}, {2, 2});
  terms[4][2] = Tensor::from({0x1p-149f, 3.0f, -0x1.8p-140f, 0.0f}, {2, 2});
  const auto copy_to_device = [](std::vector<Tensor> tensors) {
    for (auto& x : tensors)
      if (x.defined()) x = x.to(Device::cuda());
    return tensors;
  };
  const auto compare = [&] {
    std::vector<std::vector<Tensor>> gpu;
    for (const auto& term : terms) gpu.push_back(copy_to_device(term));
    const auto expected = exact_sums(*one_rank(), terms, 11, like);
    const auto found = exact_sums(*one_rank(), gpu, 11, copy_to_device(like));
    for (std::size_t t = 0; t < like.size(); ++t) {
      EXPECT_TRUE(found[t].device().is_cuda());
      EXPECT_TRUE(bitwise_equal(found[t].to(Device::cpu()), expected[t])) << t;
    }
  };
  compare();
  terms[3][2] = absent;  // then the tiny numbers are a sum
  compare();
}

TEST(ExactSum, RejectsMismatchedTerms) {
  const Tensor one = Tensor::full({2}, 1.0);
  const auto error_text = [&](std::vector<std::vector<Tensor>> terms, std::int64_t count) {
    return test::error_message([&] { return exact_sums(*one_rank(), terms, count, {one}); });
  };
  EXPECT_NE(error_text({{one}, {one}}, 1).find("2 terms on this rank, but count is 1"), std::string::npos);
  EXPECT_NE(error_text({{one, one}}, 1).find("a term has 2 tensors, the sum 1"), std::string::npos);
  EXPECT_NE(error_text({{Tensor::zeros({3})}}, 1).find("f32 [3]"), std::string::npos);
}

}  // namespace
}  // namespace fq::exact_sum_test
