// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/stream_runtime.hpp>
#include <kdvfs/gpu/gpu_service.hpp>
#include <kdvfs/scope/lane.hpp>
#include <kdvfs/scope/scope_port.hpp>

#include <map>
#include <mutex>

namespace kdvfs::tune {

/// The door of a swept GPU: puts one long scope around all scopes of a stream, so that the clocks
/// do not go back and forth between neighbours. The long scope changes, in stream order, with the
/// first scope after `enclose`. Streams must live until `leave_all`. Thread-safe.
class SweepPort final : public ScopePort {
public:
    /// `service` must outlive the port.
    explicit SweepPort(GpuService& service) : service_{&service} {}

    /// From now on scopes are enclosed by one of this kind; by none if null.
    void enclose(const ScopeKind* kind) {
        const std::lock_guard lock{mutex_};
        kind_ = kind;
    }

    ScopePass enter(StreamRef stream, const ScopeKind& kind) override {
        const ScopePass pass = service_->enter(stream, kind);
        if (pass.lane == nullptr) return pass;
        try {
            change_enclosing(stream, *pass.lane);
        } catch (...) {
            service_->leave_noexcept(pass);
            throw;
        }
        return pass;
    }
    void leave(const ScopePass& pass) override { service_->leave(pass); }
    void leave_noexcept(const ScopePass& pass) noexcept override { service_->leave_noexcept(pass); }

    /// Takes the long scopes off all streams.
    void leave_all() noexcept {
        const std::lock_guard lock{mutex_};
        kind_ = nullptr;
        for (const auto& [lane, pass] : open_) service_->leave_noexcept(pass);
        open_.clear();
    }

private:
    /// The scope that found the lane is open already: what encloses it is entered after it and left
    /// later, which lanes allow, and asks for the same.
    void change_enclosing(StreamRef stream, const Lane& lane) {
        const std::lock_guard lock{mutex_};
        const auto known = open_.find(&lane);
        const ScopePass before = known == open_.end() ? ScopePass{} : known->second;
        if (before.kind == kind_) return;
        if (lane.captured())
            throw Error{
                Errc::not_supported,
                {"sweep a kernel that is captured into a graph", to_string(service_->info()),
                 "each replay asks for the clock of its capture",
                 "sweep the program with its graphs switched off"}};
        if (kind_ != nullptr) {
            open_[&lane] = service_->enter(stream, *kind_);
        } else {
            open_.erase(known);
        }
        if (before.kind != nullptr) service_->leave(before);
    }

    GpuService* service_;
    std::mutex mutex_;
    const ScopeKind* kind_ = nullptr;
    std::map<const Lane*, ScopePass> open_;
};

}  // namespace kdvfs::tune
