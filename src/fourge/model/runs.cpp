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

// out[M, N] = a[M, K] b[K, N] for M rows of a tile; a may be a transpose.
template <int M, int N>
void tile(const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row, int inner,
          float* out, int64_t out_row) {
    Lanes sums[M][N] = {};
    for (int k = 0; k < inner; ++k, a += a_col, b += b_row) {
        Lanes right[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) right[n] = load(b + n * LANES);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sums[m][n] += a[m * a_row] * right[n];
    }
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) store(out + m * out_row + n * LANES, sums[m][n]);
}

template <int M, int N>
void tiles(int rows, const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row,
           int inner, float* out, int64_t out_row) {
    for (; rows >= M; rows -= M, a += M * a_row, out += M * out_row)
        tile<M, N>(a, a_row, a_col, b, b_row, inner, out, out_row);
    if constexpr (M > 1)
        if (rows) tiles<M / 2, N>(rows, a, a_row, a_col, b, b_row, inner, out, out_row);
}

#ifdef __AVX512F__
constexpr int TALL = 6, BROAD = 4;  // sums that fill the registers
#else
constexpr int TALL = 3, BROAD = 2;
#endif

struct Left {  // of a product: rows and columns may be the other way round
    const float* values;
    int64_t row, col;
};

// out[rows, cols] = a[rows, inner] b[inner, cols], of whole lanes.
void product(int rows, int inner, int cols, Left a, const float* b, float* out) {
    int at = 0;
    for (; at + BROAD * LANES <= cols; at += BROAD * LANES)
        tiles<TALL, BROAD>(rows, a.values, a.row, a.col, b + at, cols, inner, out + at, cols);
    for (; at < cols; at += LANES)
        tiles<2 * TALL, 1>(rows, a.values, a.row, a.col, b + at, cols, inner, out + at, cols);
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
    std::vector<float> key_given, value_given;
};

template <class Value>
struct Job {
    const Runs& runs;
    const Sizes& n;
    Desk& desk;
    int64_t run, head;
    int group, count, before, seen, width, rows;  // of queries: rows

    Job(const Runs& runs, const Sizes& n, Desk& desk, int64_t job)
        : runs(runs), n(n), desk(desk), run(job / n.key_heads), head(job % n.key_heads),
          group(int(n.heads / n.key_heads)), count(runs.count(run)),
          before(runs.seen_before(run)), seen(before + count), width(whole_lanes(seen)),
          rows(group * count) {}

    // Rows of the run's queries, or of what belongs to them, in float32.
    const float* of_queries(std::vector<float>& room, Heads<const Value> from, float scale) {
        float* out = grown(room, int64_t(rows) * n.size);
        for (int row = 0; row < rows; ++row) {
            const Value* values = from.at(head * group + row / count, runs.starts[run] + row % count);
            for (int d = 0; d < n.size; d += LANES) store(out + row * n.size + d, load(values + d) * scale);
        }
        return out;
    }

    const float* along(std::vector<float>& room, Heads<const Value> from) {  // [T, D]
        float* out = grown(room, int64_t(width) * n.size);
        runs.each_token(run, [&](int place, int64_t token) {
            const Value* values = from.at(head, token);
            for (int d = 0; d < n.size; d += LANES) store(out + place * n.size + d, load(values + d));
        });
        std::fill(out + seen * n.size, out + int64_t(width) * n.size, 0.0f);
        return out;
    }

    const float* across(std::vector<float>& room, const float* rows_TD) {  // [D, T]
        float* out = grown(room, int64_t(width) * n.size);
        for (int t = 0; t < width; ++t)
            for (int d = 0; d < n.size; ++d) out[d * width + t] = rows_TD[t * n.size + d];
        return out;
    }

    // What each query gives to each key: 0 to those that it does not see.
    float* weights(const float* query, const float* key_across) {
        float* out = grown(desk.weight, int64_t(rows) * width);
        product(rows, int(n.size), width, {query, n.size, 1}, key_across, out);
        for (int row = 0; row < rows; ++row) {
            float* scores = out + int64_t(row) * width;
            const int sees = before + row % count + 1;
            const float share = weigh(scores, sees);
            for (int t = 0; t < width; t += LANES) {
                if (t < sees) store(scores + t, load(scores + t) * share);
            }
            std::fill(scores + sees, scores + width, 0.0f);
        }
        return out;
    }
};

template <class Value>
void forward(Heads<const Value> query, Heads<const Value> key, Heads<const Value> value,
             const Runs& runs, Value* out, const Sizes& n, float scale, int threads) {
#pragma omp parallel num_threads(threads)
    {
        Desk desk;
#pragma omp for schedule(dynamic)
        for (int64_t number = 0; number < n.runs * n.key_heads; ++number) {
            Job<Value> job(runs, n, desk, number);
            const float* asked = job.of_queries(desk.query, query, scale);
            const float* keys = job.along(desk.key, key);
            const float* values = job.along(desk.value, value);
            const float* weight = job.weights(asked, job.across(desk.key_across, keys));
            float* told = grown(desk.out, int64_t(job.rows) * n.size);
            product(job.rows, job.seen, int(n.size), {weight, job.width, 1}, values, told);
            for (int row = 0; row < job.rows; ++row) {
                const int64_t token = runs.starts[job.run] + row % job.count;
                Value* to = out + (token * n.heads + job.head * job.group + row / job.count) * n.size;
                for (int d = 0; d < n.size; d += LANES) store(to + d, load(told + row * n.size + d));
            }
        }
    }
}

