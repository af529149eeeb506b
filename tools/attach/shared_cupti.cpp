// SPDX-License-Identifier: MIT
#include <tools/attach/process.hpp>
#include <tools/attach/redirect_symbols.hpp>
#include <tools/attach/shared_cupti.hpp>

#include <exception>
#include <new>

namespace attach {
namespace {

using cupti::Kind;
using cupti::Status;
using std::chrono::milliseconds;

constexpr std::size_t buffer_bytes = std::size_t{256} << 10U;  // 1200 kernels
constexpr std::size_t most_spare = 16;
constexpr std::array our_kinds{Kind::kernel, Kind::copy, Kind::set, Kind::graph};

}  // namespace

SharedCupti& SharedCupti::of_process() {
    static auto& shared = *new SharedCupti;  // CUPTI may call until the very end
    return shared;
}

// Callbacks.

void SharedCupti::called(void*, int domain, std::uint32_t id, const cupti::CallbackData* data) {
    SharedCupti& shared = of_process();
    if (id >= most_calls || domain < 0 || domain >= static_cast<int>(most_domains)) return;
    constexpr auto relaxed = std::memory_order_relaxed;
    if (domain == cupti::driver_api && shared.our_calls_[id].load(relaxed)) {
        if (const auto callback = shared.our_callback_.load(relaxed)) {
            callback(nullptr, domain, id, data);
        }
    }
    const Client* const theirs = shared.their_client_.load(std::memory_order_acquire);
    if (theirs != nullptr && shared.their_calls_[static_cast<std::size_t>(domain)][id]) {
        theirs->callback(theirs->user, domain, id, data);
    }
}

/// The caller holds the lock.
Status SharedCupti::subscribe_once() {
    if (subscriber_ != nullptr) return cupti::success;
    return library_.subscribe(&subscriber_, &called, nullptr);
}

void SharedCupti::listen(std::uint32_t id, bool on) {
    const std::lock_guard lock{subscribing_};
    our_calls_[id] = on;
    const bool needed = on || their_calls_[cupti::driver_api][id];
    // An older driver may lack a call: then nobody can make it.
    static_cast<void>(library_.enable_callback(needed ? 1 : 0, subscriber_, cupti::driver_api, id));
}

Status SharedCupti::subscribe(void** subscriber, cupti::Callback callback, void* user) {
    const std::lock_guard lock{subscribing_};
    if (their_client_ != nullptr) return cupti::held_by_another;
    if (const Status status = subscribe_once(); status != cupti::success) return status;
    their_client_ = new Client{callback, user};  // a callback may be on its way for good
    *subscriber = subscriber_;
    return cupti::success;
}

Status SharedCupti::unsubscribe(void* subscriber) {
    const std::lock_guard lock{subscribing_};
    if (subscriber != subscriber_ || their_client_ == nullptr) {
        return library_.unsubscribe(subscriber);
    }
    their_client_ = nullptr;
    for (std::size_t domain = 0; domain < most_domains; ++domain) {
        for (std::uint32_t id = 0; id < most_calls; ++id) {
            if (!their_calls_[domain][id].exchange(false)) continue;
            if (domain == cupti::driver_api && our_calls_[id]) continue;
            static_cast<void>(
                library_.enable_callback(0, subscriber_, static_cast<int>(domain), id));
        }
    }
    if (our_callback_ != nullptr) return cupti::success;
    return library_.unsubscribe(std::exchange(subscriber_, nullptr));
}

Status SharedCupti::enable_callback(std::uint32_t on, void* subscriber, int domain,
                                    std::uint32_t id) {
    const std::lock_guard lock{subscribing_};
    const bool kept = on == 0 && domain == cupti::driver_api && id < most_calls && our_calls_[id];
    const Status status =
        kept ? cupti::success : library_.enable_callback(on, subscriber, domain, id);
    const bool known = domain >= 0 && domain < static_cast<int>(most_domains) && id < most_calls;
    if (known && status == cupti::success) {
        their_calls_[static_cast<std::size_t>(domain)][id] = on != 0;
    }
    return status;
}

Status SharedCupti::enable_domain(std::uint32_t on, void* subscriber, int domain) {
    if (library_.enable_domain == nullptr) return cupti::not_initialized;
    const std::lock_guard lock{subscribing_};
    const Status status = library_.enable_domain(on, subscriber, domain);
    if (status != cupti::success || domain < 0 || domain >= static_cast<int>(most_domains)) {
        return status;
    }
    for (auto& each : their_calls_[static_cast<std::size_t>(domain)]) each = on != 0;
    for (std::uint32_t id = 0; on == 0 && domain == cupti::driver_api && id < most_calls; ++id) {
        if (!our_calls_[id]) continue;
        static_cast<void>(library_.enable_callback(1, subscriber_, domain, id));
    }
    return status;
}

Status SharedCupti::enable_domains(std::uint32_t on, void* subscriber) {
    Status last = cupti::success;
    for (int domain = 1; domain < static_cast<int>(most_domains) - 1; ++domain) {
        if (const Status status = enable_domain(on, subscriber, domain); status != cupti::success) {
            last = status;
        }
    }
    return last;
}

Status SharedCupti::callback_state(std::uint32_t* on, void* subscriber, int domain,
                                   std::uint32_t id) const {
    if (library_.callback_state == nullptr) return cupti::not_initialized;
    const Status status = library_.callback_state(on, subscriber, domain, id);
    if (status == cupti::success && domain == cupti::driver_api && id < most_calls) {
        *on = their_calls_[cupti::driver_api][id] ? 1 : 0;
    }
    return status;
}

// Buffers.

void SharedCupti::buffer_wanted(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    SharedCupti& shared = of_process();
    const auto theirs = shared.their_wanted_.load();
    if (shared.turn_ == Turn::theirs && theirs != nullptr) {
        theirs(buffer, size, most);
        if (*buffer == nullptr) return;
        const std::lock_guard lock{shared.buffers_};
        shared.their_buffers_.insert(*buffer);
        return;
    }
    *most = 0;
    {
        const std::lock_guard lock{shared.buffers_};
        if (!shared.spare_.empty()) {
            *buffer = shared.spare_.back();
            shared.spare_.pop_back();
            *size = buffer_bytes;
            return;
        }
    }
    *buffer = static_cast<std::uint8_t*>(
        ::operator new (buffer_bytes, std::align_val_t{8}, std::nothrow));
    *size = *buffer == nullptr ? 0 : buffer_bytes;
}

void SharedCupti::buffer_done(void* context, std::uint32_t stream, std::uint8_t* buffer,
                              std::size_t size, std::size_t used) {
    SharedCupti& shared = of_process();
    try {
        if (shared.joined_ && used > 0) shared.reader_.take_records(buffer, used);
    } catch (const std::exception& error) {
        Process::instance().give_up(error.what());
    }
    {
        const std::lock_guard lock{shared.buffers_};
        if (shared.their_buffers_.erase(buffer) == 0) {
            // New memory is mapped page by page, by the thread that launches.
            if (shared.spare_.size() < most_spare) return shared.spare_.push_back(buffer);
            return ::operator delete (buffer, std::align_val_t{8});
        }
    }
    if (const auto done = shared.their_done_.load()) done(context, stream, buffer, size, used);
}

bool SharedCupti::has_their_buffers() {
    const std::lock_guard lock{buffers_};
    return !their_buffers_.empty();
}

/// The caller holds the lock.
Status SharedCupti::register_once() {
    if (registered_) return cupti::success;
    const Status status = library_.register_buffers(&buffer_wanted, &buffer_done);
    registered_ = status == cupti::success;
    return status;
}

// Turns.

Status SharedCupti::join(Reader reader) {
    {
        const std::lock_guard lock{subscribing_};
        if (const Status status = subscribe_once(); status != cupti::success) return status;
        our_callback_ = reader.called;
    }
    const std::lock_guard lock{switching_};
    if (const Status status = register_once(); status != cupti::success) return status;
    reader_ = std::move(reader);
    joined_ = true;
    if (turn_ == Turn::theirs) blind_since_ = Clock::now();
    return cupti::success;
}

void SharedCupti::leave() {
    const std::lock_guard lock{subscribing_};
    our_callback_ = nullptr;
    if (their_client_ == nullptr && subscriber_ != nullptr) {
        static_cast<void>(library_.unsubscribe(std::exchange(subscriber_, nullptr)));
    }
}

/// All kinds, together: those of kernels alone, switched while others stayed on, never came back
/// (H200, CUDA 13.0). The caller holds the lock.
Status SharedCupti::switch_kinds(bool on) {
    Status first = cupti::success;
    for (const Kind kind : our_kinds) {
        if (kind == Kind::graph && !reader_.whole_graphs) continue;
        const Status status = on ? library_.enable(kind) : library_.disable(kind);
        if (kind != Kind::graph && first == cupti::success) first = status;
    }
    kinds_on_ = on && first == cupti::success;
    return first;
}

Status SharedCupti::want_records(bool on) {
    const std::lock_guard lock{switching_};
    wants_records_ = on;
    if (!joined_ || turn_ == Turn::theirs || kinds_on_ == on) return cupti::success;
    return switch_kinds(on);
}

void SharedCupti::flush(bool at_end) {
    if (joined_ && turn_ == Turn::ours) {
        static_cast<void>(library_.flush(0));
        if (at_end) static_cast<void>(library_.flush(1));
    }
    if (!at_end) return;
    const std::lock_guard lock{switching_};  // a switch that is under way comes to its end
    joined_ = false;
}

void SharedCupti::announce(bool records_come) {
    if (reader_.records_come) reader_.records_come(records_come);
}

/// The program is about to profile. kdvfs's buffers come back before the program's are requested.
void SharedCupti::step_back() {
    if (turn_ == Turn::ours) announce(false);  // no launch waits for a record from here on
    bool flushes = false;
    {
        const std::lock_guard lock{switching_};
        changed_ = Clock::now();
        if (turn_ == Turn::theirs) return;
        flushes = kinds_on_;
        if (kinds_on_) static_cast<void>(switch_kinds(false));
        turn_ = Turn::theirs;
        blind_ = true;
        since_ = blind_since_ = changed_;
        ++use_.times;
    }
    if (flushes) static_cast<void>(library_.flush(1));
}

/// Graphs have records of their kernels in the program's buffers, which is as good. The caller
/// holds the lock.
bool SharedCupti::can_read_along() const {
    const auto has = [this](Kind kind) { return their_kinds_.contains({nullptr, kind}); };
    return has(Kind::kernel) && has(Kind::copy) && has(Kind::set);
}

void SharedCupti::settle() {
    constexpr milliseconds settled{300};
    constexpr std::chrono::seconds patience{10};  // with buffers that nobody asks for
    if (turn_ == Turn::ours) return;
    {
        const std::lock_guard lock{switching_};
        const auto now = Clock::now();
        const auto quiet = now - changed_;
        const bool over = their_kinds_.empty();
        if (!joined_ || turn_ == Turn::ours || quiet < settled) return;
        if (over ? has_their_buffers() && quiet < patience : !blind_ || !can_read_along()) return;
        const auto seconds = [](Clock::duration time) {
            return std::chrono::duration<double>{time}.count();
        };
        if (blind_.exchange(false)) use_.without_records += seconds(now - blind_since_);
        if (over) {
            use_.seconds += seconds(now - since_);
            turn_ = Turn::ours;
            if (wants_records_) static_cast<void>(switch_kinds(true));
        }
    }
    announce(true);
}

SharedCupti::Use SharedCupti::use() const {
    const std::lock_guard lock{switching_};
    Use use = use_;
    if (turn_ == Turn::ours) return use;
    const auto since = [now = Clock::now()](Clock::time_point time) {
        return std::chrono::duration<double>{now - time}.count();
    };
    use.seconds += since(since_);
    if (blind_) use.without_records += since(blind_since_);
    return use;
}

// What the program does with records.

Status SharedCupti::register_buffers(cupti::BufferWanted wanted, cupti::BufferDone done) {
    if (wanted == nullptr || done == nullptr) return library_.register_buffers(wanted, done);
    step_back();
    const std::lock_guard lock{switching_};
    their_wanted_ = wanted;
    their_done_ = done;
    return register_once();
}

Status SharedCupti::enable(void* context, Kind kind) {
    step_back();
    const std::lock_guard lock{switching_};
    const Status status = context == nullptr ? library_.enable(kind)
                          : library_.enable_in_context == nullptr
                              ? cupti::not_initialized
                              : library_.enable_in_context(context, kind);
    if (status == cupti::success) their_kinds_.insert({context, kind});
    return status;
}

Status SharedCupti::disable(void* context, Kind kind) {
    if (turn_ == Turn::theirs) announce(false);
    const std::lock_guard lock{switching_};
    // What it never enabled may be kdvfs's.
    if (their_kinds_.erase({context, kind}) == 0) return cupti::success;
    changed_ = Clock::now();
    if (!blind_.exchange(true)) blind_since_ = changed_;
    if (context == nullptr) return library_.disable(kind);
    return library_.disable_in_context == nullptr ? cupti::not_initialized
                                                  : library_.disable_in_context(context, kind);
}

Status SharedCupti::register_timestamp(cupti::Timestamp function) {
    if (library_.register_timestamp == nullptr) return cupti::not_initialized;
    step_back();
    const Status status = library_.register_timestamp(function);
    if (status == cupti::success && timestamp_.exchange(function) != function) {
        if (reader_.clock_changed) reader_.clock_changed();
    }
    return status;
}

std::optional<std::uint64_t> SharedCupti::timestamp() const {
    if (const auto theirs = timestamp_.load()) return theirs();
    std::uint64_t time = 0;
    if (library_.timestamp(&time) != cupti::success) return std::nullopt;
    return time;
}

Status SharedCupti::finalize() {
    std::set<std::pair<void*, Kind>> kinds;
    {
        const std::lock_guard lock{switching_};
        kinds = their_kinds_;
    }
    for (const auto& [context, kind] : kinds) static_cast<void>(disable(context, kind));
    return cupti::success;
}

}  // namespace attach

