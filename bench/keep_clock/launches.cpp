// SPDX-License-Identifier: MIT
// One launch, bare and in scopes; compare.cmake counts the instructions of each function.
#include <kdvfs/kdvfs.hpp>

struct Gelu : kdvfs::Kernel<"gelu"> {};

using Kept =
    kdvfs::BoundGpu<kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::KeepClock>, kdvfs::Unmetered>>;
using Metered = kdvfs::BoundGpu<kdvfs::PolicyRegistry<kdvfs::Bind<"gelu", kdvfs::KeepClock>>>;

// A launch as the compiler sees one: elsewhere, and it might throw.
int enqueue(void* stream, const float* in, float* out, long size);

extern "C" {

int bare(const Kept&, void* stream, const float* in, float* out, long size) {
    return enqueue(stream, in, out, size);
}

int kept(const Kept& gpu, void* stream, const float* in, float* out, long size) {
    kdvfs::FrequencyScope<Gelu> scope{gpu, stream};
    return enqueue(stream, in, out, size);
}

int kept_launch(const Kept& gpu, void* stream, const float* in, float* out, long size) {
    return kdvfs::launch<Gelu>(gpu, stream, [&] { return enqueue(stream, in, out, size); });
}

int metered(const Metered& gpu, void* stream, const float* in, float* out, long size) {
    kdvfs::FrequencyScope<Gelu> scope{gpu, stream};
    return enqueue(stream, in, out, size);
}

}  // extern "C"
