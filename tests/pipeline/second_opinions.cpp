// SPDX-License-Identifier: MIT
#include <tests/pipeline/second_opinions.hpp>

#include <glpk.h>
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace kdvfs::train {

Femtojoules lemon_least_cost(const Pipeline& pipeline, std::int64_t price) {
    using Graph = lemon::SmartDigraph;
    Graph graph;
    const Graph::Node source = graph.addNode();
    const Graph::Node sink = graph.addNode();
    std::vector<Graph::Arc> arcs;
    std::vector<std::int64_t> lengths;
    std::vector<std::int64_t> capacities;
    const auto add = [&](Graph::Node from, Graph::Node to, std::int64_t length,
                         std::int64_t capacity) {
        arcs.push_back(graph.addArc(from, to));
        lengths.push_back(length);
        capacities.push_back(capacity);
    };
    Femtojoules cost = 0;
    std::vector<Graph::Node> starts;
    std::vector<Graph::Node> ends;
    for (const Operation& operation : pipeline.operations) {
        const Graph::Node start = graph.addNode();
        const Graph::Node end = graph.addNode();
        const Hull& hull = pipeline.curves[operation.curve].hull();
        cost += hull.energy.back();
        std::int64_t below = 0;
        for (std::size_t k = hull.size(); k-- > 0;) {
            const std::int64_t until = k == 0 ? price : std::min(price, hull.saving[k - 1]);
            if (until > below) add(start, end, hull.time[k], until - below);
            below = std::max(below, until);
        }
        add(source, start, 0, price);
        add(end, sink, 0, price);
        starts.push_back(start);
        ends.push_back(end);
    }
    for (const Dependency& d : pipeline.dependencies)
        add(ends[d.first], starts[d.then], std::llround(d.time.count() * 1e9), price);

    Graph::ArcMap<std::int64_t> cost_of{graph};
    Graph::ArcMap<std::int64_t> capacity_of{graph};
    for (std::size_t a = 0; a < arcs.size(); ++a) {
        cost_of[arcs[a]] = -lengths[a];
        capacity_of[arcs[a]] = capacities[a];
    }
    lemon::NetworkSimplex<Graph, std::int64_t, std::int64_t> simplex{graph};
    simplex.upperMap(capacity_of).costMap(cost_of).stSupply(source, sink, price);
    if (simplex.run() != decltype(simplex)::OPTIMAL) throw std::runtime_error{"LEMON: no optimum"};
    for (std::size_t a = 0; a < arcs.size(); ++a)
        cost += static_cast<Femtojoules>(simplex.flow(arcs[a])) * lengths[a];
    return cost;
}

namespace {

/// A GLPK problem in milliseconds and joules.
class Program {
public:
    Program() : problem_{glp_create_prob(), glp_delete_prob} {
        glp_set_obj_dir(problem_.get(), GLP_MIN);
    }
    int variable(double low, double cost) {
        const int column = glp_add_cols(problem_.get(), 1);
        glp_set_col_bnds(problem_.get(), column, GLP_LO, low, 0);
        glp_set_obj_coef(problem_.get(), column, cost);
        return column;
    }
    void constrain(const std::vector<int>& columns, const std::vector<double>& factors, int kind,
                   double bound) {
        const int row = glp_add_rows(problem_.get(), 1);
        glp_set_row_bnds(problem_.get(), row, kind, bound, bound);
        std::vector<int> index{0};
        std::vector<double> value{0};
        index.insert(index.end(), columns.begin(), columns.end());
        value.insert(value.end(), factors.begin(), factors.end());
        glp_set_mat_row(problem_.get(), row, static_cast<int>(columns.size()), index.data(),
                        value.data());
    }
    double solve() {
        glp_smcp options;
        glp_init_smcp(&options);
        options.msg_lev = GLP_MSG_OFF;
        options.tol_bnd = options.tol_dj = 1e-10;
        if (glp_simplex(problem_.get(), &options) != 0 || glp_get_status(problem_.get()) != GLP_OPT)
            throw std::runtime_error{"GLPK: no optimum"};
        return glp_get_obj_val(problem_.get());
    }
    void make_binary(int column) { glp_set_col_kind(problem_.get(), column, GLP_BV); }
    double solve_integer() {
        glp_iocp options;
        glp_init_iocp(&options);
        options.msg_lev = GLP_MSG_OFF;
        options.presolve = GLP_ON;
        options.tm_lim = 10'000;
        options.mip_gap = 1e-6;
        glp_intopt(problem_.get(), &options);
        const int status = glp_mip_status(problem_.get());
        if (status != GLP_OPT && status != GLP_FEAS) throw std::runtime_error{"GLPK: no plan"};
        return glp_mip_obj_val(problem_.get());
    }

private:
    std::unique_ptr<glp_prob, void (*)(glp_prob*)> problem_;
};

/// @returns the columns that say how much of an operation runs at which point
std::vector<int> describe(Program& program, const Pipeline& pipeline, Seconds length) {
    std::vector<int> all;
    std::vector<int> starts;
    std::vector<int> ends;
    for (const Operation& operation : pipeline.operations) {
        const int start = program.variable(0, 0);
        const int end = program.variable(0, 0);
        std::vector<int> columns{end, start};
        std::vector<double> lasts{1, -1};
        std::vector<int> shares;
        for (const CurvePoint& point : pipeline.curves[operation.curve].points()) {
            const Joules effective = point.energy - pipeline.blocking_power * point.time;
            shares.push_back(program.variable(0, effective.count));
            columns.push_back(shares.back());
            lasts.push_back(-point.time.count() * 1e3);
        }
        all.insert(all.end(), shares.begin(), shares.end());
        program.constrain(shares, std::vector<double>(shares.size(), 1.0), GLP_FX, 1);
        program.constrain(columns, lasts, GLP_LO, 0);
        program.constrain({end}, {1}, GLP_UP, length.count() * 1e3);
        starts.push_back(start);
        ends.push_back(end);
    }
    for (const Dependency& d : pipeline.dependencies)
        program.constrain({starts[d.then], ends[d.first]}, {1, -1}, GLP_LO, d.time.count() * 1e3);
    return all;
}

}  // namespace

double glpk_least_energy(const Pipeline& pipeline, Seconds length) {
    Program program;
    describe(program, pipeline, length);
    return program.solve();
}

double glpk_least_clocked_energy(const Pipeline& pipeline, Seconds length) {
    Program program;
    for (const int column : describe(program, pipeline, length)) program.make_binary(column);
    return program.solve_integer();
}

}  // namespace kdvfs::train