// CUPTI's names, for programs whose profilers call them: `SharedCupti` says why. Where kdvfs is not
// attached the calls go through.

namespace {

using attach::SharedCupti;
using attach::cupti::BufferDone;
using attach::cupti::BufferWanted;
using attach::cupti::Callback;
using attach::cupti::Kind;
using attach::cupti::Library;
using attach::cupti::Status;
using attach::cupti::Timestamp;

/// @param shared  what is done where kdvfs is attached
/// @param function of `Library`, else
template <class Shared, class Function, class... Arguments>
Status attached_or_through(Shared shared, Function Library::*function,
                           Arguments... arguments) noexcept {
    try {
        SharedCupti& cupti = SharedCupti::of_process();
        if (!cupti.open().empty()) return attach::cupti::not_initialized;
        if (cupti.is_shared()) return shared(cupti);
        const auto real = cupti.library().*function;
        return real == nullptr ? attach::cupti::not_initialized : real(arguments...);
    } catch (const std::exception& error) {
        attach::Process::instance().give_up(error.what());
        return attach::cupti::not_initialized;
    }
}

}  // namespace

#define KDVFS_EXPORTED extern "C" __attribute__((visibility("default"))) Status

KDVFS_EXPORTED cuptiSubscribe(void** subscriber, Callback callback, void* user) {
    return attached_or_through(
        [&](SharedCupti& cupti) { return cupti.subscribe(subscriber, callback, user); },
        &Library::subscribe, subscriber, callback, user);
}
KDVFS_EXPORTED cuptiUnsubscribe(void* subscriber) {
    return attached_or_through([&](SharedCupti& cupti) { return cupti.unsubscribe(subscriber); },
                               &Library::unsubscribe, subscriber);
}
KDVFS_EXPORTED cuptiEnableCallback(std::uint32_t on, void* subscriber, int domain,
                                   std::uint32_t id) {
    return attached_or_through(
        [&](SharedCupti& cupti) { return cupti.enable_callback(on, subscriber, domain, id); },
        &Library::enable_callback, on, subscriber, domain, id);
}
KDVFS_EXPORTED cuptiEnableDomain(std::uint32_t on, void* subscriber, int domain) {
    return attached_or_through(
        [&](SharedCupti& cupti) { return cupti.enable_domain(on, subscriber, domain); },
        &Library::enable_domain, on, subscriber, domain);
}
KDVFS_EXPORTED cuptiEnableAllDomains(std::uint32_t on, void* subscriber) {
    return attached_or_through(
        [&](SharedCupti& cupti) { return cupti.enable_domains(on, subscriber); },
        &Library::enable_domains, on, subscriber);
}
KDVFS_EXPORTED cuptiGetCallbackState(std::uint32_t* on, void* subscriber, int domain,
                                     std::uint32_t id) {
    return attached_or_through(
        [&](SharedCupti& cupti) { return cupti.callback_state(on, subscriber, domain, id); },
        &Library::callback_state, on, subscriber, domain, id);
}
KDVFS_EXPORTED cuptiActivityRegisterCallbacks(BufferWanted wanted, BufferDone done) {
    return attached_or_through(
        [&](SharedCupti& cupti) { return cupti.register_buffers(wanted, done); },
        &Library::register_buffers, wanted, done);
}
KDVFS_EXPORTED cuptiActivityEnable(Kind kind) {
    return attached_or_through([&](SharedCupti& cupti) { return cupti.enable(nullptr, kind); },
                               &Library::enable, kind);
}
KDVFS_EXPORTED cuptiActivityDisable(Kind kind) {
    return attached_or_through([&](SharedCupti& cupti) { return cupti.disable(nullptr, kind); },
                               &Library::disable, kind);
}
KDVFS_EXPORTED cuptiActivityEnableContext(void* context, Kind kind) {
    return attached_or_through([&](SharedCupti& cupti) { return cupti.enable(context, kind); },
                               &Library::enable_in_context, context, kind);
}
KDVFS_EXPORTED cuptiActivityDisableContext(void* context, Kind kind) {
    return attached_or_through([&](SharedCupti& cupti) { return cupti.disable(context, kind); },
                               &Library::disable_in_context, context, kind);
}
KDVFS_EXPORTED cuptiActivityRegisterTimestampCallback(Timestamp timestamp) {
    return attached_or_through(
        [&](SharedCupti& cupti) { return cupti.register_timestamp(timestamp); },
        &Library::register_timestamp, timestamp);
}
KDVFS_EXPORTED cuptiFinalize() {
    return attached_or_through([](SharedCupti& cupti) { return cupti.finalize(); },
                               &Library::finalize);
}

