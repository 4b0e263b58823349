#include <numeric>

#include "fakequant/core/backend/cuda/engine/conv.h"
#include "fakequant/core/backend/cuda/engine/conv_tiles.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

/// Positions along one axis of the output of a convolution or, transposed, of its gradient in x.
///
/// Positions with the same remainder modulo the stride form a phase of the transposed convolution: the same
/// taps reach them. A convolution has one phase.
struct ConvAxis {
  int source, target;  ///< sizes
  int taps, stride, padding, dilation;
  int tap_step, window_step;  ///< distance of the taps on a pixel, and of their windows
  bool transposed;
  Divisor in_phase;  ///< largest number of positions of a phase

  /// Position i of the phase reads, for its tap k, the source position first + i * window_step + k *
  /// tap_step.
  struct Phase {
    int taps, first_tap, first, window_step, tap_step;
  };

  static ConvAxis of(const ConvShape& s, int axis, bool transposed) {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t x = axis == 0 ? s.h : s.w, y = axis == 0 ? s.oh : s.ow;
    const std::int64_t both = std::gcd(s.stride[a], s.dilation[a]);
    ConvAxis out{};
    out.source = static_cast<int>(transposed ? y : x);
    out.target = static_cast<int>(transposed ? x : y);
    out.taps = static_cast<int>(axis == 0 ? s.kh : s.kw);
    out.stride = static_cast<int>(s.stride[a]);
    out.padding = static_cast<int>(s.padding[a]);
    out.dilation = static_cast<int>(s.dilation[a]);
    out.tap_step = transposed ? static_cast<int>(s.stride[a] / both) : 1;
    out.window_step = static_cast<int>(s.dilation[a] / both);
    out.transposed = transposed;
    out.in_phase = (out.target + out.phases() - 1) / out.phases();
    return out;
  }
  [[nodiscard]] FQ_HD int phases() const { return transposed ? stride : 1; }
  [[nodiscard]] FQ_HD Phase phase(int position) const {
    if (!transposed) return {taps, 0, -padding, stride, dilation};
    // Only taps below tap_step can be first: the others have a smaller one on the same pixel.
    for (int tap = 0; tap < tap_step && tap < taps; ++tap) {
      const int reach = position + padding - tap * dilation;
      if (reach % stride == 0)
        return {(taps - tap + tap_step - 1) / tap_step, tap, reach / stride, 1, -window_step};
    }
    return {0, 0, 0, 1, 0};
  }
};

/// Product of gathered pixels and weights. A row is an output pixel. A block computes a tile of a phase.
template <class X, int outputs_of_tile>
struct ConvProduct : ConvTile<outputs_of_tile> {
  using Tile = ConvTile<outputs_of_tile>;
  using Tile::outputs, Tile::rows;
  using Warp = typename Tile::Warp;
  using Sum = ProductSum<X>;
  static constexpr int chunks = 4, stages = rows > 128 ? 3 : 4, rows_at_once = Tile::threads / chunks;
  struct Stage {
    ChunkRows<rows, chunks> x;
    ChunkRows<outputs, chunks> w;
  };
  struct Shared {
    Stage stages[ConvProduct::stages];
    int pixels[rows];  // of the output, or -1
    int steps, first_output;
  };
  /// Source pixel of a row and its first tap.
  struct Window {
    int y, x, at;
  };
  /// Tap and channels of the next chunk that a thread copies, and the taps between two of its chunks.
  struct Walk {
    int ky, kx, channel, ky_step, kx_step;
  };
  struct Kept {
    typename Tile::template Sums<Sum> sums;
    Window windows[rows / rows_at_once];
    ConvAxis::Phase down, across;
    Walk walk;
  };

  ConvAxis down, across;
  Divisor output_tiles, row_tiles, across_phases, in_tap;
  int images, channels, all_outputs;  // channels in chunks
  int tap_step, channel_step;         // whole taps in the chunks of a stage, and the chunks left
  bool reversed;                      // the taps of w
  const std::int8_t *x, *w;           // w: [outputs, taps, channels]
  Sum* y;

  ConvProduct(const ConvShape& s, bool transposed, const void* source, const void* weights, Sum* sums)
      : down(ConvAxis::of(s, 0, transposed)),
        across(ConvAxis::of(s, 1, transposed)),
        across_phases(across.phases()),
        in_tap((transposed ? s.o : s.c) * static_cast<std::int64_t>(sizeof(X)) / chunk_bytes),
        images(static_cast<int>(s.n)),
        channels(static_cast<int>(in_tap.value)),
        all_outputs(static_cast<int>(transposed ? s.c : s.o)),
        tap_step(chunks / channels),
        channel_step(chunks % channels),
        reversed(transposed),
        x(static_cast<const std::int8_t*>(source)),
        w(static_cast<const std::int8_t*>(weights)),
        y(sums) {
    output_tiles = (all_outputs + outputs - 1) / outputs;
    row_tiles = (s.n * down.in_phase.value * across.in_phase.value + rows - 1) / rows;
  }
  // Tiles of the same pixels follow each other, so that they find them in the cache.
  [[nodiscard]] std::int64_t blocks() const {
    return output_tiles.value * row_tiles.value * down.phases() * across.phases();
  }

