// What native.py describes, for processors with AVX2 and FMA.
//
// Shapes: M activation rows, R weight rows, C columns, B = C / 16 blocks of a row.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

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

// --- many activation rows: sixteen of them in a register, a weight in all of its lanes ------------
//
// Sums are those of `times`, bit for bit: what stands in one lane there is summed by itself here,
// and the sixteen sums are added in the order of `sum`.

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

template <class Weight>
void times_any(const float* x, const Weight& weight, float* y, int64_t m_rows, int64_t rows,
               int threads) {
    (m_rows > TILE ? times_many<Weight> : times<Weight>)(x, weight, y, m_rows, rows, threads);
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

// --- from weights to codes, as recipe.py's FOURGE chooses them: every operation in its order ------

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

// --- the squared norm of a gradient, as clip.py writes its order out ------------------------------

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

extern "C" double squares_bf16(const uint16_t* value, int64_t rows, int threads) {
    return squares(value, rows, threads);
}

extern "C" double squares_float32(const float* value, int64_t rows, int threads) {
    return squares(value, rows, threads);
}

extern "C" bool encode_bf16(const uint16_t* weight, const float* tensor_scale, uint8_t* packed,
                            uint8_t* scale, int64_t blocks, int threads) {
    return encode(weight, *tensor_scale, packed, scale, blocks, threads);
}

extern "C" bool encode_float32(const float* weight, const float* tensor_scale, uint8_t* packed,
                               uint8_t* scale, int64_t blocks, int threads) {
    return encode(weight, *tensor_scale, packed, scale, blocks, threads);
}

extern "C" void times_codes(const float* x, const uint8_t* packed_RC, const uint8_t* scale_RB,
                            const float* tensor_scale, float* y, int64_t m_rows, int64_t rows,
                            int64_t cols, int threads) {
    const Units units(*tensor_scale);
    times_any(x, Codes{packed_RC, scale_RB, units, cols}, y, m_rows, rows, threads);
}

extern "C" void decode_float32(const uint8_t* packed_RC, const uint8_t* scale_RB,
                               const float* tensor_scale, float* out_RC, int64_t rows, int64_t cols,
                               int threads) {
    decode(packed_RC, scale_RB, tensor_scale, out_RC, rows, cols, threads);
}

extern "C" void decode_bf16(const uint8_t* packed_RC, const uint8_t* scale_RB,
                            const float* tensor_scale, uint16_t* out_RC, int64_t rows, int64_t cols,
                            int threads) {
    decode(packed_RC, scale_RB, tensor_scale, out_RC, rows, cols, threads);
}

// Here and below the columns are a multiple of 16 too.
extern "C" void times_bf16(const float* x, const uint16_t* weight_RC, float* y, int64_t m_rows,
                           int64_t rows, int64_t cols, int threads) {
    times_any(x, Bf16{weight_RC, cols}, y, m_rows, rows, threads);
}

extern "C" void times_float32(const float* x, const float* weight_RC, float* y, int64_t m_rows,
                              int64_t rows, int64_t cols, int threads) {
    times_any(x, Float32{weight_RC, cols}, y, m_rows, rows, threads);
}
