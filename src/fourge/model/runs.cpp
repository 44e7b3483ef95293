// Attention in a sequence of runs, forwards and backwards (runs.py).
//
// A job is one run and one head of keys: the keys and values on the run's way to the root are laid
// side by side in float32, and the queries of all heads that read them are multiplied by them at
// once. Backwards the weights are computed again. What a job gives to the keys of runs that others
// follow too is kept apart and added up afterwards, in the order of the runs, so that sums do not
// depend on the threads.
//
// Shapes: Q queries of a run and of the heads in a group, one after the other; T keys that they
// see, rounded up to whole lanes; D values of a head.

#pragma GCC optimize("fp-contract=fast")

#include <memory>
#include <vector>

#include "lanes.hpp"

namespace {

struct Left {  // of a product: rows and columns may be the other way round
    const float* values;
    int64_t row, col;
};

// out[M, N lanes] = a[M, inner] b[inner, N lanes]; rows of b and out are `across` apart.
template <int M, int N>
void tile(Left a, const float* b, int inner, float* out, int64_t across) {
    Lanes sums[M][N] = {};
    for (int k = 0; k < inner; ++k, a.values += a.col, b += across) {
        Lanes right[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) right[n] = load(b + n * LANES);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sums[m][n] += a.values[m * a.row] * right[n];
    }
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) store(out + m * across + n * LANES, sums[m][n]);
}

template <int M, int N>
void tiles(int rows, Left a, const float* b, int inner, float* out, int64_t across) {
    for (; rows >= M; rows -= M, a.values += M * a.row, out += M * across)
        tile<M, N>(a, b, inner, out, across);
    if constexpr (M > 1)
        if (rows) tiles<M / 2, N>(rows, a, b, inner, out, across);
}

#ifdef __AVX512F__
constexpr int TALL = 6, BROAD = 4;  // sums that fill the registers
#else
constexpr int TALL = 3, BROAD = 2;
#endif

// out[rows, cols] = a[rows, inner] b[inner, cols], columns in whole lanes.
void product(int rows, int inner, int cols, Left a, const float* b, float* out) {
    int at = 0;
    for (; at + BROAD * LANES <= cols; at += BROAD * LANES)
        tiles<TALL, BROAD>(rows, a, b + at, inner, out + at, cols);
    for (; at < cols; at += LANES) tiles<2 * TALL, 1>(rows, a, b + at, inner, out + at, cols);
}

// Tensors [tokens, heads, size] whose values of a head are one after the other.
template <class Value>
struct Heads {
    Value* values;
    int64_t head, token;
    Value* at(int64_t h, int64_t t) const { return values + h * head + t * token; }
};

struct Sizes {
    int64_t heads, key_heads, size, tokens, runs;
    int64_t query_head, query_token, key_head, key_token, value_head, value_token;
};

// Where runs begin [R + 1]; where the list of those before each begins [R + 1], and these lists.
struct Runs {
    const int64_t *starts, *lists, *before;
    int count(int64_t run) const { return int(starts[run + 1] - starts[run]); }

    int seen_before(int64_t run) const {
        int seen = 0;
        for (int64_t n = lists[run]; n < lists[run + 1]; ++n) seen += count(before[n]);
        return seen;
    }

    template <class Do>
    void each_token(int64_t run, Do todo) const {  // on the way from the root
        int place = 0;
        for (int64_t n = lists[run]; n < lists[run + 1]; ++n)
            for (int64_t t = starts[before[n]]; t < starts[before[n] + 1]; ++t) todo(place++, t);
        for (int64_t t = starts[run]; t < starts[run + 1]; ++t) todo(place++, t);
    }
};

int whole_lanes(int count) { return (count + LANES - 1) / LANES * LANES; }

float* grown(std::vector<float>& buffer, int64_t count) {
    if (int64_t(buffer.size()) < count) buffer.resize(count);
    return buffer.data();
}

// A thread's room for one job.
struct Desk {
    std::vector<float> query, key, key_across, value, value_across, weight, out, given, slope;
};

template <class To, class From>
void copy(To* to, const From* from, int64_t count, float scale = 1) {
    for (int64_t at = 0; at < count; at += LANES) store(to + at, load(from + at) * scale);
}

template <class Value>
struct Job {
    const Runs& runs;
    const Sizes& n;
    Desk& desk;
    int64_t run, head;
    int group, count, before;
    int rows, seen, width;  // Q; T as it is, and in whole lanes

