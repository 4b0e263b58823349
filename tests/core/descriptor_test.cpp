#include "fakequant/core/descriptor.h"

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "thrown.h"

namespace fq::descriptor_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(QuantDescriptor, DefaultsMatchTheReference) {
  const QuantDescriptor d;
  EXPECT_EQ(d.num_bits(), NumBits(8));
  EXPECT_TRUE(d.axis().empty());
  EXPECT_TRUE(d.fake_quant());
  EXPECT_FALSE(d.amax().defined() || d.learn_amax() || d.is_unsigned() || d.narrow_range() || d.dynamic());
  EXPECT_EQ(d.calib_method(), "max");
  EXPECT_EQ(d.format(), Format(IntFormat{8, false, false}));
  EXPECT_TRUE(d.granularity(4).is_per_tensor());
  EXPECT_EQ(d.dict(), json::object());
  static_assert(std::is_same_v<ScaledQuantDescriptor, QuantDescriptor>);
}

TEST(QuantDescriptor, FieldsAndFormats) {
  const QuantDescriptor w({.num_bits = 4, .axis = 0, .narrow_range = true});
  EXPECT_EQ(w.format(), Format(IntFormat{4, false, true}));
  EXPECT_EQ(w.granularity(4), Granularity::per_axis(0));
  EXPECT_EQ(w.dict(), (json{{"num_bits", 4}, {"axis", 0}, {"narrow_range", true}}));
  const QuantDescriptor f({.num_bits = {4, 3}, .axis = {0, -1}, .is_unsigned = true});
  EXPECT_EQ(f.format(), Format(FloatFormat{4, 3}));
  EXPECT_EQ(f.granularity(3), Granularity::per_axis({0, 2}));
  EXPECT_EQ(f.dict(), (json{{"num_bits", {4, 3}}, {"axis", {0, -1}}, {"unsigned", true}}));
}

TEST(QuantDescriptor, AmaxDeterminesTheGranularity) {
  EXPECT_TRUE(QuantDescriptor({.axis = 0, .amax = 1.5}).granularity(2).is_per_tensor());
  EXPECT_EQ(QuantDescriptor({.axis = 0, .amax = {1.0, 2.0}}).granularity(4), Granularity::per_axis(0));
  EXPECT_EQ(QuantDescriptor({.amax = {1.0, 2.0}}).granularity(2), Granularity::per_axis(1));
  const Tensor amax_tensor = Tensor::from({1.0f, 2.0f, 3.0f}, {3, 1, 1});
  EXPECT_EQ(QuantDescriptor({.amax = amax_tensor}).granularity(4), Granularity::per_axis(1));
  EXPECT_THAT(test::error_message([&] { return QuantDescriptor({.amax = amax_tensor}).granularity(2); }),
              HasSubstr("more axes"));
}

