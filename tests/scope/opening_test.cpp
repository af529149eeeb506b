// SPDX-License-Identifier: MIT
// What threads that open GPUs wait for. One of them may be in a static initialiser of a library
// that is being loaded: it holds the loader's lock, and others wait for that in their own openings.
#include <kdvfs/detail/gpu/open.hpp>
#include <kdvfs/detail/gpu/service.hpp>
#include <kdvfs/detail/io/shared_library.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

namespace kdvfs {
namespace {

using namespace std::chrono_literals;

/// Runs one thing while another is under way, and says whether it is done before that ends.
class Meanwhile {
public:
    template <class Other>
    explicit Meanwhile(Other other) {
        std::promise<void> done;
        is_done_ = done.get_future();
        thread_ = std::thread{[other, finished = std::move(done)]() mutable {
            other();
            finished.set_value();
        }};
    }
    ~Meanwhile() { thread_.join(); }
    [[nodiscard]] bool is_done_within(std::chrono::milliseconds time) const {
        return is_done_.wait_for(time) == std::future_status::ready;
    }

private:
    std::future<void> is_done_;
    std::thread thread_;
};

std::shared_ptr<detail::GpuService> open(const std::string& device,
                                         const std::function<void()>& make) {
    const auto make_none = [&] {
        make();
        return std::shared_ptr<detail::GpuService>{};
    };
    return detail::find_or_open(device, make_none, [](detail::GpuService&) {});
}

TEST(Opening, DoesNotWaitForThatOfAnotherDevice) {
    std::unique_ptr<Meanwhile> other;
    open("slow", [&] {
        other = std::make_unique<Meanwhile>([] { open("other", [] {}); });
        EXPECT_TRUE(other->is_done_within(2s));
    });
}

TEST(Opening, WaitsForThatOfTheSameDevice) {
    std::unique_ptr<Meanwhile> second;
    std::atomic<bool> is_first_done{false};
    const auto begin_second = [&] {
        second = std::make_unique<Meanwhile>(
            [&] { open("same", [&] { EXPECT_TRUE(is_first_done.load()); }); });
        EXPECT_FALSE(second->is_done_within(50ms));
        is_first_done = true;
    };
    open("same", begin_second);
    EXPECT_TRUE(second->is_done_within(2s));
    EXPECT_THROW(open("same", [] { throw std::bad_alloc{}; }), std::bad_alloc);
    bool is_open_again = false;
    open("same", [&] { is_open_again = true; });
    EXPECT_TRUE(is_open_again) << "one that failed keeps nobody out";
}

/// Counts its starts and its ends.
struct Session {
    static inline std::atomic<int> starts{0};
    static inline std::atomic<int> ends{0};
    void start() {
        ++starts;
        is_started = true;
    }
    ~Session() {
        if (is_started) ++ends;
    }
    bool is_started = false;
};

/// One call site: what is shared is shared by all that `load` there.
std::shared_ptr<Session> session(const std::function<void()>& load) {
    return detail::shared_session<Session>([&] {
        load();
        return std::make_unique<Session>();
    });
}

TEST(Opening, OfAVendorsLibraryLoadsItUnderNoLock) {
    {
        std::shared_ptr<Session> others;
        std::unique_ptr<Meanwhile> other;
        const auto mine = session([&] {
            other = std::make_unique<Meanwhile>([&] { others = session([] {}); });
            EXPECT_TRUE(other->is_done_within(2s));
        });
        other.reset();
        EXPECT_EQ(mine, others) << "one session for all users";
        EXPECT_EQ(session([] { ADD_FAILURE() << "there is one"; }), mine);
        EXPECT_EQ(Session::starts, 1);
        EXPECT_EQ(Session::ends, 0);
    }
    EXPECT_EQ(Session::ends, 1);
}

const int& number(const std::function<int()>& make) {
    static std::function<int()> its_make;
    its_make = make;
    return detail::made_once([] { return std::function<int()>{its_make}(); });
}

TEST(Opening, KeepsWhatTheFirstOfSeveralThreadsHasMade) {
    const int* others = nullptr;
    const int& mine = number([&] {
        Meanwhile other{[&] { others = &number([] { return 2; }); }};
        EXPECT_TRUE(other.is_done_within(2s));
        return 1;
    });
    EXPECT_EQ(mine, 2);
    EXPECT_EQ(&mine, others);
    EXPECT_EQ(number([] { return 3; }), 2);
}

}  // namespace
}  // namespace kdvfs
