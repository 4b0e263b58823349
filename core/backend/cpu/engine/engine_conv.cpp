#include <algorithm>
#include <cstring>
#include <optional>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/onednn.h"
#include "fakequant/core/backend/cpu/engine/threads.h"

namespace fq::cpu {
namespace {

using namespace onednn;
using Tag = dnnl::memory::format_tag;

// Activations keep their plain NHWC layout, which costs at most 3 % of a forward convolution. Only weights
// are reordered: they are small.
Desc nhwc(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, Type type) {
  return Desc({n, c, h, w}, type, Tag::nhwc);
}

// Weights in OIHW order if `plain`, else in the order that oneDNN prefers.
Desc weights(const ConvShape& s, Type type, bool plain) {
  if (s.groups == 1) return Desc({s.o, s.c, s.kh, s.kw}, type, plain ? Tag::oihw : Tag::any);
  return Desc({s.groups, s.o / s.groups, s.c / s.groups, s.kh, s.kw}, type, plain ? Tag::goihw : Tag::any);
}

/// Returns the padding after the last pixel, computed from the sizes. With a stride, some padding may never
/// be read.
std::int64_t after(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                   std::int64_t padding, std::int64_t dilation) {
  const std::int64_t reach = (kernel - 1) * dilation + 1;
  if ((in + 2 * padding - reach) / stride + 1 == out) return padding;
  return (out - 1) * stride + reach - in - padding;
}

Window window(const ConvShape& s) {
  return {{s.stride[0], s.stride[1]},
          {s.dilation[0] - 1, s.dilation[1] - 1},
          {s.padding[0], s.padding[1]},
          {after(s.h, s.oh, s.kh, s.stride[0], s.padding[0], s.dilation[0]),
           after(s.w, s.ow, s.kw, s.stride[1], s.padding[1], s.dilation[1])}};
}

auto forward_desc(const ConvShape& s, Type x, Type w, Type y) {
  return forward(engine(), attributes(), nhwc(s.n, s.c, s.h, s.w, x), weights(s, w, false),
                 nhwc(s.n, s.o, s.oh, s.ow, y), window(s));
}

// oneDNN requires a forward descriptor as a hint, with the same types.
auto backward_data_desc(const ConvShape& s, Type type) {
  return backward_data(engine(), attributes(), nhwc(s.n, s.c, s.h, s.w, Type::f32), weights(s, type, false),
                       nhwc(s.n, s.o, s.oh, s.ow, type), window(s), forward_desc(s, type, type, type));
}

/// Returns the number of images per task. It depends only on the sizes: enough tasks for many threads, none
/// too small.
std::int64_t images_a_task(const ConvShape& s) {
  const std::int64_t work = std::max<std::int64_t>(s.oh * s.ow * s.o * (s.c / s.groups) * s.kh * s.kw, 1);
  const std::int64_t worth = (std::int64_t{1} << 20) / work + 1;
  return std::min(s.n, std::max(worth, (s.n + 31) / 32));
}

/// An activation array that is cut into images.
struct Activation {
  int key;
  std::int64_t c, h, w;
  Type type;
  const void* data;

  [[nodiscard]] Desc desc(std::int64_t images) const { return nhwc(images, c, h, w, type); }
  [[nodiscard]] const void* image(std::int64_t i) const {
    return static_cast<const char*>(data) +
           i * c * h * w * static_cast<std::int64_t>(dnnl::memory::data_type_size(type));
  }
};

struct Weights {
  Desc plain;
  const void* data;
};

// A task owns one ImageCall: scratch memory of a primitive must not be shared by threads.
/// Convolution of some images, with the weights in the order that the primitive requires.
class ImageCall {
 public:
  template <class PrimitiveDesc>
  void prepare(const PrimitiveDesc& desc, std::int64_t images, const Weights& w,
               const ImageCall* shared = nullptr) {
    images_ = 0;  // until construction is complete
    call_.emplace(desc);
    w_desc_ = desc.weights_desc();
    // The last task may have fewer images. Its primitive may then require another order of the weights.
    const bool shares = shared != nullptr && shared->w_desc_ == w_desc_;
    if (!shares) own_.emplace(w.plain, w_desc_, w.data);
    w_ = shares ? shared->w_ : own_->data();
    images_ = images;
  }
  [[nodiscard]] std::int64_t images() const { return images_; }
  void run(const Activation& in, const Activation& out, std::int64_t first) const {
    const Desc in_desc = in.desc(images_), out_desc = out.desc(images_);
    call_->run({{in.key, in_desc, in.image(first)},
                {DNNL_ARG_WEIGHTS, w_desc_, w_},
                {out.key, out_desc, out.image(first)}});
  }

