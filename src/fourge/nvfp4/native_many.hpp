// Many activation rows: sixteen of them in a register, a weight in all of its lanes.
//
// Sums are those of `times`, bit for bit: what stands in one lane there is summed by itself here,
// and the sixteen sums are added in the order of `sum`.

#pragma once

#include <algorithm>
#include <vector>

#include "native_rows.hpp"

namespace {

constexpr int64_t ROWS = 6;  // weight rows of a tile: sums for them and ACROSS fill the registers

// A sixteens of activation rows, block by block, times one lane of R rows of float32 weights.
template <int64_t A, int64_t R>
void across_tile(const float* x_BM, const float* weight_RC, int64_t cols, float* out_RM) {
    Sixteen sums[R][A];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
        for (int a = 0; a < A; ++a) sums[i][a] = Sixteen::zero();
    for (int64_t b = 0; b < cols / BLOCK; ++b) {
        Sixteen x[A];
#pragma GCC unroll 16
        for (int a = 0; a < A; ++a) x[a] = Sixteen::load(x_BM + (b * A + a) * BLOCK);
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) {
            const Sixteen value = Sixteen::all_of(weight_RC[i * cols + b * BLOCK]);
#pragma GCC unroll 16
            for (int a = 0; a < A; ++a) sums[i][a].add_product(value, x[a]);
        }
    }
    for (int i = 0; i < R; ++i)
        for (int a = 0; a < A; ++a) sums[i][a].store(out_RM + (i * A + a) * BLOCK);
}

// The sum of 2**L lanes: of `lane`, and of those that `sum` adds to it before it adds others.
template <int64_t A, int64_t R, int64_t L>
void across_lanes(const float* x_LBM, const float* weight_RC, int64_t cols, int64_t lane,
                  float* out_RM) {
    if constexpr (L == 0) {
        across_tile<A, R>(x_LBM + lane * (cols / BLOCK) * A * BLOCK, weight_RC + lane, cols, out_RM);
    } else {
        float other_RM[R * A * BLOCK];
        across_lanes<A, R, L - 1>(x_LBM, weight_RC, cols, lane, out_RM);
        across_lanes<A, R, L - 1>(x_LBM, weight_RC, cols, lane + (BLOCK >> L), other_RM);
        for (int64_t i = 0; i < R * A * BLOCK; ++i) out_RM[i] += other_RM[i];
    }
}

template <int64_t A, int64_t R>
void across_at_most(int64_t across, int64_t weight_rows, const float* x_LBM, const float* weight_RC,
                    int64_t cols, float* out_RM) {
    if constexpr (A > 1)
        if (across < A)
            return across_at_most<A - 1, R>(across, weight_rows, x_LBM, weight_RC, cols, out_RM);
    if constexpr (R > 1)
        if (weight_rows < R)
            return across_at_most<A, R - 1>(across, weight_rows, x_LBM, weight_RC, cols, out_RM);
    across_lanes<A, R, 4>(x_LBM, weight_RC, cols, 0, out_RM);
}

// Activation rows [M, C] in groups of ACROSS sixteens, each lane by lane; zeros fill the last.
struct Across {
    static constexpr int64_t GROUP = ACROSS * BLOCK;
    const float* values;
    int64_t m_rows, cols;

    // The memory stays for the thread's next product: to be given fresh pages takes longer than to
    // fill them.
    Across(const float* x_MC, int64_t m_rows, int64_t cols, int threads)
        : m_rows(m_rows), cols(cols) {
        static thread_local std::vector<float> kept;
        const int64_t sixteens = (m_rows + BLOCK - 1) / BLOCK;
        kept.resize(std::max<size_t>(kept.size(), sixteens * BLOCK * cols));
        float* const out = kept.data();
        values = out;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
        for (int64_t b = 0; b < cols; b += BLOCK)
            for (int64_t first = 0; first < m_rows; first += BLOCK) fill(x_MC, first, b, out);
    }

    // Sixteen rows, sixteen columns.
    void fill(const float* x_MC, int64_t first, int64_t b, float* out) const {
        const int64_t group = first / GROUP * GROUP, width = sixteens(group) * BLOCK;
        const int64_t count = std::min(BLOCK, m_rows - first);
        for (int64_t lane = 0; lane < BLOCK; ++lane) {
            const int64_t place = lane * (cols / BLOCK) + b / BLOCK;
            float* const at = out + group * cols + place * width + (first - group);
            for (int64_t m = 0; m < count; ++m) at[m] = x_MC[(first + m) * cols + b + lane];
            for (int64_t m = count; m < BLOCK; ++m) at[m] = 0.0f;
        }
    }

    // Of the group that begins with this row.
    int64_t sixteens(int64_t group) const {
        return std::min(ACROSS, (m_rows - group + BLOCK - 1) / BLOCK);
    }
};

// y [M, R] = x [M, C] @ weight [R, C].T; each weight is decoded once.
template <class Weight>
void times_many(const float* x_MC, const Weight& weight, float* y, int64_t m_rows, int64_t rows,
                int threads) {
    const Across x(x_MC, m_rows, weight.cols, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        std::vector<float> decoded(ROWS * weight.cols);
        float out[ROWS * Across::GROUP];
#pragma omp for schedule(dynamic, 8)
        for (int64_t r = 0; r < rows; r += ROWS) {
            const int64_t count = std::min(ROWS, rows - r);
            for (int64_t i = 0; i < count; ++i)
                for (int64_t b = 0; b < weight.cols / BLOCK; ++b)
                    weight.row(r + i).block(b).store(decoded.data() + i * weight.cols + BLOCK * b);
            for (int64_t first = 0; first < m_rows; first += Across::GROUP) {
                const int64_t across = x.sixteens(first);
                across_at_most<ACROSS, ROWS>(across, count, x.values + first * weight.cols,
                                             decoded.data(), weight.cols, out);
                const int64_t last = std::min(m_rows - first, Across::GROUP);
                for (int64_t m = 0; m < last; ++m)
                    for (int64_t i = 0; i < count; ++i)
                        y[(first + m) * rows + r + i] = out[i * across * BLOCK + m];
            }
        }
    }
}

constexpr int64_t FEW = 8;  // more are worth their transposition

template <class Weight>
void times_any(const float* x, const Weight& weight, float* y, int64_t m_rows, int64_t rows,
               int threads) {
    (m_rows > FEW ? times_many<Weight> : times<Weight>)(x, weight, y, m_rows, rows, threads);
}

template <class Value>
void decode(const uint8_t* packed_RC, const uint8_t* scale_RB, const float* tensor_scale,
            Value* out_RC, int64_t rows, int64_t cols, int threads) {
    const Units units(*tensor_scale);
    const Codes weight{packed_RC, scale_RB, units, cols};
#pragma omp parallel for schedule(dynamic, 64) num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t b = 0; b < cols / BLOCK; ++b)
            weight.row(r).block(b).store(out_RC + r * cols + BLOCK * b);
}

}  // namespace
