// A few activation rows times weights of any form, decoded in registers.
//
// Shapes: M activation rows, R weight rows, C columns, B = C / 16 blocks of a row.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t BLOCK = 16;

// E4M3 has no infinity; 0x7f and 0xff are its NaNs.
float e4m3(int code) {
    const int exponent = (code >> 3) & 15, mantissa = code & 7;
    if (exponent == 15 && mantissa == 7) return __builtin_nanf("");
    const float size = exponent ? __builtin_ldexpf(8 + mantissa, exponent - 10)
                                : __builtin_ldexpf(mantissa, -9);
    return code & 128 ? -size : size;
}

struct Scales {
    float value[256];
    Scales() {
        for (int code = 0; code < 256; ++code) value[code] = e4m3(code);
    }
};

const Scales scales;

constexpr int32_t NAN_BF16 = 0x7fc0;  // what torch makes of one

// Sixteen floats, as many as a block has: one register or two. Sums are the same, bit for bit. As
// bf16 they are rounded to nearest, ties to even.
#ifdef __AVX512F__
constexpr int64_t TILE = 8;    // activation rows that share what is decoded
constexpr int64_t ACROSS = 4;  // sixteens of activation rows side by side

struct Sixteen {
    __m512 all;

    static Sixteen zero() { return {_mm512_setzero_ps()}; }
    static Sixteen all_of(float value) { return {_mm512_set1_ps(value)}; }
    static Sixteen load(const float* at) { return {_mm512_loadu_ps(at)}; }
    void store(float* at) const { _mm512_storeu_ps(at, all); }

    void store(uint16_t* at) const {
        const __m512i bits = _mm512_castps_si512(all), one = _mm512_set1_epi32(1);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
        const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
        const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
        const __mmask16 is_number = _mm512_cmp_ps_mask(all, all, _CMP_ORD_Q);
        const __m512i result = _mm512_mask_blend_epi32(is_number, _mm512_set1_epi32(NAN_BF16), rounded);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(result));
    }

    static Sixteen from_bf16(const uint16_t* at) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
    }

    // A word has eight codes, the first in the lowest bits.
    static Sixteen from_codes(const int32_t* words, float unit) {
        const __m512 levels = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                             -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
        const __m512i shifts =
            _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        const __m512i both =
            _mm512_mask_set1_epi32(_mm512_set1_epi32(words[0]), 0xff00, words[1]);
        const __m512i code = _mm512_srlv_epi32(both, shifts);
        const __m512 level = _mm512_permutexvar_ps(code, levels);  // by the lowest 4 bits
        return {_mm512_mul_ps(level, _mm512_set1_ps(unit))};
    }

    void add_product(const Sixteen& a, const Sixteen& b) { all = _mm512_fmadd_ps(a.all, b.all, all); }

    __m256 folded() const {
        const __m256d high = _mm512_extractf64x4_pd(_mm512_castps_pd(all), 1);
        return _mm256_add_ps(_mm512_castps512_ps256(all), _mm256_castpd_ps(high));
    }
};
#else
constexpr int64_t TILE = 4;
constexpr int64_t ACROSS = 1;

struct Sixteen {
    __m256 low, high;

    static Sixteen zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static Sixteen all_of(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
    static Sixteen load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }

    void store(float* at) const {
        _mm256_storeu_ps(at, low);
        _mm256_storeu_ps(at + 8, high);
    }

    static __m256i to_bf16(__m256 value) {
        const __m256i bits = _mm256_castps_si256(value), one = _mm256_set1_epi32(1);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
        const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
        const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
        const __m256i is_number = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_ORD_Q));
        return _mm256_blendv_epi8(_mm256_set1_epi32(NAN_BF16), rounded, is_number);
    }

    void store(uint16_t* at) const {
        const __m256i packed = _mm256_packus_epi32(to_bf16(low), to_bf16(high));  // halves mixed
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_permute4x64_epi64(packed, 0xd8));
    }

    static __m256 eight(const uint16_t* at) {
        const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }

    static Sixteen from_bf16(const uint16_t* at) { return {eight(at), eight(at + 8)}; }

    // A word has eight codes, the first in the lowest bits.
    static __m256 eight(int32_t word, __m256 unit) {
        const __m256 levels = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
        const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
        const __m256 size = _mm256_permutevar8x32_ps(levels, code);  // by the lowest 3 bits
        const __m256i sign =
            _mm256_and_si256(_mm256_slli_epi32(code, 28), _mm256_set1_epi32(INT32_MIN));
        return _mm256_mul_ps(_mm256_xor_ps(size, _mm256_castsi256_ps(sign)), unit);
    }

    static Sixteen from_codes(const int32_t* words, float unit) {
        return {eight(words[0], _mm256_set1_ps(unit)), eight(words[1], _mm256_set1_ps(unit))};
    }

    void add_product(const Sixteen& a, const Sixteen& b) {
        low = _mm256_fmadd_ps(a.low, b.low, low);
        high = _mm256_fmadd_ps(a.high, b.high, high);
    }

    __m256 folded() const { return _mm256_add_ps(low, high); }
};
#endif