 private:
  std::int64_t images_ = 0;
  std::optional<Call> call_;
  Desc w_desc_;
  std::optional<Reordered> own_;
  const void* w_ = nullptr;
};

/// Processes all images in one call, which shares them among threads itself.
template <class PrimitiveDesc>
void convolve_whole(const ConvShape& s, const PrimitiveDesc& desc, const Activation& in, const Weights& w,
                    const Activation& out) {
  ImageCall call;
  call.prepare(desc, s.n, w);
  call.run(in, out, 0);
}

/// Processes images in tasks. `make(shape)` describes the convolution of shape.n images.
template <class Make>
void convolve_images(const char* function, const ConvShape& s, Sharing sharing, const Make& make,
                     const Activation& in, const Weights& w, const Activation& out) {
  // Integer sums have no order, so oneDNN may distribute them as it likes.
  if (sharing == Sharing::by_threads || product_type(in.type) == Type::s32)
    return guarded(function, [&] { convolve_whole(s, make(s), in, w, out); });
  const auto make_desc = [&](std::int64_t images) {
    ConvShape part = s;
    part.n = images;
    return make(part);
  };
  const std::int64_t step = images_a_task(s);
  // Weights are reordered once for all tasks. Like the tasks, this primitive is made on one thread.
  ImageCall whole;
  parallel_tasks<ImageCall>(1, [&](ImageCall&, std::int64_t) {
    guarded(function, [&] { whole.prepare(make_desc(step), step, w); });
  });
  parallel_tasks<ImageCall>((s.n + step - 1) / step, [&](ImageCall& call, std::int64_t task) {
    guarded(function, [&] {
      const std::int64_t images = std::min(step, s.n - task * step);
      if (call.images() != images) call.prepare(make_desc(images), images, w, &whole);
      call.run(in, out, task * step);
    });
  });
}

bool nothing_to_sum(const ConvShape& s, void* out, std::int64_t count) {
  if (count == 0) return true;
  if (s.n * s.c * s.h * s.w * s.o * s.kh * s.kw * s.oh * s.ow != 0) return false;
  // An empty sum is 0. f32 and i32 have the same size and the same zero.
  std::memset(out, 0, static_cast<std::size_t>(count) * 4);
  return true;
}

}  // namespace

void conv_forward(const ConvShape& s, const void* x, DType x_type, const void* w, DType w_type, void* y,
                  Sharing sharing) {
  if (nothing_to_sum(s, y, numel(s.y_shape()))) return;
  const Type tx = onednn_type(x_type), tw = onednn_type(w_type), ty = product_type(tx);
  convolve_images("conv_forward", s, sharing,
                  [&](const ConvShape& part) { return forward_desc(part, tx, tw, ty); },
                  {DNNL_ARG_SRC, s.c, s.h, s.w, tx, x}, {weights(s, tw, true), w},
                  {DNNL_ARG_DST, s.o, s.oh, s.ow, ty, y});
}

void conv_backward_data(const ConvShape& s, const void* dy, const void* w, DType dtype, float* dx,
                        Sharing sharing) {
  if (nothing_to_sum(s, dx, numel(s.x_shape()))) return;
  const Type type = onednn_type(dtype);
  convolve_images("conv_backward_data", s, sharing,
                  [&](const ConvShape& part) { return backward_data_desc(part, type); },
                  {DNNL_ARG_DIFF_DST, s.o, s.oh, s.ow, type, dy}, {weights(s, type, true), w},
                  {DNNL_ARG_DIFF_SRC, s.c, s.h, s.w, Type::f32, dx});
}

void conv_backward_weights(const ConvShape& s, const void* x, const void* dy, DType dtype, float* dw) {
  if (nothing_to_sum(s, dw, numel(s.w_shape()))) return;
  guarded("conv_backward_weights", [&] {
    const Type type = onednn_type(dtype);
    const auto desc =
        backward_weights(engine(), attributes(), nhwc(s.n, s.c, s.h, s.w, type), weights(s, Type::f32, false),
                         nhwc(s.n, s.o, s.oh, s.ow, type), window(s), forward_desc(s, type, type, type));
    const Desc plain = weights(s, Type::f32, true), inner = desc.diff_weights_desc();
    Storage buffer;
    // oneDNN may prefer a blocked order for dw. Reordering dw costs little: it has the size of the weights.
    void* out = dw;
    if (inner != plain) {
      buffer = Storage(static_cast<std::int64_t>(inner.get_size()), Device::cpu());
      out = buffer.mutable_data();
    }
    const Desc x_desc = desc.src_desc(), dy_desc = desc.diff_dst_desc();
    Call(desc).run(
        {{DNNL_ARG_SRC, x_desc, x}, {DNNL_ARG_DIFF_DST, dy_desc, dy}, {DNNL_ARG_DIFF_WEIGHTS, inner, out}});
    if (inner != plain) reorder(inner, plain, out, dw);
  });
}

}  // namespace fq::cpu
