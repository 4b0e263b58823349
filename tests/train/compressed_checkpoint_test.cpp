// Checkpoints of weights that are codes.

#include <filesystem>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/loop/checkpoint.h"
#include "train/loop_run.h"

namespace fq::compressed_checkpoint_test {
namespace {

using test::Folder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::shared_ptr<Module> calibrated(const std::string& preset) {
  auto model = test::small_network(false, 0);
  quantize(*model, QuantConfig::preset(preset), {1, 1, 8, 8});
  DataLoader images(test::quadrants(32, 1), test::sequential_options());
  calibrate(*model, images);
  return model;
}

Tensor run_model(Module& model) {
  DataLoader data(test::quadrants(40, 2), test::sequential_options());
  return predict(model, data);
}

Tensor model_weight(const Module& model, const std::string& name) {
  for (const auto& [known, parameter] : model.named_parameters())
    if (known == name) return parameter.tensor();
  return {};
}

TEST(CompressedCheckpoint, RoundTripsEveryPresetBitwise) {
  const Folder folder;
  for (const auto& preset : QuantConfig::preset_names()) {
    if (QuantConfig::preset(preset).target != Target::ort) continue;  // of linear layers alone
    auto model = calibrated(preset);
    const Tensor before = run_model(*model);
    compress(*model);
    const std::string path = folder.file("c.h5");
    save_checkpoint(path, model_state(*model, nullptr));
    auto loaded = calibrated(preset);
    load_model_state(*loaded, load_checkpoint(path), path);
    EXPECT_TRUE(bitwise_equal(run_model(*loaded), before)) << preset;
    EXPECT_TRUE(bitwise_equal(model_weight(*loaded, "fc.weight"), model_weight(*model, "fc.weight")))
        << preset;
    EXPECT_TRUE(is_compressed(*loaded)) << preset;
  }
}

TEST(CompressedCheckpoint, FileSizeMatchesTheCodes) {
  const Folder folder;
  const auto bytes = [&](const std::string& preset, bool compressed) {
    auto model = std::make_shared<Sequential>();
    model->add("fc", std::make_shared<Linear>(1024, 1024));
    quantize(*model, QuantConfig::preset(preset), {1, 1024});
    for (auto& q : named_quantizers(*model))
      if (q.quantizer->enabled() && q.quantizer->descriptor().needs_amax())
        q.quantizer->set_amax(Tensor::scalar(0.03));
    if (compressed) compress(*model);
    save_checkpoint(folder.file("c.h5"), model_state(*model, nullptr));
    return static_cast<std::int64_t>(std::filesystem::file_size(folder.file("c.h5")));
  };
  constexpr std::int64_t elements = 1024 * 1024, structure = 20 << 10;
  EXPECT_GT(bytes("int8", false), 4 * elements);
  EXPECT_LT(bytes("int8", true), elements + structure);
  EXPECT_LT(bytes("w4a8", true), elements / 2 + structure);
  EXPECT_LT(bytes("nvfp4", true), elements / 2 + elements / 16 + structure);
  EXPECT_LT(bytes("mxfp4", true), elements / 2 + elements / 32 + structure);
}

TEST(CompressedCheckpoint, LoadsFloatsAndCodesInterchangeably) {
  auto floats = calibrated("w4a4"), codes = calibrated("w4a4");
  const Tensor expected = run_model(*codes);
  compress(*codes);
  const StateDict float_state = model_state(*floats, nullptr), code_state = model_state(*codes, nullptr);
  auto model = calibrated("w4a4");
  for (const StateDict* state : {&code_state, &float_state, &code_state}) {
    load_model_state(*model, *state, "c.h5");
    EXPECT_EQ(is_compressed(*model), state == &code_state);
    EXPECT_TRUE(bitwise_equal(run_model(*model), expected));
  }
  compress(*floats);
  EXPECT_TRUE(bitwise_equal(model_state(*floats, nullptr), model_state(*model, nullptr)));
}

TEST(CompressedCheckpoint, RequiresAQuantizedNetwork) {
  auto model = calibrated("int8");
  compress(*model);
  auto other = test::small_network(false, 0);
  EXPECT_THROW(load_model_state(*other, model_state(*model, nullptr), "c.h5"), FileError);
}

/// Returns the reader's message for a changed state.
template <class F>
std::string error_text(const std::string& preset, F&& change) {
  auto model = calibrated(preset), other = calibrated(preset);
  compress(*model);
  StateDict state = model_state(*model, nullptr);
  change(state);
  try {
    load_model_state(*other, state, "some.h5");
  } catch (const FileError& error) {
    EXPECT_EQ(error.path(), "some.h5");
    return error.what();
  }
  return "not refused";
}

Tensor make_bytes(const Shape& shape, DType dtype, std::uint8_t byte) {
  Tensor out = Tensor::zeros(shape, dtype);
  std::fill_n(static_cast<std::uint8_t*>(out.mutable_raw()), out.nbytes(), byte);
  return out;
}

TEST(CompressedCheckpoint, RejectsInvalidCodesByName) {
  const std::string weight = "parameters/fc.weight", scales = "quantizers/fc.weight_quantizer/weight_scale";
  const auto put = [](const std::string& name, const Tensor& value) {
    return [=](StateDict& state) { state.set(name, value); };
  };
  EXPECT_THAT(error_text("w4a4", put(weight, make_bytes({4, 96}, DType::i8, 1))),
              HasSubstr("codes of int4 narrow are kept as i4 (in some.h5, parameters/fc.weight)"));
  EXPECT_THAT(error_text("w4a4", put(weight, make_bytes({4, 95}, DType::i4, 0))),
              HasSubstr("the weight of 'fc.weight_quantizer' is [4, 96], the new one [4, 95]"));
  EXPECT_THAT(error_text("int8", put(weight, make_bytes({4, 96}, DType::i8, 0x80))),
              HasSubstr("a code of -128"));
  EXPECT_THAT(error_text("int8", put("parameters/fc.bias", make_bytes({4}, DType::i8, 1))),
              HasSubstr("parameters/fc.bias is i8 [4] there, f32 [4] here"));
  EXPECT_THAT(error_text("int8", put(weight, Tensor::zeros({4, 96}, DType::f64))),
              HasSubstr("is f64 [4, 96] there, f32 [4, 96] here"));
  EXPECT_THAT(error_text("nvfp4", put(scales, make_bytes({7}, DType::f8_e4m3, 0x38))),
              HasSubstr("has 7 scales, its weight [4, 96] has 24 blocks"));
  EXPECT_THAT(error_text("nvfp4", put(scales, make_bytes({24}, DType::f8_e4m3, 0))),
              HasSubstr("must be finite"));
  EXPECT_THAT(error_text("nvfp4", put(scales, make_bytes({24}, DType::i32, 0))), HasSubstr("use f32"));
  EXPECT_THAT(error_text("nvfp4", [&](StateDict& state) { state.set_attribute(scales + "_unit", "much"); }),
              HasSubstr("it must be a number"));
  EXPECT_THAT(error_text("int8",
                         [&](StateDict& state) {
                           auto fields = state.attribute("quantizers/fc.weight_quantizer/descriptor");
                           fields["num_bits"] = 4;
                           state.set_attribute("quantizers/fc.weight_quantizer/descriptor", fields);
                         }),
              HasSubstr("codes of int4 narrow are kept as i4"));
}

TEST(CompressedCheckpoint, NamesMissingScales) {
  auto model = calibrated("nvfp4"), other = calibrated("nvfp4");
  compress(*model);
  const StateDict all = model_state(*model, nullptr);
  StateDict state;
  for (const auto& [name, value] : all.attributes().items()) state.set_attribute(name, value);
  for (const auto& [name, tensor] : all.tensors())
    if (!name.ends_with("weight_scale")) state.set(name, tensor);
  EXPECT_THAT([&] { load_model_state(*other, state, "some.h5"); },
              ThrowsMessage<FileError>(HasSubstr("there are no scales with the codes of its weight")));
}

TEST(CompressedCheckpoint, TrainingAndCalibrationRejectCodes) {
  auto model = calibrated("int8");
  compress(*model);
  DataLoader images(test::quadrants(32, 1), test::sequential_options());
  EXPECT_THAT([&] { (void)calibrate(*model, images); },
              ThrowsMessage<ArgumentError>(HasSubstr("[calibrate] 'conv.weight' holds codes")));
  const auto data = std::make_shared<DataLoader>(test::quadrants(32, 1), test::sequential_options());
  EXPECT_THAT([&] { Trainer(model, data, {}); },
              ThrowsMessage<ArgumentError>(HasSubstr("[train] 'conv.weight' holds codes")));
}

}  // namespace
}  // namespace fq::compressed_checkpoint_test