  [[nodiscard]] FQ_HD int steps(const Shared& shared) const { return shared.steps; }
  FQ_HD void begin(const Thread& t, Shared& shared, Kept& kept) const {
    const auto block = static_cast<int>(t.block);
    const int line = output_tiles.quotient(block), phase = row_tiles.quotient(line),
              phase_y = across_phases.quotient(phase),
              phase_x = phase - phase_y * static_cast<int>(across_phases.value);
    kept.down = down.phase(phase_y);
    kept.across = across.phase(phase_x);
    const int first_output = (block - line * static_cast<int>(output_tiles.value)) * outputs,
              first_row = (line - phase * static_cast<int>(row_tiles.value)) * rows,
              steps = (kept.down.taps * kept.across.taps * channels + chunks - 1) / chunks;
    if (t.thread == 0) {
      shared.steps = steps;
      shared.first_output = first_output;
    }
    FQ_UNROLL
    for (int i = 0; i < rows / rows_at_once; ++i) {
      const int row = t.thread / chunks + i * rows_at_once;
      int pixel = -1;
      kept.windows[i] = find_window(first_row + row, phase_y, phase_x, kept, pixel);
      if (t.thread % chunks == 0) shared.pixels[row] = pixel;
    }
    start(t.thread % chunks, kept);
    Tile::template clear_sums<Sum>(kept.sums);
    for (int i = 0; i < stages - 1; ++i) load(t.thread, i, steps, first_output, shared, kept);
    wait_for_copy_groups<stages - 2>();
  }

  // Stage i + stages - 1 replaces stage i - 1, which all threads have read. Each step ends one group of
  // copies, so all groups but the last stages - 2 include stage i + 1.
  template <int phase>
  FQ_HD void step(const Thread& t, Shared& shared, Kept& kept, int i) const {
    load(t.thread, i + stages - 1, shared.steps, shared.first_output, shared, kept);
    const Warp warp(t.thread);
    const Stage& stage = shared.stages[i % stages];
    const int used = all_outputs - shared.first_output;
    FQ_UNROLL
    for (int part = 0; part < chunks; part += 2)
      Tile::template add_products<X, false>(
          warp, used,
          [&](int n) {
            return load_fragment<XFragment>(warp.lane, [&](int row, int half) {
              return stage.x.chunk(warp.row + 16 * n, static_cast<unsigned>(row),
                                   static_cast<unsigned>(part + half));
            });
          },
          [&](int n) {
            return load_fragment<WFragment>(warp.lane, [&](int row, int half) {
              return stage.w.chunk(warp.output + 16 * n, static_cast<unsigned>(row),
                                   static_cast<unsigned>(part + half));
            });
          },
          kept.sums);
    wait_for_copy_groups<stages - 2>();
  }

  template <int phase>
  FQ_HD void end(const Thread& t, const Shared& shared, const Kept& kept) const {
    Tile::store(Warp(t.thread), all_outputs - shared.first_output, kept.sums, [&](int row) {
      const int pixel = shared.pixels[row];
      return pixel < 0 ? nullptr : y + std::int64_t{pixel} * all_outputs + shared.first_output;
    });
  }

