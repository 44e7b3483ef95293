// From weights to codes, as recipe.py's FOURGE chooses them, and the squared norm of a gradient, as
// clip.py writes its order out: every operation in its order.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "native_rows.hpp"

namespace {

__m256 eight_of(const float* at) { return _mm256_loadu_ps(at); }

__m256 eight_of(const uint16_t* at) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

constexpr uint32_t EXPONENT = 0x7f800000;  // no finite number has all of its bits

// Beyond 20 binary places nothing is left below one of E4M3's steps: adding rounds, to even.
float round_e4m3(float value) {
    const float anchor = float_of(bits_of(value < 0x1p-6f ? 0x1p-6f : value) & EXPONENT) * 0x1p20f;
    return (value + anchor) - anchor;
}

uint8_t e4m3_code(float value) {
    if (value < 0x1p-6f) return static_cast<uint8_t>(value * 512.0f);
    return static_cast<uint8_t>((bits_of(value) >> 20) - (120 << 3));
}

float candidate(float scaled) {
    const float value = round_e4m3(scaled < 448.0f ? scaled : 448.0f);
    return value < 0x1p-9f ? 0x1p-9f : value;
}

__m256 nearest_level(__m256 ratio) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(EXPONENT));
    const __m256 anchor =
        _mm256_mul_ps(_mm256_and_ps(_mm256_max_ps(ratio, one), mask), _mm256_set1_ps(0x1p22f));
    return _mm256_sub_ps(_mm256_add_ps(ratio, anchor), anchor);
}

// Sixteen magnitudes under one scale: their levels, and the squared error times 2**16.
struct Fit {
    float scale;
    __m256 low, high, error;

    Fit(float scale, float tensor_scale, __m256 low_size, __m256 high_size) : scale(scale) {
        const __m256 inverse = _mm256_set1_ps(1.0f / (scale * tensor_scale));
        const __m256 six = _mm256_set1_ps(6.0f);
        const __m256 low_ratio = _mm256_mul_ps(low_size, inverse);
        const __m256 high_ratio = _mm256_mul_ps(high_size, inverse);
        low = nearest_level(_mm256_min_ps(low_ratio, six));
        high = nearest_level(_mm256_min_ps(high_ratio, six));
        error = _mm256_add_ps(whole_error(low, low_ratio), whole_error(high, high_ratio));
    }

    // A whole number for each, so that their sum is exact in any order.
    static __m256 whole_error(__m256 level, __m256 ratio) {
        const __m256 off = _mm256_sub_ps(level, ratio);
        const __m256 square = _mm256_mul_ps(_mm256_mul_ps(off, off), _mm256_set1_ps(65536.0f));
        return _mm256_round_ps(square, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }

    float total() const {
        __m128 half = _mm_add_ps(_mm256_castps256_ps128(error), _mm256_extractf128_ps(error, 1));
        half = _mm_add_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half))) * (scale * scale);
    }
};

// Eight codes in a word, the first in the lowest bits. The index is piecewise linear in the level.
uint32_t word_of(__m256 level, __m256 value) {
    const __m256 zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1.0f), two = _mm256_set1_ps(2.0f);
    const __m256 first = _mm256_min_ps(_mm256_add_ps(level, level), _mm256_set1_ps(4.0f));
    const __m256 second = _mm256_min_ps(_mm256_max_ps(_mm256_sub_ps(level, two), zero), two);
    const __m256 half = _mm256_mul_ps(level, _mm256_set1_ps(0.5f));
    const __m256 third = _mm256_min_ps(_mm256_max_ps(_mm256_sub_ps(half, two), zero), one);
    const __m256i index =
        _mm256_cvtps_epi32(_mm256_add_ps(_mm256_add_ps(first, second), third));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(value), 28),
                                          _mm256_set1_epi32(8));
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i placed = _mm256_sllv_epi32(_mm256_or_si256(index, sign), shifts);
    __m128i both =
        _mm_or_si128(_mm256_castsi256_si128(placed), _mm256_extracti128_si256(placed, 1));
    both = _mm_or_si128(both, _mm_shuffle_epi32(both, 0x4e));
    both = _mm_or_si128(both, _mm_shuffle_epi32(both, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(both));
}

// As integers the sizes of floats have the same order, and what is not finite comes last.
uint32_t largest_bits(__m256 low, __m256 high) {
    const __m256i both = _mm256_max_epi32(_mm256_castps_si256(low), _mm256_castps_si256(high));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(most));
}

// Whether every value is finite; if not, what was written means nothing.
template <class Value>
bool encode(const Value* value, float tensor_scale, uint8_t* packed, uint8_t* scale, int64_t blocks,
            int threads) {
    const float sixth = 1.0f / tensor_scale * static_cast<float>(1.0 / 6.0);
    const __m256 size = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite) num_threads(threads) \
    if (threads > 1)
    for (int64_t b = 0; b < blocks; ++b) {
        const __m256 low = eight_of(value + BLOCK * b), high = eight_of(value + BLOCK * b + 8);
        const __m256 low_size = _mm256_and_ps(low, size), high_size = _mm256_and_ps(high, size);
        const uint32_t largest = largest_bits(low_size, high_size);
        finite = finite && largest < EXPONENT;
        const float scaled = float_of(largest) * sixth;
        const Fit six(candidate(scaled), tensor_scale, low_size, high_size);
        const Fit four(candidate(scaled * 1.5f), tensor_scale, low_size, high_size);
        // Blended: which of the two it is cannot be foreseen, and a wrong guess costs a block's time.
        const bool is_four = four.total() < six.total();
        const __m256 which = _mm256_castsi256_ps(_mm256_set1_epi32(-static_cast<int>(is_four)));
        const __m256 low_level = _mm256_blendv_ps(six.low, four.low, which);
        const __m256 high_level = _mm256_blendv_ps(six.high, four.high, which);
        const uint32_t words[2] = {word_of(low_level, low), word_of(high_level, high)};
        std::memcpy(packed + 8 * b, words, sizeof words);
        scale[b] = e4m3_code(is_four ? four.scale : six.scale);
    }
    return finite;
}

// --- the squared norm of a gradient --------------------------------------------------------------

constexpr int64_t WIDTH = 256;   // values of a row
constexpr int64_t TOGETHER = 64;  // rows that are summed by one thread, whatever their number

template <class Value>
float row_squares(const Value* at) {
    __m256 low = _mm256_setzero_ps(), high = low;
    for (int64_t i = 0; i < WIDTH; i += 16) {
        const __m256 one = eight_of(at + i), other = eight_of(at + i + 8);
        low = _mm256_add_ps(low, _mm256_mul_ps(one, one));
        high = _mm256_add_ps(high, _mm256_mul_ps(other, other));
    }
    const __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

// Rows are summed in float32, then in float64: some rows at a time, and those sums in their order.
template <class Value>
double squares(const Value* value, int64_t rows, int threads) {
    std::vector<double> sums((rows + TOGETHER - 1) / TOGETHER);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t s = 0; s < static_cast<int64_t>(sums.size()); ++s) {
        const int64_t end = std::min(rows, (s + 1) * TOGETHER);
        for (int64_t r = s * TOGETHER; r < end; ++r) sums[s] += row_squares(value + WIDTH * r);
    }
    return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace
