// Ranges changed on a GPU, also by values that are not finite.

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "layers/cuda/range_steps.h"

namespace fq::cuda_range_states_test {
namespace {

using namespace fq::test;

class CudaRangeStates : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

TEST_F(CudaRangeStates, StepsContinueAcrossDevices) {
  TensorQuantizer host, gpu;
  for (auto* q : {&host, &gpu})
    q->update([](QuantParams& s) {
      s.running = true;
      s.momentum = 0.3;
    });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = input(kImages, i);
    (void)host(Variable(x, true));
    (void)gpu(Variable(i % 2 == 0 ? x.to(Device::cuda()) : x, true));
    EXPECT_TRUE(bitwise_equal(gpu.amax(), host.amax())) << i;
    EXPECT_EQ(gpu.amax().device(), i % 2 == 0 ? Device::cuda() : Device::cpu());
  }
  for (auto* q : {&host, &gpu}) q->update([](QuantParams& s) { s.running = false; });
  const Tensor x = input(kImages, 9);
  for (const Device device : {Device::cuda(), Device::cpu()})
    EXPECT_TRUE(bitwise_equal(gpu(Variable(x.to(device))).tensor(), host(Variable(x)).tensor()));
  EXPECT_EQ(gpu.describe(), host.describe());
  EXPECT_TRUE(bitwise_equal(gpu.scale(), host.scale()));
  EXPECT_TRUE(bitwise_equal(export_amax(gpu), export_amax(host)));
}

TEST_F(CudaRangeStates, MoveWithTheirModule) {
  TensorQuantizer q;
  q.update([](QuantParams& s) { s.running = true; });
  q.to(Device::cuda());
  (void)q(Variable(input(kImages, 0).to(Device::cuda()), true));
  EXPECT_EQ(q.amax().device(), Device::cuda());
  q.to(Device::cpu());
  EXPECT_EQ(q.amax().device(), Device::cpu());
}

TEST_F(CudaRangeStates, StatesResumeOnTheOtherDevice) {
  const QuantDescriptor channels({.axis = 1});
  TensorQuantizer host(channels), gpu(channels);
  const auto feed = [](TensorQuantizer& q, Device device, int i) {
    (void)q(Variable(input(kImages, i).to(device), true));
  };
  for (auto* q : {&host, &gpu})
    q->update([](QuantParams& s) {
      s.running = true;
      s.momentum = 0.3;
    });
  for (int i = 0; i < 2; ++i) {
    feed(host, Device::cpu(), i);
    feed(gpu, Device::cuda(), i);
  }
  StateDict saved_here, saved_there;
  host.save(saved_here, "q");
  gpu.save(saved_there, "q");
  EXPECT_TRUE(bitwise_equal(saved_there.at("q/amax"), saved_here.at("q/amax")));
  EXPECT_EQ(saved_there.attribute("q/switches"), saved_here.attribute("q/switches"));
  TensorQuantizer now_there, now_here;
  now_there.load(saved_here, "q");
  now_here.load(saved_there, "q");
  feed(host, Device::cpu(), 2);
  feed(now_here, Device::cpu(), 2);
  feed(now_there, Device::cuda(), 2);
  EXPECT_TRUE(bitwise_equal(now_here.amax(), host.amax()));
  EXPECT_TRUE(bitwise_equal(now_there.amax(), host.amax()));
}

std::string message(const std::function<void()>& run) {
  try {
    run();
  } catch (const NumericError& error) {
    return error.what();
  }
  return "nothing";
}

TEST_F(CudaRangeStates, ReportNonFiniteValuesLikeTheCpu) {
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const bool running : {false, true}) {
      TensorQuantizer q(QuantDescriptor({.dynamic = !running}));
      q.set_name("fc1.input_quantizer");
      q.update([&](QuantParams& s) { s.running = running; });
      Tensor x = input(kImages, 0);
      (void)q(Variable(x, true));
      const Tensor before = running ? q.amax().clone() : Tensor{};
      x.mutable_data<float>()[100] = value;
      const std::string right = message([&] { (void)q(Variable(x, true)); });
      const std::string got = message([&] {
        (void)q(Variable(x.to(Device::cuda()), true));
        synchronize(Device::cuda());
      });
      EXPECT_NE(got.find("'fc1.input_quantizer'"), std::string::npos) << got;
      EXPECT_EQ(got, right);
      EXPECT_TRUE(!running || bitwise_equal(q.amax(), before));
    }
  }
}

}  // namespace
}  // namespace fq::cuda_range_states_test
