#include <cstring>
#include <memory>
#include <string_view>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/kernels.h"
#include "fakequant/bench/row.h"

namespace fq::bench {
namespace {

struct Size {
  const char* name;
  std::int64_t elements;
};
constexpr Size kL2{"l2", 256 * 1024 / 4}, kDram{"dram", 256 * 1024 * 1024 / 4};

using Make = Forward (*)(std::int64_t elements);

Row kernel_row(std::string_view what, const Size& size, std::string_view peer) {
  Row row;
  row.name = std::string("kernel.").append(what).append(".").append(size.name).append("/").append(peer);
  row.unit = "ns/element";
  row.clock = Clock::cpu;
  row.python = peer != "memcpy";
  return row;
}

Work kernel_work(std::function<void()> ours, const Size& size) {
  Work work;
  work.ours.run = std::move(ours);
  work.units_per_second = 1e9 / static_cast<double>(size.elements);
  return work;
}

/// Against memcpy of the same input to an output of the same size; equal to the scalar formulas first.
Row memcpy_row(std::string_view what, const Size& size, Make make) {
  Row row = kernel_row(what, size, "memcpy");
  row.make = [=](const Settings&) {
    auto kernel = std::make_shared<Forward>(make(size.elements));
    put_specials(kernel->x, kAmax);
    Work work = kernel_work([kernel] { kernel->run(*kernel); }, size);
    work.theirs.run = [kernel, copy = Tensor::zeros(kernel->x.shape())]() mutable {
      std::memcpy(copy.mutable_raw(), kernel->x.raw(), static_cast<std::size_t>(copy.nbytes()));
    };
    work.check = [kernel] {
      kernel->run(*kernel);
      return kernel->check(*kernel);
    };
    return work;
  };
  return row;
}

/// How far a Python peer's y is meant to equal ours. torch has its own answer to a NaN and no negative zero.
enum class Equal { bits, values };

/// Against a Python peer that leaves its y; NaN and the like are in the data where bits are to be equal.
Row python_row(std::string_view what, const Size& size, std::string_view peer, Make make, Equal meant) {
  Row row = kernel_row(what, size, peer);
  row.make = [=](const Settings& settings) {
    auto kernel = std::make_shared<Forward>(make(size.elements));
    if (meant == Equal::bits) put_specials(kernel->x, kAmax);
    write_array(settings.exchange, "x", kernel->x);
    write_array(settings.exchange, "amax", kernel->amax);
    Work work = kernel_work([kernel] { kernel->run(*kernel); }, size);
    work.check = [=, folder = settings.exchange] {
      kernel->run(*kernel);
      return first_difference("y", kernel->y, read_array(folder, "y", kernel->y.shape()),
                              meant == Equal::bits ? Zeros::differ : Zeros::equal);
    };
    return work;
  };
  return row;
}

struct Backward {
  Tensor dy, dx;
};

/// Forward and clipped backward against the same loop compiled by torch.compile.
Row forward_backward(const Size& size) {
  Row row = kernel_row("fake_quant_int8_fwd_bwd", size, "inductor");
  row.make = [=](const Settings& settings) {
    auto kernel = std::make_shared<Forward>(int8(size.elements));
    auto gradient =
        std::make_shared<Backward>(Backward{bell({size.elements}, 2), Tensor::zeros({size.elements})});
    put_specials(kernel->x, kAmax);
    write_array(settings.exchange, "x", kernel->x);
    write_array(settings.exchange, "amax", kernel->amax);
    write_array(settings.exchange, "dy", gradient->dy);
    const auto both = [kernel, gradient] {
      kernel->run(*kernel);
      masked_gradient(gradient->dy, kernel->mask, gradient->dx);
    };
    Work work = kernel_work(both, size);
    work.check = [=, folder = settings.exchange] {
      both();
      const auto y = first_difference("y", kernel->y, read_array(folder, "y", kernel->y.shape()));
      return y.empty() ? first_difference("dx", gradient->dx, read_array(folder, "dx", gradient->dx.shape()))
                       : y;
    };
    return work;
  };
  return row;
}

/// dx = dy where the mask has a bit, +0 elsewhere.
Row backward_mask(const Size& size) {
  Row row = kernel_row("backward_mask", size, "torch");
  row.make = [=](const Settings& settings) {
    auto kernel = std::make_shared<Forward>(int8(size.elements));
    kernel->run(*kernel);
    auto gradient =
        std::make_shared<Backward>(Backward{bell({size.elements}, 2), Tensor::zeros({size.elements})});
    write_array(settings.exchange, "mask", kernel->mask);
    write_array(settings.exchange, "dy", gradient->dy);
    const auto run = [mask = kernel->mask, gradient] { masked_gradient(gradient->dy, mask, gradient->dx); };
    Work work = kernel_work(run, size);
    work.check = [=, folder = settings.exchange] {
      run();
      return first_difference("dx", gradient->dx, read_array(folder, "dx", gradient->dx.shape()));
    };
    return work;
  };
  return row;
}

}  // namespace

std::vector<Row> kernel_rows() {
  return {
      memcpy_row("fake_quant_int8", kL2, int8),
      memcpy_row("fake_quant_int8", kDram, int8),
      memcpy_row("fake_quant_e4m3", kL2, e4m3),
      memcpy_row("fake_quant_e4m3", kDram, e4m3),
      memcpy_row("fake_quant_int8_axis0", kDram, int8_axis0),
      memcpy_row("fake_quant_int8_lastaxis", kDram, int8_lastaxis),
      memcpy_row("fake_quant_nvfp4", kDram, nvfp4),
      memcpy_row("fake_quant_mxfp8", kDram, mxfp8),
      memcpy_row("fake_quant_int4_block128", kDram, int4_block128),
      python_row("fake_quant_int8", kL2, "torch", int8_power_of_two, Equal::values),
      python_row("fake_quant_int8", kDram, "torch", int8_power_of_two, Equal::values),
      python_row("fake_quant_int8", kL2, "modelopt", int8, Equal::bits),
      python_row("fake_quant_int8", kDram, "modelopt", int8, Equal::bits),
      python_row("fake_quant_e4m3", kDram, "modelopt", e4m3, Equal::bits),
      forward_backward(kL2),
      forward_backward(kDram),
      backward_mask(kDram),
  };
}

}  // namespace fq::bench