float sum(const Sixteen& v) {
    const __m256 eight = v.folded();
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

// The units of a weight's blocks by the codes of their scales.
struct Units {
    float value[256];
    explicit Units(float tensor_scale) {
        for (int code = 0; code < 256; ++code) value[code] = scales.value[code] * tensor_scale;
    }
};

struct CodesRow {
    const uint8_t *packed_C, *scale_B;
    const float* units;

    Sixteen block(int64_t b) const {
        int32_t words[2];
        std::memcpy(words, packed_C + 8 * b, sizeof words);
        return Sixteen::from_codes(words, units[scale_B[b]]);
    }
};

struct Codes {
    static constexpr int64_t AT_ONCE = 2;
    const uint8_t *packed_RC, *scale_RB;
    const Units& units;
    int64_t cols;

    CodesRow row(int64_t r) const {
        return {packed_RC + r * (cols / 2), scale_RB + r * (cols / BLOCK), units.value};
    }
};

// The upper halves of float32s.
struct Bf16Row {
    const uint16_t* weight_C;
    Sixteen block(int64_t b) const { return Sixteen::from_bf16(weight_C + BLOCK * b); }
};

struct Bf16 {
    static constexpr int64_t AT_ONCE = 1;
    const uint16_t* weight_RC;
    int64_t cols;
    Bf16Row row(int64_t r) const { return {weight_RC + r * cols}; }
};

struct Float32Row {
    const float* weight_C;
    Sixteen block(int64_t b) const { return Sixteen::load(weight_C + BLOCK * b); }
};

struct Float32 {
    static constexpr int64_t AT_ONCE = 1;
    const float* weight_RC;
    int64_t cols;
    Float32Row row(int64_t r) const { return {weight_RC + r * cols}; }
};

// R weight rows times M activation rows. Unrolled early, or the sums would not stay in registers.
template <int64_t M, int64_t R, class Weight>
void times_tile(const float* x, const Weight& weight, int64_t r, float* y, int64_t rows) {
    decltype(weight.row(r)) row[R];
    Sixteen sums[R][M];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
        row[i] = weight.row(r + i);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) sums[i][m] = Sixteen::zero();
    }
    for (int64_t b = 0; b < weight.cols / BLOCK; ++b) {
        Sixteen block[R];
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) block[i] = row[i].block(b);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
            const Sixteen value = Sixteen::load(x + m * weight.cols + BLOCK * b);
#pragma GCC unroll 16
            for (int i = 0; i < R; ++i) sums[i][m].add_product(block[i], value);
        }
    }
    for (int i = 0; i < R; ++i)
        for (int m = 0; m < M; ++m) y[m * rows + r + i] = sum(sums[i][m]);
}

// A panel of weight rows, from r on, times M activation rows. Decoded weights go two rows at a time
// where there are registers for it: each value of x is then loaded half as often.
template <int64_t M, class Weight>
void times_panel(const float* x, const Weight& weight, int64_t r, int64_t end, float* y,
                 int64_t rows) {
    constexpr int64_t R = M == 8 ? Weight::AT_ONCE : 1;
    for (; r + R <= end; r += R) times_tile<M, R>(x, weight, r, y, rows);
    for (; r < end; ++r) times_tile<M, 1>(x, weight, r, y, rows);
}

template <int64_t M, class Weight>
void times_at_most(int64_t most, const float* x, const Weight& weight, int64_t r, int64_t end,
                   float* y, int64_t rows) {
    if constexpr (M > 1)
        if (most < M) return times_at_most<M - 1>(most, x, weight, r, end, y, rows);
    times_panel<M>(x, weight, r, end, y, rows);
}

constexpr int64_t PANEL = 64;  // weight rows: read once, they stay in the cache for all of x

// y [M, R] = x [M, C] @ weight [R, C].T
template <class Weight>
void times(const float* x, const Weight& weight, float* y, int64_t m_rows, int64_t rows,
           int threads) {
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; r += PANEL) {
        const int64_t end = rows - r < PANEL ? rows : r + PANEL;
        for (int64_t m = 0; m < m_rows; m += TILE)
            times_at_most<TILE>(m_rows - m, x + m * weight.cols, weight, r, end, y + m * rows, rows);
    }
}

}  // namespace
