#include <algorithm>

#include "fakequant/core/backend/cuda/engine/conv.h"
#include "fakequant/core/backend/cuda/engine/conv_tiles.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

/// Gradient of the weights: sums over pixels of the channels that a tap reads, times dy. A row of a tile is a
/// tap and a channel. A block adds a part of the pixels.
template <int outputs_of_tile>
struct ConvWeightProduct : ConvTile<outputs_of_tile> {
  using Tile = ConvTile<outputs_of_tile>;
  using Tile::outputs, Tile::rows;
  using Warp = typename Tile::Warp;
  static constexpr int chunks = 8;  // numbers in a chunk
  static constexpr int x_chunks = rows / chunks, y_chunks = outputs / chunks;
  static constexpr int stages = rows > 128 ? 2 : 3, stage_pixels = 64;
  // A thread copies the chunks slot, slot + 8, .. of the pixels row, row + 32, ..
  static constexpr int slots = 8, rows_at_once = Tile::threads / slots, none = -(1 << 30);
  struct Stage {
    ChunkRows<stage_pixels, x_chunks> x;
    ChunkRows<stage_pixels, y_chunks> dy;
  };
  struct Place {
    int row, output;    // first ones of the tile
    int end;            // of the rows of the tile
    int steps;          // stages of the part
    std::int64_t sums;  // first sum of the part
  };
  struct Shared {
    Stage stages[ConvWeightProduct::stages];
    Place place;
  };
  /// Offset of a tap and its channels from the first pixel of a window, in pixels and in chunks.
  struct Column {
    int down, across, at;
  };
  struct Kept {
    typename Tile::template Sums<float> sums;
    int pixel, end;  // of the next stage, and of the part
    Column columns[x_chunks / slots];
  };

  Divisor row_tiles, output_tiles, height, width, channels, kw;  // of y; channels in chunks
  int tile_rows, all_rows, all_outputs, pixels, part_pixels;
  int h, w, stride_down, stride_across, dilation_down, dilation_across, padding_down, padding_across;
  const std::int8_t *x, *dy;
  float* parts;  // [part, tap, channel, output]

  ConvWeightProduct(const ConvShape& s, const void* images, const void* gradient)
      : height(s.oh),
        width(s.ow),
        channels(s.c / chunks),
        kw(s.kw),
        all_rows(static_cast<int>(s.kh * s.kw * s.c)),
        all_outputs(static_cast<int>(s.o)),
        pixels(static_cast<int>(s.n * s.oh * s.ow)),
        h(static_cast<int>(s.h)),
        w(static_cast<int>(s.w)),
        stride_down(static_cast<int>(s.stride[0])),
        stride_across(static_cast<int>(s.stride[1])),
        dilation_down(static_cast<int>(s.dilation[0])),
        dilation_across(static_cast<int>(s.dilation[1])),
        padding_down(static_cast<int>(s.padding[0])),
        padding_across(static_cast<int>(s.padding[1])),
        x(static_cast<const std::int8_t*>(images)),
        dy(static_cast<const std::int8_t*>(gradient)) {
    // Tiles of equal height, in whole fragments.
    const int tiles = (all_rows + rows - 1) / rows;
    tile_rows = ((all_rows + tiles - 1) / tiles + 15) / 16 * 16;
    row_tiles = (all_rows + tile_rows - 1) / tile_rows;
    output_tiles = (all_outputs + outputs - 1) / outputs;
    // The number of parts depends on the shape alone, so that sums have the same order on every GPU.
    constexpr std::int64_t enough_blocks = 256, least_stages = 4;
    const std::int64_t tiles_of_part = row_tiles.value * output_tiles.value,
                       all_stages = (pixels + stage_pixels - 1) / stage_pixels;
    const std::int64_t wanted =
        std::max<std::int64_t>(std::min(enough_blocks / tiles_of_part, all_stages / least_stages), 1);
    part_pixels = static_cast<int>((all_stages + wanted - 1) / wanted) * stage_pixels;
  }
  [[nodiscard]] std::int64_t part_count() const { return (pixels + part_pixels - 1) / part_pixels; }
  [[nodiscard]] std::int64_t blocks() const { return row_tiles.value * output_tiles.value * part_count(); }

  [[nodiscard]] FQ_HD int steps(const Shared& shared) const { return shared.place.steps; }
  FQ_HD void begin(const Thread& t, Shared& shared, Kept& kept) const {
    const auto block = static_cast<int>(t.block);
    const int line = row_tiles.quotient(block), part = output_tiles.quotient(line);
    Place own{};
    own.row = (block - line * static_cast<int>(row_tiles.value)) * tile_rows;
    own.output = (line - part * static_cast<int>(output_tiles.value)) * outputs;
    own.end = own.row + tile_rows < all_rows ? own.row + tile_rows : all_rows;
    own.sums = std::int64_t{part} * all_rows * all_outputs;
    kept.pixel = part * part_pixels;
    kept.end = kept.pixel + part_pixels < pixels ? kept.pixel + part_pixels : pixels;
    own.steps = (kept.end - kept.pixel + stage_pixels - 1) / stage_pixels;
    if (t.thread == 0) shared.place = own;
    FQ_UNROLL
    for (int i = 0; i < x_chunks / slots; ++i)
      kept.columns[i] = find_column(own.row / chunks + t.thread % slots + i * slots, own.end);
    Tile::template clear_sums<float>(kept.sums);
    for (int i = 0; i < stages - 1; ++i) load(t.thread, i, own, shared, kept);
    wait_for_copy_groups<stages - 2>();
  }

  // Copies are ordered as in ConvProduct.
  template <int phase>
  FQ_HD void step(const Thread& t, Shared& shared, Kept& kept, int i) const {
    load(t.thread, i + stages - 1, shared.place, shared, kept);
    const Warp warp(t.thread);
    const Stage& stage = shared.stages[i % stages];
    if (warp.row < shared.place.end - shared.place.row) {
      FQ_UNROLL
      for (int first = 0; first < stage_pixels; first += 16)
        add_pixels(warp, stage, first, shared.place, kept);
    }
    wait_for_copy_groups<stages - 2>();
  }

  template <int phase>
  FQ_HD void end(const Thread& t, const Shared& shared, const Kept& kept) const {
    const Place& own = shared.place;
    Tile::store(Warp(t.thread), all_outputs - own.output, kept.sums, [&](int row) {
      return own.row + row < own.end
                 ? parts + own.sums + std::int64_t{own.row + row} * all_outputs + own.output
                 : nullptr;
    });
  }

