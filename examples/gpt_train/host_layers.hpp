// SPDX-License-Identifier: MIT
#pragma once

#include "model_shape.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

namespace gpt::host {

/// A row-major matrix that owns its elements, or a vector with one row.
struct Matrix {
    int rows = 0;
    int columns = 0;
    std::vector<double> elements;

    Matrix() = default;
    Matrix(int row_count, int column_count)
        : rows{row_count},
          columns{column_count},
          elements(static_cast<std::size_t>(row_count) * static_cast<std::size_t>(column_count)) {}

    double& operator()(int row, int column) { return elements[index(row, column)]; }
    double operator()(int row, int column) const { return elements[index(row, column)]; }

private:
    [[nodiscard]] std::size_t index(int row, int column) const {
        return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
               static_cast<std::size_t>(column);
    }
};

inline Matrix tensor(const std::vector<double>& buffer, const Tensor& place) {
    Matrix matrix{place.rows, place.columns};
    for (std::size_t i = 0; i < place.size(); ++i) matrix.elements[i] = buffer[place.offset + i];
    return matrix;
}

inline void add_to_tensor(std::vector<double>& buffer, const Tensor& place, const Matrix& matrix) {
    for (std::size_t i = 0; i < place.size(); ++i) buffer[place.offset + i] += matrix.elements[i];
}

inline Matrix transpose(const Matrix& a) {
    Matrix result{a.columns, a.rows};
    for (int i = 0; i < a.rows; ++i) {
        for (int j = 0; j < a.columns; ++j) result(j, i) = a(i, j);
    }
    return result;
}

inline Matrix operator*(const Matrix& a, const Matrix& b) {
    Matrix result{a.rows, b.columns};
    for (int i = 0; i < a.rows; ++i) {
        for (int k = 0; k < a.columns; ++k) {
            for (int j = 0; j < b.columns; ++j) result(i, j) += a(i, k) * b(k, j);
        }
    }
    return result;
}

inline Matrix operator+(Matrix a, const Matrix& b) {
    for (std::size_t i = 0; i < a.elements.size(); ++i) a.elements[i] += b.elements[i];
    return a;
}

inline Matrix column_sums(const Matrix& a) {
    Matrix result{1, a.columns};
    for (int i = 0; i < a.rows; ++i) {
        for (int j = 0; j < a.columns; ++j) result(0, j) += a(i, j);
    }
    return result;
}

/// A linear map y = x W + b and what its backward pass needs.
struct Linear {
    const Tensor& weight;
    const Tensor& bias;

    [[nodiscard]] Matrix forward(const std::vector<double>& parameters, const Matrix& x) const {
        Matrix y = x * tensor(parameters, weight);
        const Matrix b = tensor(parameters, bias);
        for (int i = 0; i < y.rows; ++i) {
            for (int j = 0; j < y.columns; ++j) y(i, j) += b(0, j);
        }
        return y;
    }

    /// Returns the gradient of x; adds those of weight and bias to `gradient`.
    Matrix backward(const std::vector<double>& parameters, std::vector<double>& gradient,
                    const Matrix& x, const Matrix& dy) const {
        add_to_tensor(gradient, weight, transpose(x) * dy);
        add_to_tensor(gradient, bias, column_sums(dy));
        return dy * transpose(tensor(parameters, weight));
    }
};

/// Layer normalisation over the columns of each row.
struct Norm {
    const Tensor& scale;
    const Tensor& shift;
    static constexpr double epsilon = 1e-5;

    struct Moments {
        double mean = 0;
        double inverse_deviation = 0;
    };

    static Moments moments(const Matrix& x, int row) {
        Moments result;
        for (int j = 0; j < x.columns; ++j) result.mean += x(row, j) / x.columns;
        double variance = 0;
        for (int j = 0; j < x.columns; ++j) {
            variance += (x(row, j) - result.mean) * (x(row, j) - result.mean) / x.columns;
        }
        result.inverse_deviation = 1 / std::sqrt(variance + epsilon);
        return result;
    }

    [[nodiscard]] Matrix forward(const std::vector<double>& parameters, const Matrix& x) const {
        const Matrix g = tensor(parameters, scale);
        const Matrix b = tensor(parameters, shift);
        Matrix y{x.rows, x.columns};
        for (int i = 0; i < x.rows; ++i) {
            const Moments m = moments(x, i);
            for (int j = 0; j < x.columns; ++j) {
                y(i, j) = (x(i, j) - m.mean) * m.inverse_deviation * g(0, j) + b(0, j);
            }
        }
        return y;
    }