    Job(const Runs& all, const Sizes& sizes, Desk& room, int64_t number)
        : runs(all), n(sizes), desk(room), run(number / n.key_heads), head(number % n.key_heads),
          group(int(n.heads / n.key_heads)), count(runs.count(run)),
          before(runs.seen_before(run)), rows(group * count), seen(before + count),
          width(whole_lanes(seen)) {}

    int64_t head_of(int row) const { return head * group + row / count; }
    int64_t token_of(int row) const { return runs.starts[run] + row % count; }

    // What belongs to the run's queries [Q, D], in float32; and back to [tokens, heads, D].
    const float* gathered(std::vector<float>& room, Heads<const Value> from, float scale = 1) const {
        float* out = grown(room, rows * n.size);
        for (int row = 0; row < rows; ++row)
            copy(out + row * n.size, from.at(head_of(row), token_of(row)), n.size, scale);
        return out;
    }

    void scatter(const float* rows_QD, Value* to, float scale = 1) const {
        for (int row = 0; row < rows; ++row)
            copy(to + (token_of(row) * n.heads + head_of(row)) * n.size, rows_QD + row * n.size,
                 n.size, scale);
    }

    const float* along(std::vector<float>& room, Heads<const Value> from) const {  // [T, D]
        float* out = grown(room, width * n.size);
        runs.each_token(run, [&](int place, int64_t token) {
            copy(out + place * n.size, from.at(head, token), n.size);
        });
        std::fill(out + seen * n.size, out + width * n.size, 0.0f);
        return out;
    }

    const float* across(std::vector<float>& room, const float* rows_TD) const {  // [D, T]
        float* out = grown(room, width * n.size);
        for (int t = 0; t < width; ++t)
            for (int d = 0; d < n.size; ++d) out[d * width + t] = rows_TD[t * n.size + d];
        return out;
    }

    // What each query gives to each key: 0 to those that it does not see.
    const float* weights(const float* query_QD, const float* key_DT) const {
        float* out = grown(desk.weight, int64_t(rows) * width);
        product(rows, int(n.size), width, {query_QD, n.size, 1}, key_DT, out);
        for (int row = 0; row < rows; ++row) {
            float* scores = out + int64_t(row) * width;
            const int sees = before + row % count + 1;
            const float share = weigh(scores, sees);
            copy(scores, scores, sees, share);
            std::fill(scores + sees, scores + width, 0.0f);
        }
        return out;
    }

    // Slopes of what came out by the weights become slopes by the scores.
    void through_softmax(const float* weight_QT, float* slope_QT) const {
        for (int row = 0; row < rows; ++row, weight_QT += width, slope_QT += width) {
            Lanes total = {};
            for (int t = 0; t < width; t += LANES) total += load(weight_QT + t) * load(slope_QT + t);
            const float mean = sum(total);
            for (int t = 0; t < width; t += LANES)
                store(slope_QT + t, load(weight_QT + t) * (load(slope_QT + t) - mean));
        }
    }
};

template <class Value>
struct Given {  // what both ways begin with
    Heads<const Value> query, key, value;
};

template <class Value>
void forward(const Given<Value>& given, const Runs& runs, Value* out, const Sizes& n, float scale,
             int threads) {
#pragma omp parallel num_threads(threads)
    {
        Desk desk;
#pragma omp for schedule(dynamic)
        for (int64_t number = 0; number < n.runs * n.key_heads; ++number) {
            const Job<Value> job(runs, n, desk, number);
            const float* query_QD = job.gathered(desk.query, given.query, scale);
            const float* key_TD = job.along(desk.key, given.key);
            const float* value_TD = job.along(desk.value, given.value);
            const float* weight_QT = job.weights(query_QD, job.across(desk.key_across, key_TD));
            float* out_QD = grown(desk.out, job.rows * n.size);
            product(job.rows, job.seen, int(n.size), {weight_QT, job.width, 1}, value_TD, out_QD);
            job.scatter(out_QD, out);
        }
    }
}

// What each run gives to the keys that it sees, and to the values: [T, D] for each head.
struct Parts {
    const Sizes& n;
    std::vector<int64_t> starts;
    std::unique_ptr<float[]> values;

    Parts(const Runs& runs, const Sizes& sizes) : n(sizes), starts(sizes.runs + 1) {
        for (int64_t run = 0; run < n.runs; ++run) {
            const int64_t seen = runs.seen_before(run) + runs.count(run);
            starts[run + 1] = starts[run] + 2 * n.key_heads * seen * n.size;
        }
        values.reset(new float[starts[n.runs]]);
    }