TEST(QuantDescriptor, CopiesAmax) {
  Tensor given = Tensor::from({1.0f, 2.0f});
  const QuantDescriptor d({.amax = given});
  given.mutable_data<float>()[0] = 9.0f;
  d.amax().tensor().mutable_data<float>()[1] = 9.0f;
  EXPECT_EQ(d.amax().tensor().to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(QuantDescriptor, RejectsContradictoryFields) {
  const auto error_text = [](QuantDescriptorOptions o) {
    return test::error_message([&] { return QuantDescriptor(o); });
  };
  const BlockSizes blocks{.lengths = {{-1, 16}}};
  EXPECT_THAT(error_text({.axis = 0, .block_sizes = blocks}), HasSubstr("axis and block_sizes are both set"));
  for (const int bits : {-1, 0, 1, 17}) EXPECT_THAT(error_text({.num_bits = bits}), HasSubstr("use 2 to 16"));
  EXPECT_THAT(error_text({.num_bits = {7, 7}}), HasSubstr("is not a float format"));
  EXPECT_THAT(error_text({.num_bits = {5, 2}}), HasSubstr("without dynamic blocks: use (4, 3), (2, 1)"));
  EXPECT_THAT(error_text({.num_bits = {5, 2}, .block_sizes = blocks}), HasSubstr("without dynamic blocks"));
  EXPECT_THAT(error_text({.num_bits = {2, 1}}), HasSubstr("(2, 1) with block_sizes"));
  EXPECT_THAT(error_text({.axis = 64}), HasSubstr("axis 64 is out of range: use -64 to 63"));
  EXPECT_THAT(error_text({.block_sizes = {.lengths = {{-65, 2}}}}), HasSubstr("names axis -65"));
  EXPECT_THAT(error_text({.axis = {1, 1}}), HasSubstr("axis 1 is given twice"));
  EXPECT_THAT(error_text({.amax = -1.0}), HasSubstr("finite and not negative"));
  EXPECT_THAT(error_text({.amax = {1.0, NAN}}), HasSubstr("finite and not negative"));
  EXPECT_THAT(error_text({.amax = 1e300}), HasSubstr("finite and not negative"));
  EXPECT_THAT(error_text({.amax = std::vector<float>{}}), HasSubstr("no elements"));
  EXPECT_THAT(error_text({.amax = 1.0, .dynamic = true}), HasSubstr("omit amax or dynamic"));
  EXPECT_THAT(error_text({.learn_amax = true, .dynamic = true}), HasSubstr("choose one"));
  EXPECT_THAT(error_text({.scale_amax = 0.0}), HasSubstr("must be positive"));
  EXPECT_THAT(error_text({.calib_method = "entropie"}), HasSubstr("did you mean 'entropy'"));
  EXPECT_THAT(error_text({.block_sizes = {.lengths = {{-1, 0}}}}), HasSubstr("-1 for the whole axis"));
  EXPECT_THAT(error_text({.block_sizes = {.scale_bits = {{4, 3}}}}), HasSubstr("no axis"));
  EXPECT_THAT(error_text({.name = "\xff"}), HasSubstr("not UTF-8"));
  EXPECT_THAT(error_text({.amax = Tensor::full(Shape(17, 1), 1.0)}), HasSubstr("17 axes"));
}

TEST(QuantDescriptor, RejectsContradictoryBlocks) {
  const auto error_text = [](BlockSizes blocks, QuantDescriptorOptions o = {}) {
    o.block_sizes = std::move(blocks);
    return test::error_message([&] { return QuantDescriptor(o); });
  };
  const BlockSizes mx{.lengths = {{-1, 32}}, .type = BlockType::dynamic, .scale_bits = {{8, 0}}};
  EXPECT_THAT(error_text({.lengths = {{-1, 16}, {-2, 16}}, .type = BlockType::dynamic}),
              HasSubstr("use the last axis only"));
  for (const NumBits bits : {NumBits(5, 2), NumBits(4), NumBits(0)})
    EXPECT_THAT(error_text({.lengths = {{-1, 16}}, .scale_bits = bits}),
                HasSubstr("use (4, 3), (8, 0) or 8"));
  EXPECT_THAT(error_text({.lengths = {{-1, 16}}, .type = BlockType::dynamic, .scale_bits = 8}),
              HasSubstr("or static blocks"));
  EXPECT_THAT(error_text({.lengths = {{-1, 16}}, .scale_block_sizes = {{-1, 8}}}),
              HasSubstr("without scale_bits"));
  EXPECT_THAT(error_text(mx, {.amax = 1.0}), HasSubstr("omit amax"));
  EXPECT_THAT(error_text({.lengths = {{-1, 16}}}, {.learn_amax = true}),
              HasSubstr("omit block_sizes or learn"));
  EXPECT_NO_THROW(QuantDescriptor({.num_bits = {5, 2}, .block_sizes = mx}));
}

TEST(QuantDescriptor, BlocksHaveGranularities) {
  const auto of = [](std::map<int, std::int64_t> lengths, int rank, BlockType type = BlockType::fixed) {
    return QuantDescriptor({.block_sizes = {.lengths = std::move(lengths), .type = type}}).granularity(rank);
  };
  EXPECT_EQ(of({{-1, 16}}, 2), Granularity::blocks({{1, 16}}));
  EXPECT_EQ(of({{-1, 16}}, 2).scale_shape({3, 33}), (Shape{3, 3}));
  EXPECT_EQ(of({{0, 2}, {-1, -1}}, 3).scale_shape({5, 4, 7}), (Shape{3, 4, 1}));
  EXPECT_EQ(of({{-1, -1}}, 3), Granularity::per_axis({0, 1}));
  EXPECT_EQ(of({{-1, -1}, {0, -1}}, 2), Granularity::per_tensor());
  EXPECT_EQ(of({{1, 4}}, 2, BlockType::dynamic), Granularity::blocks({{1, 4}}));
  EXPECT_THAT(test::error_message([&] {
                return of({{1, 4}}, 3, BlockType::dynamic);
              }),
              HasSubstr("use the last axis"));
  EXPECT_THAT(test::error_message([&] { return of({{1, 4}, {-1, 4}}, 2); }), HasSubstr("gives axis 1 twice"));
  EXPECT_THROW((void)of({{3, 4}}, 2), ArgumentError);
}

TEST(QuantDescriptor, AxesAreCheckedAtFirstUse) {
  const QuantDescriptor d({.axis = 3});
  EXPECT_EQ(d.granularity(4), Granularity::per_axis(3));
  EXPECT_THROW((void)d.granularity(2), ArgumentError);
  EXPECT_THAT(test::error_message([] {
                return QuantDescriptor({.axis = {0, -2}}).granularity(2);
              }),
              HasSubstr("given twice"));
}

TEST(QuantDescriptor, KeepsEveryFieldOfBlocks) {
  const QuantDescriptor d({.num_bits = {2, 1},
                           .block_sizes = {.lengths = {{-1, 16}},
                                           .type = BlockType::dynamic,
                                           .scale_bits = {{4, 3}},
                                           .scale_block_sizes = {{-1, 8}}}});
  EXPECT_EQ(QuantDescriptor::get_block_quant_axes_and_sizes(d.block_sizes()),
            (std::map<int, std::int64_t>{{-1, 16}}));
  EXPECT_EQ(d.to_json(),
            R"({"block_sizes":{"-1":16,"scale_bits":[4,3],"scale_block_sizes":{"-1":8},"type":"dynamic"},)"
            R"("num_bits":[2,1]})");
  EXPECT_EQ(QuantDescriptor::from_json(d.to_json()), d);
  EXPECT_TRUE(d.has_dynamic_blocks());
  EXPECT_TRUE(d.needs_amax());
  EXPECT_EQ(to_string(d),
            "QuantDescriptor((2, 1)bit fake block[-1]=16 dynamic scale_bits=(4, 3) scale_block[-1]=8 "
            "calib_method=max)");
}

TEST(QuantDescriptor, InvalidJsonNamesTheKeyAndTheRemedy) {
  const auto error_text = [](const char* text) {
    return test::error_message([&] { return QuantDescriptor::from_json(text); });
  };
  EXPECT_THAT(error_text(R"({"num_bit": 8})"),
              HasSubstr("'num_bit' is not a field of a descriptor: did you mean 'num_bits'"));
  EXPECT_THAT(error_text(R"({"num_bits": "8"})"), HasSubstr("num_bits is \"8\""));
  EXPECT_THAT(error_text(R"({"num_bits": 8.5})"), HasSubstr("num_bits is 8.5"));
  EXPECT_THAT(error_text(R"({"scale_amax": 1e999})"), HasSubstr("what JSON cannot hold"));
  EXPECT_THAT(error_text(R"({"num_bits": 99999999999999999999})"), HasSubstr("num_bits"));
  EXPECT_THAT(error_text(R"({"axis": [0, "1"]})"), HasSubstr("axis"));
  EXPECT_THAT(error_text(R"({"amax": [[1], [1, 2]]})"), HasSubstr("lists of equal length"));
  EXPECT_THAT(error_text(R"({"amax": [1, [2]]})"), HasSubstr("lists of equal length"));
  EXPECT_THAT(error_text(R"({"amax": "1"})"), HasSubstr("amax"));
  EXPECT_THAT(error_text(R"({"fake_quant": 1})"), HasSubstr("true or false"));
  EXPECT_THAT(error_text(R"({"block_sizes": {"x": 1}})"), HasSubstr("an axis with a length"));
  EXPECT_THAT(error_text(R"({"block_sizes": {"-1": 16, "type": "static?"}})"),
              HasSubstr("\"static\" or \"dynamic\""));
  EXPECT_THAT(error_text("[1]"), HasSubstr("an object"));
  EXPECT_THAT(error_text("{\"axis\": "), HasSubstr("not JSON at byte"));
  EXPECT_EQ(QuantDescriptor::from_json(R"({"axis": null, "amax": null, "name": null, "scale_amax": null})"),
            QuantDescriptor());
}

template <class T>
T pick(std::mt19937& random, std::initializer_list<T> values) {
  return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
}

BlockSizes random_blocks(std::mt19937& random) {
  BlockSizes out;
  const auto length = [&] { return pick<std::int64_t>(random, {-1, 1, 16, 128, std::int64_t{1} << 40}); };
  out.lengths[static_cast<int>(random() % 7) - 3] = length();
  out.type = pick(random, {BlockType::fixed, BlockType::dynamic});
  if (out.type == BlockType::fixed && random() % 2 == 0) out.lengths[-1] = length();
  if (random() % 4 != 0) out.scale_bits = pick<NumBits>(random, {{4, 3}, {8, 0}});
  if (out.type == BlockType::fixed && random() % 4 == 0) out.scale_bits = 8;
  if (out.scale_bits && random() % 2 == 0) out.scale_block_sizes = {{-1, length()}, {0, length()}};
  return out;
}

NumBits random_bits(std::mt19937& random, const BlockSizes& blocks) {
  if (random() % 2 == 0) return 2 + static_cast<int>(random() % 15);
  if (blocks.empty()) return {4, 3};
  if (blocks.type == BlockType::fixed) return pick<NumBits>(random, {{4, 3}, {2, 1}});
  return pick<NumBits>(random, {{4, 3}, {5, 2}, {3, 2}, {2, 3}, {2, 1}});
}

Amax random_amax(std::mt19937& random) {
  const auto number = [&] { return std::uniform_real_distribution<double>(1e-30, 1e6)(random); };
  switch (random() % 4) {
    case 0:
      return number();
    case 1:
      return {number(), 0.0, number()};
    case 2:
      return Tensor::from({static_cast<float>(number()), 0x1p-149f, 3.4e38f, 0.1f}, {2, 1, 2});
    default:
      return {};
  }
}

QuantDescriptorOptions random_options(std::mt19937& random) {
  const auto coin = [&] { return (random() & 1u) != 0; };
  QuantDescriptorOptions o;
  if (coin())
    o.block_sizes = random_blocks(random);
  else
    o.axis = pick<Axes>(random, {{}, 2, -3, {0, -1, 2}});
  o.num_bits = random_bits(random, o.block_sizes);
  if (coin()) o.name = "layer\"\\\n\u00e4" + std::to_string(random());
  o.fake_quant = coin();
  o.dynamic = random() % 4 == 0;
  const bool global = o.block_sizes.scale_bits == NumBits(4, 3);
  const bool whole = !o.block_sizes.empty() && o.block_sizes.lengths.begin()->second == -1;
  if (!o.dynamic && (o.block_sizes.type == BlockType::fixed || global || whole)) o.amax = random_amax(random);
  o.learn_amax = !o.dynamic && o.block_sizes.empty() && coin();
  if (coin()) o.scale_amax = std::uniform_real_distribution<double>(1e-30, 1e6)(random);
  o.calib_method = QuantDescriptor::calib_methods()[random() % QuantDescriptor::calib_methods().size()];
  o.is_unsigned = coin();
  o.narrow_range = coin();
  return o;
}

TEST(QuantDescriptor, RoundTripsExactly) {
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    const QuantDescriptor d(random_options(random));
    ASSERT_EQ(QuantDescriptor::from_dict(d.dict()), d) << d.to_json();
    ASSERT_EQ(QuantDescriptor::from_json(d.to_json()), d) << d.to_json();
    ASSERT_EQ(QuantDescriptor::from_json(d.to_json()).to_json(), d.to_json());
  }
}

TEST(QuantDescriptor, EqualityComparesEveryField) {
  const QuantDescriptor base;
  for (const char* text : {R"({"num_bits":4})", R"({"name":"a"})", R"({"fake_quant":false})", R"({"axis":0})",
                           R"({"block_sizes":{"-1":2}})", R"({"amax":1.0})", R"({"learn_amax":true})",
                           R"({"scale_amax":2.0})", R"({"calib_method":"mse"})", R"({"unsigned":true})",
                           R"({"narrow_range":true})", R"({"dynamic":true})"}) {
    EXPECT_NE(QuantDescriptor::from_json(text), base) << text;
    EXPECT_EQ(QuantDescriptor::from_json(text).to_json(), text);
  }
  EXPECT_NE(QuantDescriptor({.amax = 1.0}), QuantDescriptor({.amax = {1.0}}));
}

TEST(QuantDescriptor, Prints) {
  std::ostringstream out;
  out << QuantDescriptor({.num_bits = 4, .name = "fc", .axis = 0, .narrow_range = true}) << "\n"
      << QuantDescriptor({.num_bits = {4, 3}, .fake_quant = false, .amax = {1.0, 2.5}, .is_unsigned = true});
  EXPECT_EQ(out.str(),
            "fc: (4bit narrow fake axis=0 calib_method=max)\n"
            "QuantDescriptor(unsigned (4, 3)bit real per-tensor amax=[1, 2.5](2) calib_method=max)");
}

}  // namespace
}  // namespace fq::descriptor_test