 private:
  FQ_HD void add_pixels(const Warp& warp, const Stage& stage, int first, const Place& own, Kept& kept) const {
    // A fragment has 16 rows or outputs and 16 pixels: it is the transpose of two chunks of 16 pixels.
    Tile::template add_products<bfloat16, true>(
        warp, all_outputs - own.output,
        [&](int n) {
          return load_transposed_fragment<WFragment>(warp.lane, [&](int pixel, int half) {
            return stage.x.chunk(first, static_cast<unsigned>(pixel),
                                 static_cast<unsigned>((warp.row + 16 * n) / chunks + half));
          });
        },
        [&](int n) {
          return load_transposed_fragment<XFragment>(warp.lane, [&](int pixel, int half) {
            return stage.dy.chunk(first, static_cast<unsigned>(pixel),
                                  static_cast<unsigned>((warp.output + 16 * n) / chunks + half));
          });
        },
        kept.sums);
  }
  [[nodiscard]] FQ_HD Column find_column(int chunk, int end) const {
    if (chunk * chunks >= end) return {none, 0, 0};
    const int tap = channels.quotient(chunk), ky = kw.quotient(tap);
    const int down = ky * dilation_down - padding_down,
              across = (tap - ky * static_cast<int>(kw.value)) * dilation_across - padding_across;
    return {down, across, (down * w + across - tap) * static_cast<int>(channels.value) + chunk};
  }
  /// Starts the copies of a stage. Chunks outside of the images and of the part become 0. Columns and outputs
  /// that do not exist are not written: their sums are not stored.
  FQ_HD void load(int thread, int stage, const Place& own, Shared& shared, Kept& kept) const {
    if (stage < own.steps) {
      FQ_UNROLL
      for (int first = 0; first < stage_pixels; first += rows_at_once)
        copy_pixel(thread, first, own.output, shared.stages[stage % stages], kept);
      kept.pixel += stage_pixels;
    }
    end_copy_group();
  }
  FQ_HD void copy_pixel(int thread, int first, int output, Stage& stage, const Kept& kept) const {
    const auto row = static_cast<unsigned>(thread / slots), slot = static_cast<unsigned>(thread % slots);
    const int pixel = kept.pixel + first + thread / slots, line = width.quotient(pixel),
              image = height.quotient(line);
    const int top = (line - image * static_cast<int>(height.value)) * stride_down,
              left = (pixel - line * static_cast<int>(width.value)) * stride_across,
              at = ((image * h + top) * w + left) * static_cast<int>(channels.value);
    const bool inside = pixel < kept.end;
    FQ_UNROLL
    for (int i = 0; i < x_chunks / slots; ++i) {
      const Column& own = kept.columns[i];
      if (own.down == none) continue;
      const bool valid = inside && static_cast<unsigned>(top + own.down) < static_cast<unsigned>(h) &&
                         static_cast<unsigned>(left + own.across) < static_cast<unsigned>(w);
      copy_chunk(stage.x.chunk(first, row, slot + static_cast<unsigned>(i * slots)),
                 x + std::int64_t{at + own.at} * chunk_bytes, valid);
    }
    const int channel = output + static_cast<int>(slot) * chunks;
    if (slot < y_chunks && channel < all_outputs)
      copy_chunk(stage.dy.chunk(first, row, slot),
                 dy + (std::int64_t{pixel} * all_outputs + channel) * std::int64_t{sizeof(bfloat16)}, inside);
  }
};

// parts: [part, tap, channel, output]. A channel of the reduction is a weight.
struct PartTerms {
  const float* parts;
  FQ_HD void operator()(PairSum& sum, std::int64_t i, std::int64_t) const { sum.add(parts[i]); }
};

/// Writes a weight in OIHW order.
struct PutWeight {
  Divisor outputs, channels;
  std::int64_t taps;
  float* dw;
  FQ_HD void operator()(std::int64_t i, const PairSum& sum) const {
    std::int64_t tap = i;
    const std::int64_t output = outputs.take_remainder(tap), channel = channels.take_remainder(tap);
    dw[(output * channels.value + channel) * taps + tap] = static_cast<float>(sum.value());
  }
};

template <int outputs>
void launch(const ConvShape& s, const void* x, const void* dy, float* dw, Device device) {
  ConvWeightProduct<outputs> body(s, x, dy);
  const std::int64_t weights = numel(s.w_shape()), count = body.part_count() * weights;
  Storage parts(count * static_cast<std::int64_t>(sizeof(float)), device);
  body.parts = mutable_device_data<float>(parts);
  note_read(x, numel(s.x_shape()) * 2);
  note_read(dy, numel(s.y_shape()) * 2);
  launch_steps(device, body.blocks(), body);
  const PartTerms terms{device_data<float>(parts)};
  note_written(dw, weights * 4);
  reduce_channels(device, {weights, 1, count}, SumTerms<PairSum, PartTerms>{terms},
                  PutWeight{s.o, s.c, s.kh * s.kw, dw});
}

}  // namespace

void implicit_conv_weights(const ConvShape& s, const void* x, const void* dy, float* dw, Device device) {
  s.o <= 32 ? launch<32>(s, x, dy, dw, device) : launch<64>(s, x, dy, dw, device);
}

}  // namespace fq::cuda
