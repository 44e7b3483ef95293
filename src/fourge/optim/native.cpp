// The AdamW update of kernel.py for bf16 weights with int8 moments, operation for operation, so
// that no bit differs. Loops are over the values of one block, whose moments share a scale.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int MOST = 256;  // values of a block
constexpr float TOP = 127, TOP_SQUARED = 127 * 127, INTERVALS = 254;
constexpr int32_t OCTAVES = 46, INFINITE = 0x7F800000;

struct Numbers {
    float beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, keep, root_scale, eps, reach,
        grad_scale;
};

template <class To, class From>
To bits_of(From value) {
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

float widened(uint16_t bf16) { return bits_of<float>(uint32_t(bf16) << 16); }
float widened(float value) { return value; }

uint32_t mixed(uint32_t bits) {
    bits ^= bits >> 16;
    bits *= 0x7FEB352Du;
    bits ^= bits >> 15;
    bits *= 0x846CA68Bu;
    return bits ^ bits >> 16;
}

// Uniform in [0, 1): eight bits of an element's own, and below them those of the weight.
float noise(uint32_t bits, int shift) {
    return float(int32_t(bits >> shift & 0xFF)) * 0x1p-8f + float(int32_t(bits & 0xFFFF)) * 0x1p-24f;
}

float decoded_v(uint8_t code, int32_t low, float step) {
    const int32_t offset = int32_t((float(code) - 1.0f) * step);
    return code ? bits_of<float>(low + offset) : 0.0f;
}

int8_t encoded_ratio(float m, float v, float root, float reach, uint32_t bits) {
    const float share = (v > 0 ? std::fabs(m) / (root * reach) : 0.0f) * TOP_SQUARED;
    const float below = std::floor(std::sqrt(share));
    const bool goes_up = noise(bits, 16) * (2.0f * below + 1.0f) < share - below * below;
    const float above = goes_up ? below + 1.0f : below, code = above > TOP ? TOP : above;
    return int8_t(m < 0 ? -code : code);
}

uint16_t rounded(float value, uint32_t bits) {
    return uint16_t((bits_of<uint32_t>(value) + (bits & 0xFFFF)) >> 16);
}

// One block; `index` is that of its first value in the whole tensor.
template <class Grad>
void update_block(uint16_t* __restrict weight, const Grad* __restrict grad,
                  int8_t* __restrict m_code, uint8_t* __restrict v_code, int32_t* v_low,
                  float* v_step, const Numbers& n, const uint32_t* words, int64_t index, int count) {
    float m[MOST], v[MOST], root[MOST];
    uint32_t bits[MOST];
    const uint32_t start = uint32_t(index), far = uint32_t(index >> 32) * 0x2545F491u;
    const float unit = n.reach * float(1.0 / TOP_SQUARED), step = *v_step;
    const int32_t low = *v_low;
    int32_t highest = 0, lowest = INFINITE;
    for (int i = 0; i < count; ++i) {
        const float g = widened(grad[i]) * n.grad_scale, code = m_code[i];
        const float old_v = decoded_v(v_code[i], low, step);
        const float old_m = code * std::fabs(code) * unit * std::sqrt(old_v);
        m[i] = old_m * n.beta1 + g * n.one_minus_beta1;
        v[i] = old_v * n.beta2 + g * g * n.one_minus_beta2;
        root[i] = std::sqrt(v[i]);
        bits[i] = mixed(mixed((start + uint32_t(i)) ^ words[0]) + far ^ words[1]);
        const float value = widened(weight[i]) * n.keep -
                            n.step_size * m[i] / (root[i] * n.root_scale + n.eps);
        weight[i] = rounded(value, bits[i]);
        m_code[i] = encoded_ratio(m[i], v[i], root[i], n.reach, bits[i]);
    }
    // Of numbers that are not negative the bits have the order of the values.
    for (int i = 0; i < count; ++i) {
        const int32_t raw = bits_of<int32_t>(v[i]), some = raw ? raw : INFINITE;
        highest = raw > highest ? raw : highest;
        lowest = some < lowest ? some : lowest;
    }
    const int32_t floor_bits = highest - (OCTAVES << 23);
    lowest = lowest < highest ? lowest : highest;
    lowest = lowest > floor_bits ? lowest : floor_bits;
    // As torch divides a number by a tensor: through the reciprocal.
    const float span = float(highest - lowest), per_code = span > 0 ? 1.0f / span * INTERVALS : 0.0f;
    for (int i = 0; i < count; ++i) {
        const int32_t above = bits_of<int32_t>(v[i]) - lowest;
        const float place = std::floor(float(above > 0 ? above : 0) * per_code + noise(bits[i], 24));
        v_code[i] = v[i] > 0 ? uint8_t(int32_t((place > INTERVALS ? INTERVALS : place) + 1.0f)) : 0;
    }
    *v_low = lowest;
    *v_step = span * float(1.0 / INTERVALS);
}

template <class Grad>
void update(uint16_t* weight, const Grad* grad, int8_t* m, uint8_t* v, int32_t* v_low, float* v_step,
            const Numbers* numbers, const uint32_t* words, int64_t first, int64_t blocks, int count,
            int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t b = 0; b < blocks; ++b) {
        const int64_t at = b * count;
        update_block(weight + at, grad + at, m + at, v + at, v_low + b, v_step + b, *numbers, words,
                     first + at, count);
    }
}

}  // namespace

extern "C" void update_bf16(uint16_t* weight, const uint16_t* grad, int8_t* m, uint8_t* v,
                            int32_t* v_low, float* v_step, const Numbers* numbers,
                            const uint32_t* words, int64_t first, int64_t blocks, int count,
                            int threads) {
    update(weight, grad, m, v, v_low, v_step, numbers, words, first, blocks, count, threads);
}

extern "C" void update_float32(uint16_t* weight, const float* grad, int8_t* m, uint8_t* v,
                               int32_t* v_low, float* v_step, const Numbers* numbers,
                               const uint32_t* words, int64_t first, int64_t blocks, int count,
                               int threads) {
    update(weight, grad, m, v, v_low, v_step, numbers, words, first, blocks, count, threads);
}
