// SPDX-License-Identifier: MIT
#pragma once

#include <tools/attach/cupti.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attach {

/// CUPTI for two: kdvfs, and the profiler that the program brings (torch.profiler, Proton, JAX's).
///
/// CUPTI has one subscriber, one set of activity kinds and one pair of buffer callbacks in a
/// process. The program's calls reach this object because the library exports CUPTI's names, and
/// because the symbols of libcupti are redirected for who looks them up later (`redirect_symbols`).
/// The one subscription that CUPTI sees calls back both. Buffers are requested of the one whose
/// turn it is and always go back to who gave them. While the program profiles, kdvfs enables no
/// kind and flushes nothing: the program's records are what they are without kdvfs. kdvfs reads
/// them before the program gets them, where the kinds that it needs are among them. Thread-safe.
class SharedCupti {
public:
    static SharedCupti& of_process();

    /// Opens CUPTI, once. @returns why there is none, else nothing
    const std::string& open();
    /// Whether the program's calls come here. Else, where kdvfs was off when CUPTI was opened, they
    /// are to go to the library.
    [[nodiscard]] bool is_shared() const { return shared_; }
    [[nodiscard]] const cupti::Library& library() const { return library_; }

    /// What kdvfs gets from CUPTI.
    struct Reader {
        cupti::Callback called = nullptr;
        /// Records, in a buffer that the caller keeps.
        std::function<void(std::uint8_t* buffer, std::size_t used)> take_records{};
        /// Whether launches from here on have records that kdvfs sees.
        std::function<void(bool come)> records_come{};
        /// The clock of the records changes: to another one than CUPTI's, from here on.
        std::function<void()> clock_changed{};
        /// A graph's launch has one record, instead of those of its nodes.
        bool whole_graphs = false;
    };
    /// Subscribes kdvfs and registers its buffers. To be called once, before `listen`.
    /// @returns CUPTI's status
    cupti::Status join(Reader reader);
    void leave();
    /// Callbacks of a driver call, for kdvfs, on or off.
    void listen(std::uint32_t id, bool on);
    /// kdvfs's records on or off, as soon as it is its turn. @returns CUPTI's status
    cupti::Status want_records(bool on);
    /// Brings in the records that are done, where it is kdvfs's turn: the program's profiler does
    /// not expect its buffers before it asks for them.
    /// @param at_end all of them. After that no other thread of kdvfs calls CUPTI, and records that
    ///               still come are not read: CUPTI and the driver end, too, and must not be called
    ///               any more, not even from their own callbacks
    void flush(bool at_end);
    /// Comes back where the program has stopped profiling, and begins to read along where it goes
    /// on. Called every second or so, on kdvfs's own thread.
    void settle();
    /// Whether launches that are made now have records that kdvfs sees.
    [[nodiscard]] bool has_records() const {
        constexpr auto relaxed = std::memory_order_relaxed;
        return wants_records_.load(relaxed) && !blind_.load(relaxed);
    }

    /// The records' clock: the function that the program has registered, else CUPTI's.
    [[nodiscard]] std::optional<std::uint64_t> timestamp() const;
    /// Whether records have the times of a clock that the program has registered.
    [[nodiscard]] bool has_other_clock() const { return timestamp_.load() != nullptr; }

    /// How the program has used CUPTI's records.
    struct Use {
        unsigned times = 0;
        double seconds = 0;
        double without_records = 0;  ///< s of these in which kdvfs saw no records
    };
    [[nodiscard]] Use use() const;

    // The program's calls, as CUPTI declares them.

    cupti::Status subscribe(void** subscriber, cupti::Callback callback, void* user);
    cupti::Status unsubscribe(void* subscriber);
    cupti::Status enable_callback(std::uint32_t on, void* subscriber, int domain, std::uint32_t id);
    cupti::Status enable_domain(std::uint32_t on, void* subscriber, int domain);
    cupti::Status enable_domains(std::uint32_t on, void* subscriber);
    cupti::Status callback_state(std::uint32_t* on, void* subscriber, int domain,
                                 std::uint32_t id) const;
    cupti::Status register_buffers(cupti::BufferWanted wanted, cupti::BufferDone done);
    /// @param context null: all
    cupti::Status enable(void* context, cupti::Kind kind);
    cupti::Status disable(void* context, cupti::Kind kind);
    cupti::Status register_timestamp(cupti::Timestamp function);
    /// CUPTI stays for kdvfs: what the program had enabled is disabled.
    cupti::Status finalize();

private:
    using Clock = std::chrono::steady_clock;
    enum class Turn { ours, theirs };
    struct Client {
        cupti::Callback callback;
        void* user;
    };
    static constexpr std::size_t most_domains = 8;  // CUPTI_CB_DOMAIN_SIZE is 7
    static constexpr std::size_t most_calls = 1024;
    using Enabled = std::array<std::atomic<bool>, most_calls>;

    SharedCupti() = default;

    static void called(void*, int domain, std::uint32_t id, const cupti::CallbackData* data);
    static void buffer_wanted(std::uint8_t** buffer, std::size_t* size, std::size_t* most);
    static void buffer_done(void* context, std::uint32_t stream, std::uint8_t* buffer,
                            std::size_t size, std::size_t used);

    cupti::Status subscribe_once();
    cupti::Status register_once();
    cupti::Status switch_kinds(bool on);
    void step_back();
    void announce(bool records_come);
    [[nodiscard]] bool can_read_along() const;
    [[nodiscard]] bool has_their_buffers();

    std::once_flag opening_;
    std::string why_not_;
    bool shared_ = false;
    cupti::Library library_;

    // Callbacks.
    std::mutex subscribing_;
    void* subscriber_ = nullptr;
    std::atomic<cupti::Callback> our_callback_{nullptr};
    std::atomic<const Client*> their_client_{nullptr};
    Enabled our_calls_{};  // of the driver
    std::array<Enabled, most_domains> their_calls_{};

    // Records.
    mutable std::mutex switching_;
    bool registered_ = false;
    Reader reader_;
    std::atomic<bool> joined_{false};  ///< `reader_` is there, and the process does not end
    std::atomic<bool> wants_records_{false};
    bool kinds_on_ = false;  // kdvfs's
    std::set<std::pair<void*, cupti::Kind>> their_kinds_;
    std::atomic<Turn> turn_{Turn::ours};
    std::atomic<bool> blind_{false};  // kdvfs sees no records
    Clock::time_point changed_{};     // by a call of the program
    Clock::time_point since_{};       // their turn
    Clock::time_point blind_since_{};
    Use use_{};
    std::atomic<cupti::Timestamp> timestamp_{nullptr};

    std::mutex buffers_;
    std::atomic<cupti::BufferWanted> their_wanted_{nullptr};
    std::atomic<cupti::BufferDone> their_done_{nullptr};
    std::set<std::uint8_t*> their_buffers_;  // that CUPTI has
    std::vector<std::uint8_t*> spare_;       // of kdvfs
};

}  // namespace attach
