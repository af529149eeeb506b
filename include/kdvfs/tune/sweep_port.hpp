// SPDX-License-Identifier: MIT
#pragma once

#include <kdvfs/core/error.hpp>
#include <kdvfs/device/stream_runtime.hpp>
#include <kdvfs/gpu/gpu_service.hpp>
#include <kdvfs/scope/lane.hpp>
#include <kdvfs/scope/scope_port.hpp>

#include <map>
#include <mutex>
#include <thread>
#include <utility>

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
        change_enclosing(stream);
        return service_->enter(stream, kind);
    }
    void leave(const ScopePass& pass) override { service_->leave(pass); }
    void leave_noexcept(const ScopePass& pass) noexcept override { service_->leave_noexcept(pass); }

    /// Takes the long scopes off all streams.
    void leave_all() noexcept {
        const std::lock_guard lock{mutex_};
        kind_ = nullptr;
        for (const auto& [key, pass] : open_) service_->leave_noexcept(pass);
        open_.clear();
    }

private:
    using Key = std::pair<StreamRef, std::thread::id>;  // default streams may be one per thread

    void change_enclosing(StreamRef stream) {
        const std::lock_guard lock{mutex_};
        const Key key{stream, std::this_thread::get_id()};
        const auto known = open_.find(key);
        const ScopeKind* before = known == open_.end() ? nullptr : known->second.kind;
        if (before == kind_) return;
        ScopePass pass;
        if (kind_ != nullptr) pass = enter_outside_captures(stream);
        if (before != nullptr) service_->leave(std::exchange(known->second, {}));
        if (kind_ != nullptr) {
            open_[key] = pass;
        } else {
            open_.erase(key);
        }
    }

    ScopePass enter_outside_captures(StreamRef stream) {
        const ScopePass pass = service_->enter(stream, *kind_);
        if (pass.lane == nullptr || !pass.lane->captured()) return pass;
        service_->leave(pass);
        throw Error{Errc::not_supported,
                    {"sweep a kernel that is captured into a graph", to_string(service_->info()),
                     "each replay asks for the clock of its capture",
                     "sweep the program with its graphs switched off"}};
    }

    GpuService* service_;
    std::mutex mutex_;
    const ScopeKind* kind_ = nullptr;
    std::map<Key, ScopePass> open_;
};

}  // namespace kdvfs::tune