template <class Value>
void backward(Heads<const Value> query, Heads<const Value> key, Heads<const Value> value,
              Heads<const Value> given, const Runs& runs, Value* to_query, Value* to_key,
              Value* to_value, const Sizes& n, float scale, int threads) {
    // What each run gives to the keys it sees, then to the values: [T, D] for each run and head.
    std::vector<int64_t> place(n.runs + 1);
    for (int64_t run = 0; run < n.runs; ++run)
        place[run + 1] = place[run] + 2 * n.key_heads * (runs.seen_before(run) + runs.count(run)) * n.size;
    const std::unique_ptr<float[]> parts(new float[place[n.runs]]);
    const auto part_of = [&](int64_t run, int64_t head, bool is_value) {
        const int64_t size = (place[run + 1] - place[run]) / (2 * n.key_heads);
        return parts.get() + place[run] + (2 * head + is_value) * size;
    };
#pragma omp parallel num_threads(threads)
    {
        Desk desk;
#pragma omp for schedule(dynamic)
        for (int64_t number = 0; number < n.runs * n.key_heads; ++number) {
            Job<Value> job(runs, n, desk, number);
            const int size = int(n.size), rows = job.rows, width = job.width, seen = job.seen;
            const float* asked = job.of_queries(desk.query, query, scale);
            const float* got = job.of_queries(desk.given, given, 1);
            const float* keys = job.along(desk.key, key);
            const float* values = job.along(desk.value, value);
            const float* weight = job.weights(asked, job.across(desk.key_across, keys));
            product(seen, rows, size, {weight, 1, width}, got, part_of(job.run, job.head, true));
            float* slope = grown(desk.slope, int64_t(rows) * width);
            product(rows, size, width, {got, size, 1}, job.across(desk.value_across, values), slope);
            for (int row = 0; row < rows; ++row) {
                const float* weights = weight + int64_t(row) * width;
                float* slopes = slope + int64_t(row) * width;
                Lanes total = {};
                for (int t = 0; t < width; t += LANES) total += load(weights + t) * load(slopes + t);
                const float mean = sum(total);
                for (int t = 0; t < width; t += LANES)
                    store(slopes + t, load(weights + t) * (load(slopes + t) - mean));
            }
            product(seen, rows, size, {slope, 1, width}, asked, part_of(job.run, job.head, false));
            float* out = grown(desk.out, int64_t(rows) * size);
            product(rows, seen, size, {slope, width, 1}, keys, out);
            for (int row = 0; row < rows; ++row) {
                const int64_t token = runs.starts[job.run] + row % job.count;
                Value* to = to_query + (token * n.heads + job.head * job.group + row / job.count) * size;
                for (int d = 0; d < size; d += LANES) store(to + d, load(out + row * size + d) * scale);
            }
        }
#pragma omp for schedule(static)
        for (int64_t side = 0; side < 2 * n.key_heads; ++side) {
            const int64_t head = side / 2;
            const bool is_value = side % 2;
            std::vector<float> total(n.tokens * n.size, 0.0f);
            for (int64_t run = 0; run < n.runs; ++run) {
                const float* part = part_of(run, head, is_value);
                runs.each_token(run, [&](int at, int64_t token) {
                    for (int64_t d = 0; d < n.size; d += LANES) {
                        float* to = total.data() + token * n.size + d;
                        store(to, load(to) + load(part + at * n.size + d));
                    }
                });
            }
            for (int64_t token = 0; token < n.tokens; ++token) {
                Value* to = (is_value ? to_value : to_key) + (token * n.key_heads + head) * n.size;
                for (int64_t d = 0; d < n.size; d += LANES) store(to + d, load(total.data() + token * n.size + d));
            }
        }
    }
}

}  // namespace

#define KERNELS(FORWARD, BACKWARD, VALUE)                                                         \
    extern "C" void FORWARD(const VALUE* query, const VALUE* key, const VALUE* value,             \
                            const int64_t* starts, const int64_t* lists, const int64_t* before,   \
                            VALUE* out, const Sizes* n, float scale, int threads) {               \
        forward<VALUE>({query, n->query_head, n->query_token}, {key, n->key_head, n->key_token},  \
                       {value, n->value_head, n->value_token}, {starts, lists, before}, out, *n,  \
                       scale, threads);                                                           \
    }                                                                                             \
    extern "C" void BACKWARD(const VALUE* query, const VALUE* key, const VALUE* value,            \
                             const VALUE* given, const int64_t* starts, const int64_t* lists,     \
                             const int64_t* before, VALUE* to_query, VALUE* to_key,               \
                             VALUE* to_value, const Sizes* n, float scale, int threads) {         \
        backward<VALUE>({query, n->query_head, n->query_token}, {key, n->key_head, n->key_token}, \
                        {value, n->value_head, n->value_token},                                   \
                        {given, n->size, n->heads * n->size}, {starts, lists, before}, to_query,  \
                        to_key, to_value, *n, scale, threads);                                    \
    }

KERNELS(forward_float32, backward_float32, float)
KERNELS(forward_bf16, backward_bf16, uint16_t)
