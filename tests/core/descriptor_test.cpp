#include "fakequant/core/descriptor.h"

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"

namespace fq {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    (void)f();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

TEST(QuantDescriptor, DefaultsAreTheReferences) {
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

TEST(QuantDescriptor, AmaxDecidesTheGranularity) {
  EXPECT_TRUE(QuantDescriptor({.axis = 0, .amax = 1.5}).granularity(2).is_per_tensor());
  EXPECT_EQ(QuantDescriptor({.axis = 0, .amax = {1.0, 2.0}}).granularity(4), Granularity::per_axis(0));
  EXPECT_EQ(QuantDescriptor({.amax = {1.0, 2.0}}).granularity(2), Granularity::per_axis(1));
  const Tensor kept = Tensor::from({1.0f, 2.0f, 3.0f}, {3, 1, 1});
  EXPECT_EQ(QuantDescriptor({.amax = kept}).granularity(4), Granularity::per_axis(1));
  EXPECT_THAT(error_of([&] { return QuantDescriptor({.amax = kept}).granularity(2); }),
              HasSubstr("more axes"));
}

TEST(QuantDescriptor, AmaxIsACopy) {
  Tensor given = Tensor::from({1.0f, 2.0f});
  const QuantDescriptor d({.amax = given});
  given.mutable_data<float>()[0] = 9.0f;
  d.amax().tensor().mutable_data<float>()[1] = 9.0f;
  EXPECT_EQ(d.amax().tensor().to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(QuantDescriptor, RefusesWhatContradictsItself) {
  const auto refused = [](QuantDescriptorOptions o) { return error_of([&] { return QuantDescriptor(o); }); };
  const BlockSizes blocks{.lengths = {{-1, 16}}};
  EXPECT_THAT(refused({.axis = 0, .block_sizes = blocks}), HasSubstr("axis and block_sizes are both given"));
  for (const int bits : {-1, 0, 1, 17}) EXPECT_THAT(refused({.num_bits = bits}), HasSubstr("use 2 to 16"));
  EXPECT_THAT(refused({.num_bits = {7, 7}}), HasSubstr("is not a float format"));
  EXPECT_THAT(refused({.num_bits = {5, 2}}), HasSubstr("use (4, 3), an integer, or dynamic block_sizes"));
  EXPECT_THAT(refused({.axis = {1, 1}}), HasSubstr("axis 1 is given twice"));
  EXPECT_THAT(refused({.amax = -1.0}), HasSubstr("finite and not negative"));
  EXPECT_THAT(refused({.amax = {1.0, NAN}}), HasSubstr("finite and not negative"));
  EXPECT_THAT(refused({.amax = 1e300}), HasSubstr("finite and not negative"));
  EXPECT_THAT(refused({.amax = std::vector<float>{}}), HasSubstr("no elements"));
  EXPECT_THAT(refused({.amax = 1.0, .dynamic = true}), HasSubstr("leave amax or dynamic out"));
  EXPECT_THAT(refused({.learn_amax = true, .dynamic = true}), HasSubstr("choose one"));
  EXPECT_THAT(refused({.scale_amax = 0.0}), HasSubstr("must be positive"));
  EXPECT_THAT(refused({.calib_method = "entropie"}), HasSubstr("did you mean 'entropy'"));
  EXPECT_THAT(refused({.block_sizes = {.lengths = {{-1, 0}}}}), HasSubstr("-1 for the whole axis"));
  EXPECT_THAT(refused({.block_sizes = {.scale_bits = {{4, 3}}}}), HasSubstr("no axis"));
}

TEST(QuantDescriptor, AxesAreCheckedAtFirstUse) {
  const QuantDescriptor d({.axis = 3});
  EXPECT_EQ(d.granularity(4), Granularity::per_axis(3));
  EXPECT_THROW((void)d.granularity(2), ArgumentError);
  EXPECT_THAT(error_of([] {
                return QuantDescriptor({.axis = {0, -2}}).granularity(2);
              }),
              HasSubstr("given twice"));
}

TEST(QuantDescriptor, KeepsBlocksAndRefusesToApplyThem) {
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
  EXPECT_THAT(error_of([&] { return d.granularity(2); }),
              HasSubstr("block quantization is not available in this version: use per-tensor or per-axis"));
}

TEST(QuantDescriptor, BadJsonNamesTheKeyAndTheWayOut) {
  const auto refused = [](const char* text) {
    return error_of([&] { return QuantDescriptor::from_json(text); });
  };
  EXPECT_THAT(refused(R"({"num_bit": 8})"),
              HasSubstr("'num_bit' is not a field of a descriptor: did you mean 'num_bits'"));
  EXPECT_THAT(refused(R"({"num_bits": "8"})"), HasSubstr("num_bits is \"8\""));
  EXPECT_THAT(refused(R"({"num_bits": 8.5})"), HasSubstr("num_bits is 8.5"));
  EXPECT_THAT(refused(R"({"num_bits": 99999999999999999999})"), HasSubstr("num_bits"));
  EXPECT_THAT(refused(R"({"axis": [0, "1"]})"), HasSubstr("axis"));
  EXPECT_THAT(refused(R"({"amax": [[1], [1, 2]]})"), HasSubstr("lists of equal length"));
  EXPECT_THAT(refused(R"({"amax": [1, [2]]})"), HasSubstr("lists of equal length"));
  EXPECT_THAT(refused(R"({"amax": "1"})"), HasSubstr("amax"));
  EXPECT_THAT(refused(R"({"fake_quant": 1})"), HasSubstr("true or false"));
  EXPECT_THAT(refused(R"({"block_sizes": {"x": 1}})"), HasSubstr("an axis with a length"));
  EXPECT_THAT(refused(R"({"block_sizes": {"-1": 16, "type": "static?"}})"),
              HasSubstr("\"static\" or \"dynamic\""));
  EXPECT_THAT(refused("[1]"), HasSubstr("an object"));
  EXPECT_THAT(refused("{\"axis\": "), HasSubstr("not JSON at byte"));
  EXPECT_EQ(QuantDescriptor::from_json(R"({"axis": null, "amax": null, "name": null, "scale_amax": null})"),
            QuantDescriptor());
}

QuantDescriptorOptions random_options(std::mt19937& random) {
  const auto coin = [&] { return (random() & 1u) != 0; };
  const auto number = [&] { return std::uniform_real_distribution<double>(1e-30, 1e6)(random); };
  QuantDescriptorOptions o;
  o.num_bits = coin() ? NumBits(2 + static_cast<int>(random() % 15)) : NumBits(4, 3);
  if (coin()) o.name = "layer\"\\\n" + std::to_string(random());
  o.fake_quant = coin();
  switch (random() % 4) {
    case 0:
      o.axis = static_cast<int>(random() % 7) - 3;
      break;
    case 1:
      o.axis = {0, -1, 2};
      break;
    case 2:
      o.block_sizes = {.lengths = {{-1, 16}, {-2, coin() ? -1 : 8}}};
      break;
    default:
      break;
  }
  if (!o.block_sizes.empty() && coin()) o.block_sizes.scale_bits = coin() ? NumBits(8, 0) : NumBits(4, 3);
  if (!o.block_sizes.empty() && coin()) o.block_sizes.type = BlockType::dynamic;
  switch (random() % 5) {
    case 0:
      o.amax = number();
      break;
    case 1:
      o.amax = {number(), 0.0, number()};
      break;
    case 2:
      o.amax = Tensor::from({static_cast<float>(number()), 0x1p-149f, 3.4e38f, 0.1f}, {2, 1, 2});
      break;
    case 3:
      o.dynamic = true;
      break;
    default:
      break;
  }
  o.learn_amax = !o.dynamic && coin();
  if (coin()) o.scale_amax = number();
  o.calib_method = QuantDescriptor::calib_methods()[random() % QuantDescriptor::calib_methods().size()];
  o.is_unsigned = coin();
  o.narrow_range = coin();
  return o;
}

TEST(QuantDescriptor, RoundTripsExactly) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const QuantDescriptor d(random_options(random));
    ASSERT_EQ(QuantDescriptor::from_dict(d.dict()), d) << d.to_json();
    ASSERT_EQ(QuantDescriptor::from_json(d.to_json()), d) << d.to_json();
    ASSERT_EQ(QuantDescriptor::from_json(d.to_json()).to_json(), d.to_json());
  }
}

TEST(QuantDescriptor, EveryFieldCounts) {
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
}  // namespace fq
