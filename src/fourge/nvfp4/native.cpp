// What native.py describes, for processors with AVX2 and FMA.
//
// Shapes: M activation rows, R weight rows, C columns, B = C / 16 blocks of a row.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t BLOCK = 16;
constexpr int64_t TILE = 4;  // activation rows that share one decoding: 8 sums, all in registers

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

// Rows of codes: two words of eight codes make a block.
struct Codes {
    const uint8_t *packed_RC, *scale_RB;
    float tensor_scale;
    int64_t cols;

    // Eight weights: a word of codes, the first in the lowest bits, times their block's unit.
    static __m256 eight(const uint8_t* packed, __m256 unit) {
        const __m256 levels = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
        const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        int32_t word;
        std::memcpy(&word, packed, sizeof word);
        const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
        const __m256 size = _mm256_permutevar8x32_ps(levels, code);  // by the lowest 3 bits
        const __m256i sign =
            _mm256_and_si256(_mm256_slli_epi32(code, 28), _mm256_set1_epi32(INT32_MIN));
        return _mm256_mul_ps(_mm256_xor_ps(size, _mm256_castsi256_ps(sign)), unit);
    }

    void block(int64_t r, int64_t c, __m256& first, __m256& second) const {
        const uint8_t* packed = packed_RC + (r * cols + c) / 2;
        const float scale = scales.value[scale_RB[(r * cols + c) / BLOCK]];
        const __m256 unit = _mm256_set1_ps(scale * tensor_scale);
        first = eight(packed, unit);
        second = eight(packed + 4, unit);
    }
};

// Rows of bf16: the upper halves of float32s.
struct Bf16 {
    const uint16_t* weight_RC;
    int64_t cols;

    static __m256 eight(const uint16_t* weight) {
        const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weight));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }

    void block(int64_t r, int64_t c, __m256& first, __m256& second) const {
        first = eight(weight_RC + r * cols + c);
        second = eight(weight_RC + r * cols + c + 8);
    }
};

struct Float32 {
    const float* weight_RC;
    int64_t cols;

    void block(int64_t r, int64_t c, __m256& first, __m256& second) const {
        first = _mm256_loadu_ps(weight_RC + r * cols + c);
        second = _mm256_loadu_ps(weight_RC + r * cols + c + 8);
    }
};

float sum(__m256 v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

// One weight row times M activation rows.
template <int64_t M, class Weight>
void times_row(const float* x, const Weight& weight, int64_t r, float* y, int64_t rows) {
    __m256 low[M], high[M], first, second;
    for (int m = 0; m < M; ++m) low[m] = high[m] = _mm256_setzero_ps();
    for (int64_t c = 0; c < weight.cols; c += BLOCK) {
        weight.block(r, c, first, second);
        for (int m = 0; m < M; ++m) {
            const float* at = x + m * weight.cols + c;
            low[m] = _mm256_fmadd_ps(first, _mm256_loadu_ps(at), low[m]);
            high[m] = _mm256_fmadd_ps(second, _mm256_loadu_ps(at + 8), high[m]);
        }
    }
    for (int m = 0; m < M; ++m) y[m * rows + r] = sum(_mm256_add_ps(low[m], high[m]));
}

// y [M, R] = x [M, C] @ weight [R, C].T
template <class Weight>
void times(const float* x, const Weight& weight, float* y, int64_t m_rows, int64_t rows,
           int threads) {
#pragma omp parallel for schedule(dynamic, 64) num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t m = 0; m < m_rows; m += TILE) {
            const float* x_m = x + m * weight.cols;
            float* y_m = y + m * rows;
            switch (m_rows - m) {
                case 1: times_row<1>(x_m, weight, r, y_m, rows); break;
                case 2: times_row<2>(x_m, weight, r, y_m, rows); break;
                case 3: times_row<3>(x_m, weight, r, y_m, rows); break;
                default: times_row<TILE>(x_m, weight, r, y_m, rows);
            }
        }
    }
}

}  // namespace

extern "C" void times_codes(const float* x, const uint8_t* packed_RC, const uint8_t* scale_RB,
                            const float* tensor_scale, float* y, int64_t m_rows, int64_t rows,
                            int64_t cols, int threads) {
    times(x, Codes{packed_RC, scale_RB, *tensor_scale, cols}, y, m_rows, rows, threads);
}

extern "C" void decode_codes(const uint8_t* packed_RC, const uint8_t* scale_RB,
                             const float* tensor_scale, float* out_RC, int64_t rows, int64_t cols,
                             int threads) {
    const Codes weight{packed_RC, scale_RB, *tensor_scale, cols};
#pragma omp parallel for schedule(dynamic, 64) num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; c += BLOCK) {
            __m256 first, second;
            weight.block(r, c, first, second);
            _mm256_storeu_ps(out_RC + r * cols + c, first);
            _mm256_storeu_ps(out_RC + r * cols + c + 8, second);
        }
    }
}

// Here and below the columns are a multiple of 16 too.
extern "C" void times_bf16(const float* x, const uint16_t* weight_RC, float* y, int64_t m_rows,
                           int64_t rows, int64_t cols, int threads) {
    times(x, Bf16{weight_RC, cols}, y, m_rows, rows, threads);
}

extern "C" void times_float32(const float* x, const float* weight_RC, float* y, int64_t m_rows,
                              int64_t rows, int64_t cols, int threads) {
    times(x, Float32{weight_RC, cols}, y, m_rows, rows, threads);
}
