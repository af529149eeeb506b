// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace kdvfs::device {

/// Numbers for threads whose default streams are their own. A number is never given twice, and what
/// is kept for a thread serves the next one once it has ended. Free of locks: a forked child may
/// ask, whatever its parent's threads were at. Thread-safe.
class ThreadNumbers {
public:
    /// The calling thread's own; never 0.
    static std::uint64_t mine() {
        thread_local const Taken seat;
        return seat.number;
    }

    /// The numbers of all threads that have one and have not ended, ascending. In a forked child
    /// its parent's threads are among them.
    static std::vector<std::uint64_t> living() {
        std::vector<std::uint64_t> numbers;
        for (const Seat* seat = first().load(); seat != nullptr; seat = seat->next) {
            if (const std::uint64_t number = seat->number.load()) numbers.push_back(number);
        }
        std::sort(numbers.begin(), numbers.end());
        return numbers;
    }

private:
    /// Never freed: as many as threads have lived at once.
    struct Seat {
        std::atomic<std::uint64_t> number{0};  ///< 0: nobody's
        Seat* next = nullptr;
    };

    /// A thread's hold on a seat, as long as the thread lives.
    struct Taken {
        Taken() : number{fresh()} {
            for (seat = first().load(); seat != nullptr; seat = seat->next) {
                std::uint64_t nobody = 0;
                if (seat->number.compare_exchange_strong(nobody, number)) return;
            }
            seat = new Seat;
            seat->number = number;
            seat->next = first().load();
            while (!first().compare_exchange_weak(seat->next, seat)) {
            }
        }
        ~Taken() { seat->number = 0; }
        Taken(const Taken&) = delete;
        Taken& operator=(const Taken&) = delete;

        std::uint64_t number;
        Seat* seat = nullptr;
    };

    static std::uint64_t fresh() {
        static constinit std::atomic<std::uint64_t> last{0};
        return ++last;
    }
    static std::atomic<Seat*>& first() {
        static constinit std::atomic<Seat*> seats{nullptr};
        return seats;
    }
};

}  // namespace kdvfs::device
