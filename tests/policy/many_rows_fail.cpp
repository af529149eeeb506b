// SPDX-License-Identifier: MIT
// More rows and cases than clang nests fold expressions.
// expected: a kernel is bound twice in this registry: keep one kdvfs::Bind of each name
// expected: BoundOnce<false, 'k', '0', '0', '7'>
#include <kdvfs/registry.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

using namespace kdvfs::literals;

#ifdef KDVFS_MISTAKE
constexpr std::size_t last_name = 7;
#else
constexpr std::size_t last_name = 299;
#endif

template <std::size_t I>
inline constexpr char name_of[]{'k', '0' + I / 100, '0' + I / 10 % 10, '0' + I % 10, '\0'};
template <std::size_t I>
using Row = kdvfs::Bind<kdvfs::FixedString{name_of < I == 299 ? last_name : I > },
                        kdvfs::CapClock<kdvfs::Megahertz{1 + I}>>;

template <class Indices>
struct Many;
template <std::size_t... I>
struct Many<std::index_sequence<I...>> {
    using Policies = kdvfs::PolicyRegistry<Row<299 - I>...>;
    using Shapes = kdvfs::ByVariant<
        kdvfs::OnVariant<std::uint32_t{I}, kdvfs::CapClock<kdvfs::Megahertz{1 + I}>>...,
        kdvfs::Otherwise<kdvfs::AutoClock>>;
};
using Some = Many<std::make_index_sequence<300>>;

struct Kernel : kdvfs::Kernel<"k123"> {};
static_assert(Some::Policies::size == 300 && Some::Policies::metered);
static_assert(Some::Policies::names("k299") && !Some::Policies::names("k300"));
static_assert(Some::Policies::policy_of<Kernel>::request({}).point.core == 124_MHz);
static_assert(Some::Shapes::request({.variant = {299}}).point.core == 300_MHz);
static_assert(Some::Shapes::request({.variant = {300}}).point.core == kdvfs::auto_clock);
static_assert(!Some::Shapes::always_keeps && !kdvfs::obeys_plan<Some::Shapes>);

struct Count {
    void operator()(const kdvfs::ClockRequest&) { ++requests; }
    int requests = 0;
};
[[maybe_unused]] int count_requests() {
    Count count;
    kdvfs::detail::EachRequest<Some::Shapes>::visit({}, count);
    return count.requests;
}
