// Ranges that change with the step: no step waits, and every bit is the CPU's.

#include "fakequant/layers/modules/checkpoint.h"
#include "layers/cuda/range_steps.h"

namespace fq::cuda_quantizer_ranges_test {
namespace {

using namespace fq::test;

class CudaQuantizerRanges : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

TEST_F(CudaQuantizerRanges, MatchTheCpuForDynamicRanges) {
  compare("tensor", {.dynamic = true}, inputs(kImages));
  compare("channels last", {.dynamic = true}, inputs(kImages, Layout::channels_last));
  compare("channels", {.axis = 1, .dynamic = true}, inputs(kImages));
  compare("channels of channels last", {.axis = 1, .dynamic = true}, inputs(kImages, Layout::channels_last));
  compare("rows", {.axis = 0, .dynamic = true}, inputs({700, 33}));
  compare("scaled", {.scale_amax = 0.7, .dynamic = true}, inputs(kImages));
  compare("unsigned", {.num_bits = 4, .is_unsigned = true, .dynamic = true}, inputs(kImages));
  compare("E4M3", {.num_bits = {4, 3}, .dynamic = true}, inputs({41, 23}));
  compare("powers of two", {.dynamic = true}, inputs(kImages),
          [](auto& q) { q.update([](QuantParams& s) { s.pow2 = true; }); });
  compare("one element", {.dynamic = true}, inputs({1}));
}

QuantDescriptorOptions blocks(NumBits bits, std::int64_t length, std::optional<NumBits> scale_bits) {
  return {.num_bits = bits,
          .block_sizes = {.lengths = {{-1, length}}, .type = BlockType::dynamic, .scale_bits = scale_bits}};
}

TEST_F(CudaQuantizerRanges, MatchTheCpuForDynamicBlocks) {
  for (const std::int64_t columns : {64, 48, 37, 5}) {  // whole blocks, and a last one of fewer elements
    const auto x = inputs({19, columns});
    compare("NVFP4", blocks({2, 1}, 16, NumBits(4, 3)), x, [](auto& q) { q.set_amax(Tensor::scalar(1.3)); });
    compare("MXFP8", blocks({4, 3}, 32, NumBits(8, 0)), x);
    compare("MXINT8", blocks(8, 32, NumBits(8, 0)), x);
    compare("INT4", blocks(4, 16, {}), x);
  }
  auto scaled = blocks({2, 1}, 16, NumBits(4, 3));
  scaled.scale_amax = 0.8;
  compare("NVFP4, scaled", scaled, inputs({6, 5, 32}), [](auto& q) { q.set_amax(Tensor::scalar(1.3)); });
}

TEST_F(CudaQuantizerRanges, MatchTheCpuForRunningRanges) {
  const auto run = [](auto& q) {
    q.update([](QuantParams& s) {
      s.running = true;
      s.momentum = 0.3;
    });
  };
  const auto from_one = [&](auto& q) {
    q.set_amax(Tensor::scalar(0.9));
    run(q);
  };
  compare("not calibrated", {}, inputs(kImages), run);
  compare("tensor", {}, inputs(kImages), from_one);
  compare("channels", {.axis = 1}, inputs(kImages), run);
  compare("one range for channels", {.axis = 1}, inputs(kImages), from_one);
  compare("scaled", {.scale_amax = 1.1}, inputs(kImages, Layout::channels_last), from_one);
  compare("at once", {}, inputs(kImages), [](auto& q) {
    q.update([](QuantParams& s) {
      s.running = true;
      s.momentum = 1;
    });
  });
  compare("only observed", {}, inputs(kImages), [&](auto& q) {
    run(q);
    q.set_quantizing(false);
  });
}

TEST_F(CudaQuantizerRanges, ReadBackTheUnitOfFourBitScales) {
  const auto run = [](auto& q) {
    q.update([](QuantParams& s) {
      s.running = true;
      s.momentum = 0.3;
    });
  };
  auto dynamic = blocks({2, 1}, 16, NumBits(4, 3)), fixed = dynamic, powers = dynamic;
  fixed.block_sizes.type = powers.block_sizes.type = BlockType::fixed;
  powers.block_sizes.scale_bits = NumBits(8, 0);
  compare("dynamic", dynamic, inputs({19, 37}), run, as_quantized, Waits::once_a_step);
  compare("fixed", fixed, inputs({19, 37}), run, as_quantized, Waits::once_a_step);
  compare("powers of two", powers, inputs({19, 37}), run);
  dynamic.dynamic = true;
  compare("all of it", dynamic, inputs({19, 37}), {}, as_quantized, Waits::once_a_step);
}

TEST_F(CudaQuantizerRanges, MatchTheCpuForLearnedRanges) {
  for (const auto gradient : {AmaxGradient::clip, AmaxGradient::lsq}) {
    const auto from = [gradient](const Tensor& amax) {
      return [=](TensorQuantizer& q) {
        q.update([&](QuantParams& s) { s.amax_gradient = gradient; });
        q.set_amax(amax);
      };
    };
    compare("tensor", {.learn_amax = true}, inputs(kImages), from(Tensor::scalar(0.8)));
    compare("unsigned", {.learn_amax = true, .scale_amax = 1.2, .is_unsigned = true}, inputs(kImages),
            from(Tensor::scalar(0.8)));
    compare("channels", {.axis = 1, .learn_amax = true}, inputs(kImages),
            from(Tensor::from({0.5f, 0.6f, 0.7f, 0.8f, 0.9f})));
    compare("below 0", {.learn_amax = true}, inputs(kImages), [&](TensorQuantizer& q) {
      from(Tensor::scalar(1))(q);
      Variable range = q.range().learned();
      range.mutable_tensor().copy_from(Tensor::scalar(-1));
    });
  }
}

TEST_F(CudaQuantizerRanges, MatchTheCpuInReferenceArithmetic) {
  const auto reference = [](const Preparation& then) {
    return [then](TensorQuantizer& q) {
      q.update([](QuantParams& s) { s.arithmetic = Arithmetic::reference; });
      then(q);
    };
  };
  const auto one = [](TensorQuantizer& q) { q.set_amax(Tensor::scalar(0.9)); };
  const auto run = [](TensorQuantizer& q) {
    q.update([](QuantParams& s) {
      s.running = true;
      s.momentum = 0.3;
    });
  };
  const auto run_halves = [](TensorQuantizer& q) {
    q.set_amax(Tensor::scalar(0.9, DType::f16));
    q.update([](QuantParams& s) {
      s.running = true;
      s.momentum = 0.3;
    });
  };
  const auto often = [&](const std::string& name, const QuantDescriptorOptions& options,
                         const Preparation& setup) {
    compare(name, options, inputs(kImages), reference(setup), as_quantized, Waits::often);
  };
  often("dynamic", {.scale_amax = 0.9, .dynamic = true}, [](TensorQuantizer&) {});
  often("learned", {.learn_amax = true, .scale_amax = 1.2}, one);
  often("running", {.scale_amax = 0.9}, run);
  often("running channels", {.axis = 1}, run);
  often("running in f16", {}, run_halves);
}

TEST_F(CudaQuantizerRanges, MatchTheCpuInACheckpointedBlock) {
  const auto once = [](TensorQuantizer& q, const Variable& x) {
    return checkpoint([&q](const std::vector<Variable>& in) { return q(in[0]).as_float(); }, {x}, {});
  };
  const auto twice = [](TensorQuantizer& q, const Variable& x) {
    return checkpoint([&q](const std::vector<Variable>& in) { return q(q(in[0]).as_float()).as_float(); },
                      {x}, {});
  };
  const auto run = [](auto& q) {
    q.set_amax(Tensor::scalar(0.6));
    q.update([](QuantParams& s) {
      s.running = true;
      s.momentum = 0.2;
    });
  };
  compare("once", {}, inputs(kImages), run, once);
  compare("twice", {}, inputs(kImages), run, twice);
  compare(
      "channels", {.axis = 1}, inputs(kImages),
      [](auto& q) {
        q.update([](QuantParams& s) {
          s.running = true;
          s.momentum = 0.2;
        });
      },
      twice);
}

}  // namespace
}  // namespace fq::cuda_quantizer_ranges_test
