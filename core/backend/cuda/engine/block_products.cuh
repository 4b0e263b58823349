#pragma once

/// Products of rows and weights with codes in blocks of 32, in tiles of outputs. Codes and scales of a tile
/// are staged in shared memory. The sum of a block is an exact integer, and the float operations over blocks
/// stay in registers, in the engine's order.

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/mma.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"

namespace fq::cuda {

inline constexpr int part_codes = fq::detail::ggml_block, chunk_codes = 16;
/// Parts of 32 codes of a row in a stage.
inline constexpr int stage_parts = 2, stage_chunks = stage_parts * part_codes / chunk_codes;

/// Returns the codes, or a copy if they are a view that is not aligned for 16-byte accesses.
inline Tensor aligned_codes(const Tensor& codes) {
  return reinterpret_cast<std::uintptr_t>(codes.raw()) % 16 == 0 ? codes : codes.clone();
}

/// Codes and scales of `count` rows in one stage.
template <int count>
struct StagedRows {
  alignas(16) std::int8_t codes[count * stage_chunks * chunk_codes];
  float scales[stage_parts][count];

  /// Returns the address of 16 codes of row first + row. `first` is a multiple of 16. The order of a row's
  /// chunks depends on the row, so that eight rows use different banks.
  [[nodiscard]] FQ_HD const std::int8_t* chunk(int first, unsigned row, unsigned at) const {
    // Unsigned numbers divide by shifts alone.
    return codes + (row * stage_chunks + (at ^ (row / 2 % stage_chunks))) * chunk_codes +
           first * stage_chunks * chunk_codes;
  }
};

/// Rows of codes in global memory, with a scale for each block of codes. Rows and columns fit 32 bits: the
/// f32 values of more rows exceed the memory of a GPU.
struct BlockRows {
  const std::int8_t* codes;  // [rows, columns]
  const float* scales;       // [rows, blocks], or null
  int rows, columns, parts, blocks;
  Divisor in_block;  // parts in a block

  BlockRows(const Tensor& of_codes, const Tensor& of_scales)
      : codes(device_data<std::int8_t>(of_codes)),
        scales(device_data<float>(of_scales)),
        rows(static_cast<int>(of_codes.dim(0))),
        columns(static_cast<int>(of_codes.dim(1))),
        parts(columns / part_codes),
        blocks(of_scales.defined() ? static_cast<int>(of_scales.numel() / rows) : 1),
        in_block(parts / blocks) {}

  /// Returns whether the part is the last one of its block.
  [[nodiscard]] FQ_HD bool ends_block(int part) const {
    return in_block.quotient(part + 1) != in_block.quotient(part);
  }
  /// Starts the copy of a stage that begins with the row `first` and the part `part`. Elements outside
  /// of the matrix become 0.
  template <bool scaled, int count>
  FQ_HD void stage(int first, int part, int thread, StagedRows<count>& to) const {
    load_codes(first, part, thread, to);
    if constexpr (scaled) load_scales(first, part, thread, to);
  }

 private:
  template <int count>
  FQ_HD void load_codes(int first, int part, int thread, StagedRows<count>& to) const {
    constexpr int rows_at_once = block_threads / stage_chunks;
    const int row = thread / stage_chunks, chunk = thread % stage_chunks;
    const bool inside = chunk < (parts - part) * (part_codes / chunk_codes);
    FQ_UNROLL
    for (int step = 0; step < count; step += rows_at_once)
      if (count % rows_at_once == 0 || step + row < count)
        copy_to_shared<chunk_codes>(
            const_cast<std::int8_t*>(to.chunk(step, row, chunk)),
            codes + std::int64_t{first + step + row} * columns + part * part_codes + chunk * chunk_codes,
            inside && first + step + row < rows);
  }
  template <int count>
  FQ_HD void load_scales(int first, int part, int thread, StagedRows<count>& to) const {
    constexpr int rows_at_once = block_threads / stage_parts;
    static_assert(count <= rows_at_once);
    const int row = thread / stage_parts, p = thread % stage_parts;
    if (count == rows_at_once || row < count)
      copy_to_shared<4>(&to.scales[p][row],
                        scales + std::int64_t{first + row} * blocks + in_block.quotient(part + p),
                        part + p < parts && first + row < rows);
  }
};

/// The phases of a product for `launch_steps`: a step is a round. At most 128 registers, so that two blocks
/// run on a processor.
struct RoundPhases {
  static constexpr int threads = block_threads, least_blocks = 2, step_phases = 1, end_phases = 1;
  static constexpr bool block_barriers[] = {true};
};

/// Tiles of a product, and the loads of their stages. A round of a launch computes from one stage while the
/// copies to the other one run.
template <int rows_of_tile, int outputs_of_tile, bool scaled_rows>
struct BlockTiles {
  static constexpr int tile_rows = rows_of_tile, tile_outputs = outputs_of_tile;
  struct Stage {
    StagedRows<tile_rows> x;
    StagedRows<tile_outputs> w;
  };
  /// First row and output of a tile.
  struct Place {
    int row, output;
  };
  struct Shared {
    Stage stages[2];
    Place place;  // read in each round, because registers are scarce
  };
  BlockRows x, w;
  Divisor across;  // tiles of outputs
  int rounds;