    float* of(int64_t run, int64_t head, bool is_value) const {
        const int64_t size = (starts[run + 1] - starts[run]) / (2 * n.key_heads);
        return values.get() + starts[run] + (2 * head + is_value) * size;
    }
};

// Their sums over the runs, to [tokens, key heads, D].
template <class Value>
void add_up(const Parts& parts, const Runs& runs, int64_t head, bool is_value, Value* to) {
    const Sizes& n = parts.n;
    std::vector<float> total(n.tokens * n.size);
    for (int64_t run = 0; run < n.runs; ++run) {
        const float* part_TD = parts.of(run, head, is_value);
        runs.each_token(run, [&](int place, int64_t token) {
            for (int64_t d = 0; d < n.size; d += LANES) {
                float* sums = total.data() + token * n.size + d;
                store(sums, load(sums) + load(part_TD + place * n.size + d));
            }
        });
    }
    for (int64_t token = 0; token < n.tokens; ++token)
        copy(to + (token * n.key_heads + head) * n.size, total.data() + token * n.size, n.size);
}

template <class Value>
void backward(const Given<Value>& given, Heads<const Value> grad, const Runs& runs, Value* to_query,
              Value* to_key, Value* to_value, const Sizes& n, float scale, int threads) {
    const Parts parts(runs, n);
#pragma omp parallel num_threads(threads)
    {
        Desk desk;
#pragma omp for schedule(dynamic)
        for (int64_t number = 0; number < n.runs * n.key_heads; ++number) {
            const Job<Value> job(runs, n, desk, number);
            const int size = int(n.size), rows = job.rows, seen = job.seen, width = job.width;
            const float* query_QD = job.gathered(desk.query, given.query, scale);
            const float* grad_QD = job.gathered(desk.given, grad);
            const float* key_TD = job.along(desk.key, given.key);
            const float* value_TD = job.along(desk.value, given.value);
            const float* weight_QT = job.weights(query_QD, job.across(desk.key_across, key_TD));
            product(seen, rows, size, {weight_QT, 1, width}, grad_QD,
                    parts.of(job.run, job.head, true));
            float* slope_QT = grown(desk.slope, int64_t(rows) * width);
            product(rows, size, width, {grad_QD, size, 1}, job.across(desk.value_across, value_TD),
                    slope_QT);
            job.through_softmax(weight_QT, slope_QT);
            product(seen, rows, size, {slope_QT, 1, width}, query_QD,
                    parts.of(job.run, job.head, false));
            float* out_QD = grown(desk.out, rows * n.size);
            product(rows, seen, size, {slope_QT, width, 1}, key_TD, out_QD);
            job.scatter(out_QD, to_query, scale);
        }
#pragma omp for schedule(static)
        for (int64_t side = 0; side < 2 * n.key_heads; ++side)
            add_up(parts, runs, side / 2, side % 2, side % 2 ? to_value : to_key);
    }
}

}  // namespace

#define GIVEN(VALUE)                                                                               \
    Given<VALUE> {                                                                                \
        {query, n->query_head, n->query_token}, {key, n->key_head, n->key_token}, {               \
            value, n->value_head, n->value_token                                                  \
        }                                                                                         \
    }

#define KERNELS(FORWARD, BACKWARD, VALUE)                                                         \
    extern "C" void FORWARD(const VALUE* query, const VALUE* key, const VALUE* value,             \
                            const int64_t* starts, const int64_t* lists, const int64_t* before,   \
                            VALUE* out, const Sizes* n, float scale, int threads) {               \
        forward<VALUE>(GIVEN(VALUE), {starts, lists, before}, out, *n, scale, threads);           \
    }                                                                                             \
    extern "C" void BACKWARD(const VALUE* query, const VALUE* key, const VALUE* value,            \
                             const VALUE* grad, const int64_t* starts, const int64_t* lists,      \
                             const int64_t* before, VALUE* to_query, VALUE* to_key,               \
                             VALUE* to_value, const Sizes* n, float scale, int threads) {         \
        backward<VALUE>(GIVEN(VALUE), {grad, n->size, n->heads * n->size},                        \
                        {starts, lists, before}, to_query, to_key, to_value, *n, scale, threads); \
    }

KERNELS(forward_float32, backward_float32, float)
KERNELS(forward_bf16, backward_bf16, uint16_t)
