// The backward pass of RMS norm, y = weight * x * r with r = 1 / sqrt(mean of x * x, and a little).
//
//     gradient of x       (g - x r * mean of (g * x r)) * r    with g the given gradient * weight
//     gradient of weight  sum over rows of given gradient * x r
//
// A row is read twice, the second time from the cache; nothing is kept between rows but the sum.

#include "lanes.hpp"

namespace {

constexpr int64_t CHUNK = 64;  // rows that one sum is of: it is the same for any number of threads

// Shapes: x, given, grad [T, H]; weight [H]; per_size [T]; grad_weight [T / CHUNK, H], rounded up.
struct Sizes {
    int64_t rows, width;
};

template <class Value>
void back(const Value* x, const Value* given, const float* weight, const float* per_size,
          Value* grad, float* grad_weight, const Sizes& n, float per_width, int threads) {
    const int64_t chunks = (n.rows + CHUNK - 1) / CHUNK, width = n.width;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        float* total = grad_weight + chunk * width;
        std::fill(total, total + width, 0.0f);
        const int64_t end = std::min(n.rows, (chunk + 1) * CHUNK);
        for (int64_t row = chunk * CHUNK; row < end; ++row) {
            const int64_t at = row * width;
            const float r = per_size[row];
            Lanes along = {};
            for (int64_t h = 0; h < width; h += LANES) {
                const Lanes told = load(given + at + h) * (load(x + at + h) * r);
                along += told * load(weight + h);
                store(total + h, load(total + h) + told);
            }
            const float mean = sum(along) * per_width;
            for (int64_t h = 0; h < width; h += LANES) {
                const Lanes unit = load(x + at + h) * r;
                store(grad + at + h, (load(given + at + h) * load(weight + h) - unit * mean) * r);
            }
        }
    }
}

}  // namespace

#define KERNEL(NAME, VALUE)                                                                   \
    extern "C" void NAME(const VALUE* x, const VALUE* given, const float* weight,             \
                         const float* per_size, VALUE* grad, float* grad_weight,              \
                         const Sizes* sizes, float per_width, int threads) {                  \
        back(x, given, weight, per_size, grad, grad_weight, *sizes, per_width, threads);      \
    }

KERNEL(back_float32, float)
KERNEL(back_bf16, uint16_t)
