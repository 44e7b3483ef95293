// Sixteen numbers at a time, values in float32 or bf16, sums in float32.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

constexpr int LANES = 16;
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint16_t Halves __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef uint32_t Words __attribute__((vector_size(LANES * sizeof(uint32_t))));

template <class To, class From>
To bits_of(const From& value) {
    To result;
    static_assert(sizeof result == sizeof value);
    std::memcpy(&result, &value, sizeof result);
    return result;
}

inline Lanes load(const float* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

inline Lanes load(const uint16_t* bf16) {
    Halves halves;
    std::memcpy(&halves, bf16, sizeof halves);
    return bits_of<Lanes>(__builtin_convertvector(halves, Words) << 16);
}

inline void store(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof lanes); }

inline void store(uint16_t* bf16, Lanes lanes) {
    const Words bits = bits_of<Words>(lanes);  // to the nearest, ties to even; NaN stays NaN
    const Halves halves = __builtin_convertvector((bits + 0x7FFF + (bits >> 16 & 1)) >> 16, Halves);
    std::memcpy(bf16, &halves, sizeof halves);
}

typedef float Eight __attribute__((vector_size(8 * sizeof(float))));
typedef float Four __attribute__((vector_size(4 * sizeof(float))));

template <class Half, class Whole>
Half folded(const Whole& whole) {
    Half halves[2];
    static_assert(sizeof halves == sizeof whole);
    std::memcpy(halves, &whole, sizeof halves);
    return halves[0] + halves[1];
}

inline float sum(Lanes lanes) {
    const Four four = folded<Four>(folded<Eight>(lanes));
    return four[0] + four[2] + (four[1] + four[3]);
}

// e to the x, for x from -87 to 0: 2 to the whole part by the exponent, to the rest by a series.
inline Lanes exponential(Lanes x) {
    constexpr float ROUND = 0x1.8p23f, LN2_HIGH = 0x1.62e4p-1f, LN2_LOW = 0x1.7f7d1cp-20f;
    const Lanes whole = (x * 0x1.715476p0f + ROUND) - ROUND;
    const Lanes rest = x - whole * LN2_HIGH - whole * LN2_LOW;
    Lanes series = rest * (1.0f / 720) + 1.0f / 120;
    series = series * rest + 1.0f / 24;
    series = series * rest + 1.0f / 6;
    series = series * rest + 0.5f;
    series = series * rest + 1.0f;
    series = series * rest + 1.0f;
    const Ints exponent = __builtin_convertvector(whole, Ints) + 127;
    return series * bits_of<Lanes>(exponent << 23);
}

// Scores become weights; returns one over their sum. There is room for whole lanes behind them.
inline float weigh(float* scores, int count) {
    const float most = *std::max_element(scores, scores + count);
    Lanes total = {};
    for (int at = 0; at < count; at += LANES) {
        for (int i = count; i < at + LANES; ++i) scores[i] = most - 1000;
        const Lanes below = load(scores + at) - most;
        const Lanes kept = below < -87.0f ? Lanes{} : exponential(below);  // a NaN stays one
        total += kept;
        store(scores + at, kept);
    }
    return 1 / sum(total);
}

}  // namespace
