#pragma once

/// What differs between oneDNN 2 and 3: how descriptors of primitives are built. Included by engine sources
/// only.

#include <dnnl.hpp>

namespace fq::cpu::onednn {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

/// Geometry in oneDNN's terms: a dilation of 0 is none.
struct Window {
  Dims strides, dilates, before, after;
};

constexpr auto direct = dnnl::algorithm::convolution_direct;  // no other algorithm is exact on codes

#if DNNL_VERSION_MAJOR >= 3

inline auto matmul(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& a, const Desc& b,
                   const Desc& c) {
  return dnnl::matmul::primitive_desc(e, a, b, c, attr);
}
inline auto forward(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x, const Desc& w,
                    const Desc& y, const Window& g) {
  return dnnl::convolution_forward::primitive_desc(e, dnnl::prop_kind::forward_training, direct, x, w, y,
                                                   g.strides, g.dilates, g.before, g.after, attr);
}
inline auto backward_data(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& dx,
                          const Desc& w, const Desc& dy, const Window& g,
                          const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(e, direct, dx, w, dy, g.strides, g.dilates, g.before,
                                                         g.after, hint, attr);
}
inline auto backward_weights(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x,
                             const Desc& dw, const Desc& dy, const Window& g,
                             const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(e, direct, x, dw, dy, g.strides, g.dilates,
                                                            g.before, g.after, hint, attr);
}

#else

inline auto matmul(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& a, const Desc& b,
                   const Desc& c) {
  return dnnl::matmul::primitive_desc({a, b, c}, attr, e);
}
inline auto forward(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x, const Desc& w,
                    const Desc& y, const Window& g) {
  return dnnl::convolution_forward::primitive_desc(
      {dnnl::prop_kind::forward_training, direct, x, w, y, g.strides, g.dilates, g.before, g.after}, attr, e);
}
inline auto backward_data(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& dx,
                          const Desc& w, const Desc& dy, const Window& g,
                          const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(
      {direct, dx, w, dy, g.strides, g.dilates, g.before, g.after}, attr, e, hint);
}
inline auto backward_weights(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x,
                             const Desc& dw, const Desc& dy, const Window& g,
                             const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(
      {direct, x, dw, dy, g.strides, g.dilates, g.before, g.after}, attr, e, hint);
}

#endif

}  // namespace fq::cpu::onednn
