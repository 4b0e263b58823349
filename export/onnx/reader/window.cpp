#include "fakequant/export/onnx/reader/window.h"

#include <algorithm>

namespace fq::detail {
namespace {

void pads_of_attribute(const NodeReader& node, Window& window) {
  const std::size_t axes = window.kernel.size();
  const auto pads = node.sizes("pads", 2 * axes, 0, 0);
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes);
  window.before.assign(pads.begin(), middle);
  window.after.assign(middle, pads.end());
}

/// As many outputs as strides fit into the image.
void pads_of_same(Window& window, const std::vector<std::int64_t>& image, bool upper) {
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    const auto outputs = (image[i] + window.stride[i] - 1) / window.stride[i];
    const auto total =
        std::max<std::int64_t>(0, (outputs - 1) * window.stride[i] + window.extent(i) - image[i]);
    window.before.push_back(upper ? total / 2 : total - total / 2);
    window.after.push_back(total - window.before.back());
  }
}

}  // namespace

Window read_window(const NodeReader& node, std::vector<std::int64_t> kernel,
                   const std::vector<std::int64_t>& image) {
  const std::size_t axes = kernel.size();
  Window window{
      std::move(kernel), node.sizes("strides", axes, 1, 1), node.sizes("dilations", axes, 1, 1), {}, {}};
  const auto mode = node.text("auto_pad", "NOTSET");
  if (mode == "NOTSET" || mode.empty())
    pads_of_attribute(node, window);
  else if (mode == "VALID")
    window.before = window.after = std::vector<std::int64_t>(axes, 0);
  else if (mode == "SAME_UPPER" || mode == "SAME_LOWER")
    pads_of_same(window, image, mode == "SAME_UPPER");
  else
    node.fail("its attribute 'auto_pad' is '{}'", mode);
  return window;
}

NodeOption one_or_list(const std::vector<std::int64_t>& sizes) {
  const bool same = std::ranges::all_of(sizes, [&](std::int64_t size) { return size == sizes[0]; });
  return same ? NodeOption(sizes.at(0)) : NodeOption(sizes);
}

}  // namespace fq::detail
