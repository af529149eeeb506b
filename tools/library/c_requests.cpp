// SPDX-License-Identifier: MIT
//
// The C interface of the energy of requests (kdvfs.h).
#include "c_handles.hpp"

#include <kdvfs/serve/request_ledger.hpp>
#include <kdvfs/serve/step_energy.hpp>

#include <optional>
#include <span>
#include <vector>

namespace {

using namespace kdvfs::c_interface;
namespace serve = kdvfs::serve;

std::vector<serve::RequestWork> works_of(const kdvfs_request_work* works, size_t count) {
    if (count > 0) static_cast<void>(given(works, "the works of a step"));
    std::vector<serve::RequestWork> all;
    for (const kdvfs_request_work& work : std::span{works, count})
        all.push_back({work.request, work.answer_tokens, work.context_tokens, work.prompt_tokens,
                       work.prompt_context});
    return all;
}

}  // namespace

struct kdvfs_requests {
    using Report = void (*)(void* data, const kdvfs_request_energy* request);

    Report report;
    void* data;
    serve::StepEnergyFit fit{};
    serve::RequestHistograms histograms{};
    std::optional<serve::RequestLedger> ledger{};

    /// The ledger, once there is a model.
    serve::RequestLedger& opened() {
        if (!ledger)
            ledger.emplace(fit.model(),
                           [this](const serve::RequestEnergy& done) { reported(done); });
        return *ledger;
    }

private:
    void reported(const serve::RequestEnergy& done) {
        histograms.add(done);
        const kdvfs_request_energy energy{done.id.c_str(),   done.energy.count, done.low().count,
                                          done.high().count, done.steps,        done.prompt_tokens,
                                          done.answer_tokens};
        if (report != nullptr) report(data, &energy);
    }
};

extern "C" {

kdvfs_status kdvfs_requests_begin(void (*report)(void* data, const kdvfs_request_energy* request),
                                  void* data, kdvfs_requests** requests) {
    return guarded([&] {
        kdvfs_requests*& out = given(requests, "where the requests go");
        out = new kdvfs_requests{report, data};
    });
}

kdvfs_status kdvfs_requests_fit(kdvfs_requests* requests, const kdvfs_request_work* works,
                                size_t count, double joules) {
    return guarded([&] {
        kdvfs_requests& its = given(requests, "the requests");
        if (its.ledger)
            reject("fit the energy of steps", "a step", "a request has been opened",
                   "fit before the first request, or begin anew");
        its.fit.add(works_of(works, count), {joules});
    });
}

kdvfs_status kdvfs_request_open(kdvfs_requests* requests, const char* id, uint32_t* number) {
    return guarded([&] {
        uint32_t& out = given(number, "where the number goes");
        out = given(requests, "the requests").opened().open(&given(id, "the request's id"));
    });
}

kdvfs_status kdvfs_requests_step(kdvfs_requests* requests, const kdvfs_request_work* works,
                                 size_t count) {
    return guarded([&] { given(requests, "the requests").opened().step(works_of(works, count)); });
}

kdvfs_status kdvfs_requests_settle(kdvfs_requests* requests, double joules, double deviation) {
    return guarded([&] { given(requests, "the requests").opened().settle({joules}, {deviation}); });
}

kdvfs_status kdvfs_requests_idle(kdvfs_requests* requests, double joules) {
    return guarded([&] { given(requests, "the requests").opened().idle({joules}); });
}

kdvfs_status kdvfs_request_close(kdvfs_requests* requests, uint32_t number) {
    return guarded([&] { given(requests, "the requests").opened().close(number); });
}

kdvfs_status kdvfs_requests_prometheus(kdvfs_requests* requests, const char* labels, char** text) {
    return guarded([&] {
        given(text, "where the text goes") = nullptr;
        kdvfs_requests& its = given(requests, "the requests");
        *text =
            copy_of(its.histograms.to_prometheus(its.opened(), labels == nullptr ? "" : labels));
    });
}

void kdvfs_requests_end(kdvfs_requests* requests) { delete requests; }

}  // extern "C"