  BlockTiles(const BlockRows& rows_of_x, const BlockRows& rows_of_w)
      : x(rows_of_x),
        w(rows_of_w),
        across((w.rows + tile_outputs - 1) / tile_outputs),
        rounds((x.parts + stage_parts - 1) / stage_parts) {}

  [[nodiscard]] std::int64_t tiles() const { return (x.rows + tile_rows - 1) / tile_rows * across.value; }
  /// Starts the copy of the first stage.
  FQ_HD Place begin(const Thread& t, Shared& shared) const {
    const int tile = static_cast<int>(t.block), down = across.quotient(tile);
    const Place at{down * tile_rows, (tile - down * static_cast<int>(across.value)) * tile_outputs};
    if (t.thread == 0) shared.place = at;
    load(at, t.thread, 0, shared);
    return at;
  }
  /// Calls add(stage, part in the stage, part) for the parts of a round, and loads the next round.
  template <class Add>
  FQ_HD void run_round(const Thread& t, int round, Shared& shared, const Add& add) const {
    const int first = round * stage_parts;
    if (first + stage_parts < x.parts) load(shared.place, t.thread, round + 1, shared);
    for (int p = 0; p < stage_parts; ++p)
      if (first + p < x.parts) add(shared.stages[round % 2], p, first + p);
    wait_for_copies();
  }

 private:
  FQ_HD void load(const Place& at, int thread, int round, Shared& shared) const {
    Stage& stage = shared.stages[round % 2];
    x.template stage<scaled_rows>(at.row, round * stage_parts, thread, stage.x);
    w.template stage<true>(at.output, round * stage_parts, thread, stage.w);
  }
};

/// Product on tensor cores. `Chain` has the float operations of an engine:
///
///     static constexpr bool shifted;                   // the engine multiplies codes of x + 128
///     static constexpr bool scaled;                    // blocks of x have scales
///     static constexpr bool single;                    // a block is one part
///     static constexpr int pairs;                      // of fragments; registers limit it
///     float first_of_row(row), first_of_output(output), last_of_row(row), last_of_output(output);  // load
///     float first(of_row, of_output);                  // start of a chain
///     float next(chain, sum, x_scale, w_scale);        // adds the sum of a block
///     float last(chain, of_row, of_output);            // y
///
/// A warp computes `down` fragments of 16 rows by `pairs` fragments of 16 outputs.
template <class Chain>
struct TensorCoreProduct : RoundPhases {
  static constexpr int warps = block_threads / 32, warps_down = 4, down = 2, pairs = Chain::pairs;
  using Tiles = BlockTiles<warps_down * down * 16, warps / warps_down * pairs * 16, Chain::scaled>;
  using Shared = typename Tiles::Shared;
  struct Kept {
    float chains[down][2 * pairs][4];
    std::int32_t sums[down][2 * pairs][4];
  };
  Tiles tiles;
  Chain chain;
  float* y;

  /// Position of a thread's fragments in the tile.
  struct Warp {
    int lane, row, output;
    explicit FQ_HD Warp(int thread)
        : lane(thread % 32),
          row(thread / 32 % warps_down * down * 16),
          output(thread / 32 / warps_down * pairs * 16) {}
    /// Row of the sums 2 * pair and 2 * pair + 1 of a fragment, and output of the sums 0 and 2.
    [[nodiscard]] FQ_HD int own_row(int i, int pair) const { return row + 16 * i + 8 * pair + lane / 4; }
    [[nodiscard]] FQ_HD int own_output(int j) const { return output + 8 * j + lane % 4 * 2; }
  };