    Matrix backward(const std::vector<double>& parameters, std::vector<double>& gradient,
                    const Matrix& x, const Matrix& dy) const {
        const Matrix g = tensor(parameters, scale);
        Matrix dg{1, x.columns};
        Matrix dx{x.rows, x.columns};
        for (int i = 0; i < x.rows; ++i) {
            const Moments m = moments(x, i);
            const auto normal = [&](int j) { return (x(i, j) - m.mean) * m.inverse_deviation; };
            double mean_d = 0;
            double mean_d_normal = 0;
            for (int j = 0; j < x.columns; ++j) {
                mean_d += dy(i, j) * g(0, j) / x.columns;
                mean_d_normal += dy(i, j) * g(0, j) * normal(j) / x.columns;
                dg(0, j) += dy(i, j) * normal(j);
            }
            for (int j = 0; j < x.columns; ++j) {
                dx(i, j) =
                    m.inverse_deviation * (dy(i, j) * g(0, j) - mean_d - normal(j) * mean_d_normal);
            }
        }
        add_to_tensor(gradient, scale, dg);
        add_to_tensor(gradient, shift, column_sums(dy));
        return dx;
    }
};

/// GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415).
struct Gelu {
    static constexpr double root_2_over_pi = 0.7978845608028654;

    static double inner(double x) { return std::tanh(root_2_over_pi * (x + 0.044715 * x * x * x)); }

    static Matrix forward(Matrix x) {
        for (double& e : x.elements) e = 0.5 * e * (1 + inner(e));
        return x;
    }

    static Matrix backward(const Matrix& x, Matrix dy) {
        for (std::size_t i = 0; i < dy.elements.size(); ++i) {
            const double e = x.elements[i];
            const double t = inner(e);
            dy.elements[i] *=
                0.5 * (1 + t) + 0.5 * e * (1 - t * t) * root_2_over_pi * (1 + 3 * 0.044715 * e * e);
        }
        return dy;
    }
};

/// Causal attention of one (row of the batch, head): a view on the columns of q, k and v in a
/// (tokens x 3 width) matrix.
struct AttentionHead {
    const ModelShape& shape;
    int row;
    int head;

    [[nodiscard]] int token(int position) const { return row * shape.sequence + position; }
    [[nodiscard]] int query(int d) const { return head * shape.head_width() + d; }
    [[nodiscard]] int key(int d) const { return shape.width + query(d); }
    [[nodiscard]] int value(int d) const { return 2 * shape.width + query(d); }

    [[nodiscard]] Matrix probabilities(const Matrix& qkv) const {
        const double scale = 1 / std::sqrt(static_cast<double>(shape.head_width()));
        Matrix p{shape.sequence, shape.sequence};
        for (int t = 0; t < shape.sequence; ++t) {
            double sum = 0;
            for (int s = 0; s <= t; ++s) {
                double score = 0;
                for (int d = 0; d < shape.head_width(); ++d) {
                    score += qkv(token(t), query(d)) * qkv(token(s), key(d));
                }
                p(t, s) = std::exp(score * scale);
                sum += p(t, s);
            }
            for (int s = 0; s <= t; ++s) p(t, s) /= sum;
        }
        return p;
    }

    void forward(const Matrix& qkv, Matrix& out) const {
        const Matrix p = probabilities(qkv);
        for (int t = 0; t < shape.sequence; ++t) {
            for (int s = 0; s <= t; ++s) {
                for (int d = 0; d < shape.head_width(); ++d) {
                    out(token(t), query(d)) += p(t, s) * qkv(token(s), value(d));
                }
            }
        }
    }

    void backward(const Matrix& qkv, const Matrix& d_out, Matrix& d_qkv) const {
        const double scale = 1 / std::sqrt(static_cast<double>(shape.head_width()));
        const Matrix p = probabilities(qkv);
        for (int t = 0; t < shape.sequence; ++t) {
            std::vector<double> d_p(static_cast<std::size_t>(t) + 1);
            double mean = 0;
            for (int s = 0; s <= t; ++s) {
                double& d = d_p[static_cast<std::size_t>(s)];
                for (int i = 0; i < shape.head_width(); ++i) {
                    d += d_out(token(t), query(i)) * qkv(token(s), value(i));
                    d_qkv(token(s), value(i)) += p(t, s) * d_out(token(t), query(i));
                }
                mean += p(t, s) * d;
            }
            for (int s = 0; s <= t; ++s) {
                const double d_score = p(t, s) * (d_p[static_cast<std::size_t>(s)] - mean) * scale;
                for (int i = 0; i < shape.head_width(); ++i) {
                    d_qkv(token(t), query(i)) += d_score * qkv(token(s), key(i));
                    d_qkv(token(s), key(i)) += d_score * qkv(token(t), query(i));
                }
            }
        }
    }
};

template <class Visit>
void for_each_head(const ModelShape& shape, Visit visit) {
    for (int row = 0; row < shape.batch; ++row) {
        for (int head = 0; head < shape.heads; ++head) visit(AttentionHead{shape, row, head});
    }
}

}  // namespace gpt::host
