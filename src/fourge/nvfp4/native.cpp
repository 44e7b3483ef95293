// What native.py describes, for processors with AVX2 and FMA: what it calls, by C names.

#include "native_encode.hpp"
#include "native_many.hpp"

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