  [[nodiscard]] FQ_HD int steps(const Shared&) const { return tiles.rounds; }
  FQ_HD void begin(const Thread& t, Shared& shared, Kept& kept) const {
    visit(
        tiles.begin(t, shared), t.thread, [&](int row) { return chain.first_of_row(row); },
        [&](int output) { return chain.first_of_output(output); },
        [&](int i, int j, int e, float of_row, const float(&of_outputs)[2]) {
          for (int n = 0; n < 2; ++n) {
            kept.chains[i][j][e + n] = chain.first(of_row, of_outputs[n]);
            kept.sums[i][j][e + n] = 0;
          }
        });
    wait_for_copies();
  }
  template <int phase>
  FQ_HD void step(const Thread& t, Shared& shared, Kept& kept, int round) const {
    tiles.run_round(t, round, shared, [&](const typename Tiles::Stage& stage, int p, int part) {
      add_part(Warp(t.thread), stage, p, part, kept);
    });
  }
  template <int phase>
  FQ_HD void end(const Thread& t, const Shared& shared, const Kept& kept) const {
    const auto tile = shared.place;
    const Warp warp(t.thread);
    visit(
        tile, t.thread, [&](int row) { return chain.last_of_row(row); },
        [&](int output) { return chain.last_of_output(output); },
        [&](int i, int j, int e, float of_row, const float(&of_outputs)[2]) {
          const int row = tile.row + warp.own_row(i, e / 2), output = tile.output + warp.own_output(j);
          store(row, output, chain.last(kept.chains[i][j][e], of_row, of_outputs[0]),
                chain.last(kept.chains[i][j][e + 1], of_row, of_outputs[1]));
        });
  }

 private:
  /// Loads one number per row and output of the thread. Calls f(i, j, e, number of the row, numbers of two
  /// outputs) for the elements e and e + 1 of each fragment.
  template <class OfRow, class OfOutput, class F>
  FQ_HD void visit(const typename Tiles::Place& tile, int thread, const OfRow& of_row,
                   const OfOutput& of_output, const F& f) const {
    const Warp warp(thread);
    float rows[down][2];
    for (int i = 0; i < down; ++i)
      for (int pair = 0; pair < 2; ++pair) {
        const int row = tile.row + warp.own_row(i, pair);
        rows[i][pair] = row < tiles.x.rows ? of_row(row) : 0.0f;
      }
    FQ_UNROLL
    for (int j = 0; j < 2 * pairs; ++j) {
      const int output = tile.output + warp.own_output(j);
      const float outputs[2]{output < tiles.w.rows ? of_output(output) : 0.0f,
                             output + 1 < tiles.w.rows ? of_output(output + 1) : 0.0f};
      for (int i = 0; i < down; ++i)
        for (int pair = 0; pair < 2; ++pair) f(i, j, 2 * pair, rows[i][pair], outputs);
    }
  }
  /// Stores two neighbouring outputs, if they exist. Four threads fill a sector of 32 bytes.
  FQ_HD void store(int row, int output, float left, float right) const {
    const int outputs = tiles.w.rows;
    if (row >= tiles.x.rows || output >= outputs) return;
    float* out = y + std::int64_t{row} * outputs + output;
    if (outputs % 2 == 0) {
      *reinterpret_cast<float2*>(out) = {left, right};
    } else {
      out[0] = left;
      if (output + 1 < outputs) out[1] = right;
    }
  }
  FQ_HD void add_part(const Warp& warp, const typename Tiles::Stage& stage, int p, int part,
                      Kept& kept) const {
    XFragment x[down];
    for (int i = 0; i < down; ++i)
      x[i] = load_fragment<XFragment>(
          warp.lane, [&](int row, int half) { return stage.x.chunk(16 * i, warp.row + row, 2 * p + half); });
    const bool last = Chain::single || tiles.w.ends_block(part);
    FQ_UNROLL
    for (int pair = 0; pair < pairs; ++pair) {
      const auto w = load_fragment<WFragment>(warp.lane, [&](int row, int half) {
        return stage.w.chunk(16 * pair, warp.output + row, 2 * p + half);
      });
      for (int i = 0; i < down; ++i)
        for (int half = 0; half < 2; ++half)
          multiply_fragments<Chain::shifted>(warp.lane, x[i], w, half, kept.sums[i][2 * pair + half]);
      if (last)
        for (int i = 0; i < down; ++i)
          for (int half = 0; half < 2; ++half) add_sums(warp, stage, p, i, 2 * pair + half, kept);
    }
  }
  /// Adds the sums of a block to the chains of a fragment, and begins new sums.
  FQ_HD void add_sums(const Warp& warp, const typename Tiles::Stage& stage, int p, int i, int j,
                      Kept& kept) const {
    for (int e = 0; e < 4; ++e) {
      const float x_scale = stage.x.scales[p][warp.own_row(i, e / 2)],
                  w_scale = stage.w.scales[p][warp.own_output(j) + e % 2];
      kept.chains[i][j][e] = chain.next(kept.chains[i][j][e], kept.sums[i][j][e], x_scale, w_scale);
      kept.sums[i][j][e] = 0;
    }
  }
};

/// Launches a product: a body with tiles, the float operations of an engine, and y.
template <class Product, class Chain>
void launch_product(Tensor& y, const BlockRows& x, const BlockRows& w, const Chain& chain) {
  const typename Product::Tiles tiles(x, w);
  launch_steps(y.device(), tiles.tiles(), Product{{}, tiles, chain, mutable_device_data<float>(y)});
}

}  // namespace fq::cuda
