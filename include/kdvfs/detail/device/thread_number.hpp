// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace kdvfs::inline v0_3::device {

/// Numbers for threads whose default streams are their own. A number is never given twice, and what
/// is kept for a thread serves the next one once it has ended. Free of locks: a forked child may
/// ask, whatever its parent's threads were at. Thread-safe.
class ThreadNumbers {
public:
    /// The calling thread's own; never 0.
    static std::uint64_t mine() {
        thread_local const ThreadSlot slot;
        return slot.number;
    }

    /// The numbers of all threads that have one and have not ended, ascending. In a forked child
    /// its parent's threads are among them.
    static std::vector<std::uint64_t> living() {
        std::vector<std::uint64_t> numbers;
        for (const Slot* slot = first().load(); slot != nullptr; slot = slot->next) {
            if (const std::uint64_t number = slot->number.load()) numbers.push_back(number);
        }
        std::sort(numbers.begin(), numbers.end());
        return numbers;
    }

private:
    /// Never freed: as many as threads have lived at once.
    struct Slot {
        std::atomic<std::uint64_t> number{0};  ///< 0: nobody's
        Slot* next = nullptr;
    };

    /// A thread's hold on a seat, as long as the thread lives.
    struct ThreadSlot {
        ThreadSlot() : number{fresh()} {
            for (slot = first().load(); slot != nullptr; slot = slot->next) {
                std::uint64_t nobody = 0;
                if (slot->number.compare_exchange_strong(nobody, number)) return;
            }
            slot = new Slot;
            slot->number = number;
            slot->next = first().load();
            while (!first().compare_exchange_weak(slot->next, slot)) {
            }
        }
        ~ThreadSlot() { slot->number = 0; }
        ThreadSlot(const ThreadSlot&) = delete;
        ThreadSlot& operator=(const ThreadSlot&) = delete;

        std::uint64_t number;
        Slot* slot = nullptr;
    };

    static std::uint64_t fresh() {
        static constinit std::atomic<std::uint64_t> last{0};
        return ++last;
    }
    static std::atomic<Slot*>& first() {
        static constinit std::atomic<Slot*> slots{nullptr};
        return slots;
    }
};

}  // namespace kdvfs::inline v0_3::device