 private:
  /// Returns the window of a row, and sets its output pixel. A row beyond the last one is outside of x.
  FQ_HD Window find_window(int row, int phase_y, int phase_x, const Kept& kept, int& pixel) const {
    const int line = across.in_phase.quotient(row), image = down.in_phase.quotient(line),
              i = line - image * static_cast<int>(down.in_phase.value),
              j = row - line * static_cast<int>(across.in_phase.value), top = phase_y + i * down.phases(),
              left = phase_x + j * across.phases();
    if (image < images && top < down.target && left < across.target)
      pixel = (image * down.target + top) * across.target + left;
    const int source_y = kept.down.first + i * kept.down.window_step,
              source_x = kept.across.first + j * kept.across.window_step;
    return {pixel < 0 ? -(1 << 30) : source_y, source_x,
            ((image * down.source + source_y) * across.source + source_x) * channels};
  }
  /// Sets the tap and the channels of the first chunk.
  FQ_HD void start(int slot, Kept& kept) const {
    Walk& walk = kept.walk;
    const int tap = in_tap.quotient(slot);
    walk = {0, tap, slot - tap * channels, 0, tap_step};
    // A phase without taps has no chunks.
    for (; walk.kx >= kept.across.taps && kept.across.taps > 0; ++walk.ky) walk.kx -= kept.across.taps;
    for (; walk.kx_step >= kept.across.taps && kept.across.taps > 0; ++walk.ky_step)
      walk.kx_step -= kept.across.taps;
  }
  FQ_HD void advance(Kept& kept) const {
    Walk& walk = kept.walk;
    walk.channel += channel_step;
    walk.kx += walk.kx_step;
    walk.ky += walk.ky_step;
    if (walk.channel >= channels) {
      walk.channel -= channels;
      ++walk.kx;
    }
    if (walk.kx >= kept.across.taps) {
      walk.kx -= kept.across.taps;
      ++walk.ky;
    }
  }
  /// Starts the copies of a stage. Chunks outside of x become 0.
  FQ_HD void load(int thread, int stage, int steps, int first_output, Shared& shared, Kept& kept) const {
    if (stage < steps) {
      copy(thread, first_output, shared.stages[stage % stages], kept);
      advance(kept);
    }
    end_copy_group();
  }
  FQ_HD void copy(int thread, int first_output, Stage& stage, const Kept& kept) const {
    const Walk& walk = kept.walk;
    const auto row = static_cast<unsigned>(thread / chunks), slot = static_cast<unsigned>(thread % chunks);
    const bool inside = walk.ky < kept.down.taps;
    const int y_step = walk.ky * kept.down.tap_step, x_step = walk.kx * kept.across.tap_step,
              shift = (y_step * across.source + x_step) * channels + walk.channel;
    FQ_UNROLL
    for (int i = 0; i < rows / rows_at_once; ++i) {
      const Window& own = kept.windows[i];
      const bool valid = inside &&
                         static_cast<unsigned>(own.y + y_step) < static_cast<unsigned>(down.source) &&
                         static_cast<unsigned>(own.x + x_step) < static_cast<unsigned>(across.source);
      copy_chunk(stage.x.chunk(i * rows_at_once, row, slot), x + std::int64_t{own.at + shift} * chunk_bytes,
                 valid);
    }
    int tap = (kept.down.first_tap + walk.ky * down.tap_step) * across.taps + kept.across.first_tap +
              walk.kx * across.tap_step;
    const int taps = down.taps * across.taps, output = first_output + static_cast<int>(row);
    if (reversed) tap = taps - 1 - tap;
    if (rows_at_once > outputs && row >= outputs) return;
    copy_chunk(stage.w.chunk(0, row, slot),
               w + std::int64_t{(output * taps + tap) * channels + walk.channel} * chunk_bytes,
               inside && output < all_outputs);
  }
};

/// Weights as [outputs, taps, channels].
struct TapWeights {
  Storage own;
  const void* data;

  TapWeights(const ConvShape& s, bool transposed, const void* w, int bytes, Device device) : data(w) {
    const ConvShape gradient{s.n, s.o, s.oh, s.ow, s.c, s.kh, s.kw, s.h, s.w};
    const auto shape = ColumnShape::of(transposed ? gradient : s, 1, transposed);
    const std::int64_t outputs = shape.group_outputs();
    if (shape.packed(outputs) && is_chunk(w)) return;
    own = Storage(outputs * shape.row * bytes, device);
    pack_weights(shape, w, bytes, outputs, own.mutable_data(), device);
    data = own.data();
  }
  static bool is_chunk(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % chunk_bytes == 0; }
};

template <class X>
void launch(const ConvShape& s, bool transposed, const void* x, const void* w, ProductSum<X>* y,
            Device device) {
  constexpr int bytes = sizeof(X);
  const TapWeights weights(s, transposed, w, bytes, device);
  note_read(x, numel(transposed ? s.y_shape() : s.x_shape()) * bytes);
  note_read(weights.data, numel(s.w_shape()) * bytes);
  note_written(y, numel(transposed ? s.x_shape() : s.y_shape()) * 4);
  const auto run = [&]<int outputs>(std::integral_constant<int, outputs>) {
    const ConvProduct<X, outputs> body(s, transposed, x, weights.data, y);
    launch_steps(device, body.blocks(), body);
  };
  // Tall tiles do not leave half of the warps without outputs.
  (transposed ? s.c : s.o) <= 32 ? run(std::integral_constant<int, 32>())
                                 : run(std::integral_constant<int, 64>());
}

}  // namespace

void implicit_conv(const ConvShape& shape, bool transposed, const void* x, const void* w, float* y,
                   Device device) {
  launch<bfloat16>(shape, transposed, x, w, y, device);
}

void implicit_conv_codes(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w,
                         std::int32_t* sums, Device device) {
  x.dtype == DType::u8 ? launch<std::uint8_t>(shape, transposed, x.data, w.data, sums, device)
                       : launch<std::int8_t>(shape, transposed, x.data, w.data, sums, device);
}

}  // namespace fq::cuda
