// Attention of rows that have keys of their own and begin with keys that all of them share.
//
// A row's queries see the shared keys, as many as the row begins with, then their own up to
// themselves. Query heads that read the same keys are done together: a key is loaded once for all
// of them, and a shared key is in the cache from the row before.

#include <vector>

#include "lanes.hpp"

namespace {

template <class Value>
struct Piece {  // tokens that follow each other
    const Value *keys, *values;
    int64_t size;
    int count;

    Piece from(int first, int end) const {
        return {keys + first * size, values + first * size, size, end - first};
    }
};

// One row and one head of keys, which GROUP query heads read.
template <class Value, int GROUP>
void attend_one(const Value* query, int64_t apart, const Piece<Value>* pieces, Value* out, int size,
                float scale, float* scores, int room) {
    int count = 0;
    for (int p = 0; p < 2; ++p) {
        const Value* key = pieces[p].keys;
        for (int t = 0; t < pieces[p].count; ++t, ++count, key += size) {
            Lanes dot[GROUP] = {};
            for (int d = 0; d < size; d += LANES) {
                const Lanes k = load(key + d);
                for (int g = 0; g < GROUP; ++g) dot[g] += load(query + g * apart + d) * k;
            }
            for (int g = 0; g < GROUP; ++g) scores[g * room + count] = sum(dot[g]) * scale;
        }
    }
    float share[GROUP];
    for (int g = 0; g < GROUP; ++g) share[g] = weigh(scores + g * room, count);
    for (int d = 0; d < size; d += LANES) {
        Lanes told[GROUP] = {};
        const float* weight = scores;
        for (int p = 0; p < 2; ++p) {
            const Value* value = pieces[p].values + d;
            for (int t = 0; t < pieces[p].count; ++t, ++weight, value += size) {
                const Lanes v = load(value);
                for (int g = 0; g < GROUP; ++g) told[g] += v * weight[g * room];
            }
        }
        for (int g = 0; g < GROUP; ++g) store(out + g * size + d, told[g] * share[g]);
    }
}

// Shapes: query [B, H, Q, D] with strides; keys, values [B, K, T, D] and shared [K, P, D], whose
// tokens are one after the other; out [B, Q, H, D]; starts and begins [B].
struct Sizes {
    int64_t rows, heads, key_heads, queries, columns, size, shared, window;
    int64_t query_row, query_head, query_token, key_row, key_head, value_row, value_head;
};

template <class Value>
void attend(const Value* query, const Value* keys, const Value* values, const Value* shared_keys,
            const Value* shared_values, const int64_t* starts, const int64_t* begins, Value* out,
            const Sizes& n, float scale, int threads) {
    const int64_t group = n.heads / n.key_heads, size = n.size;
    const int room = int(n.shared + n.columns + 2 * LANES);
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> scores(4 * room);
#pragma omp for schedule(static)
        for (int64_t job = 0; job < n.rows * n.key_heads; ++job) {
            const int64_t row = job / n.key_heads, head = job % n.key_heads;
            const int64_t start = starts[row], own = n.columns - start;
            const Piece<Value> shared{shared_keys + head * n.shared * size,
                                      shared_values + head * n.shared * size, size,
                                      int(begins[row])};
            const Piece<Value> rest{keys + row * n.key_row + head * n.key_head + start * size,
                                    values + row * n.value_row + head * n.value_head + start * size,
                                    size, 0};
            for (int64_t q = 0; q < n.queries; ++q) {
                const int seen = int(own - (n.queries - 1 - q));
                if (seen <= 0) continue;  // left of where the row begins: nobody reads it
                const int forgotten = int(std::max<int64_t>(0, shared.count + seen - n.window));
                const int early = std::min(forgotten, shared.count), late = forgotten - early;
                const Piece<Value> pieces[2] = {shared.from(early, shared.count),
                                                rest.from(late, seen)};
                for (int64_t g = 0; g < group;) {
                    const int64_t h = head * group + g;
                    const Value* from = query + row * n.query_row + h * n.query_head + q * n.query_token;
                    Value* to = out + ((row * n.queries + q) * n.heads + h) * size;
                    const auto one = [&](auto kernel, int heads) {
                        kernel(from, n.query_head, pieces, to, int(size), scale, scores.data(), room);
                        g += heads;
                    };
                    switch (group - g) {
                        case 1: one(attend_one<Value, 1>, 1); break;
                        case 2: one(attend_one<Value, 2>, 2); break;
                        case 3: one(attend_one<Value, 3>, 3); break;
                        default: one(attend_one<Value, 4>, 4);
                    }
                }
            }
        }
    }
}

}  // namespace

#define KERNEL(NAME, VALUE)                                                                       \
    extern "C" void NAME(const VALUE* query, const VALUE* keys, const VALUE* values,              \
                         const VALUE* shared_keys, const VALUE* shared_values,                    \
                         const int64_t* starts, const int64_t* begins, VALUE* out,                \
                         const Sizes* sizes, float scale, int threads) {                          \
        attend(query, keys, values, shared_keys, shared_values, starts, begins, out, *sizes,      \
               scale, threads);                                                                   \
    }

KERNEL(attend_float32, float)
KERNEL(attend_bf16, uint16_t)