namespace attach {

const std::string& SharedCupti::open() {
    std::call_once(opening_, [this] {
        why_not_ = cupti::open(library_);
        shared_ = why_not_.empty() && Process::instance().runs();
        if (!shared_) return;
        const auto redirect = [](const char* name, auto real, auto replacement) {
            redirect_symbol(name, reinterpret_cast<void*>(real),
                            reinterpret_cast<void*>(replacement));
        };
        redirect("cuptiSubscribe", library_.subscribe, &cuptiSubscribe);
        redirect("cuptiUnsubscribe", library_.unsubscribe, &cuptiUnsubscribe);
        redirect("cuptiEnableCallback", library_.enable_callback, &cuptiEnableCallback);
        redirect("cuptiEnableDomain", library_.enable_domain, &cuptiEnableDomain);
        redirect("cuptiEnableAllDomains", library_.enable_domains, &cuptiEnableAllDomains);
        redirect("cuptiGetCallbackState", library_.callback_state, &cuptiGetCallbackState);
        redirect("cuptiActivityRegisterCallbacks", library_.register_buffers,
                 &cuptiActivityRegisterCallbacks);
        redirect("cuptiActivityEnable", library_.enable, &cuptiActivityEnable);
        redirect("cuptiActivityDisable", library_.disable, &cuptiActivityDisable);
        redirect("cuptiActivityEnableContext", library_.enable_in_context,
                 &cuptiActivityEnableContext);
        redirect("cuptiActivityDisableContext", library_.disable_in_context,
                 &cuptiActivityDisableContext);
        redirect("cuptiActivityRegisterTimestampCallback", library_.register_timestamp,
                 &cuptiActivityRegisterTimestampCallback);
        redirect("cuptiFinalize", library_.finalize, &cuptiFinalize);
    });
    return why_not_;
}

}  // namespace attach
